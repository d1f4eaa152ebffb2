//! Models are listed, shown and deleted.
#![allow(clippy::unwrap_used)]

mod program;

use std::time::Duration;

use program::{Running, SECRET, administer, free_address};
use serde_json::Value;
use thc_model::{Client, ClientConfig, ModelBits, ModelError, Pull, Push, Spec};

const LEN: usize = 100;

#[test]
fn a_model_is_listed_shown_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let _server = Running::start(address, folder.path());
    let admin = |arguments: &[&str]| administer(address, arguments);
    let config = ClientConfig {
        server: address.to_string(),
        secret: SECRET.into(),
        timeout: Duration::from_secs(300),
        ..ClientConfig::default()
    };
    let spec = Spec { bits: ModelBits::Fixed(32), shard: 16, ..Spec::sgd(LEN as u64, 1.0) };
    let mut client = Client::open(config, "m", spec).unwrap();
    let mut x = vec![0.0; LEN];
    client.initialise(&x).unwrap();
    for _ in 0..3 {
        client.pull(&mut x, Pull::default()).unwrap();
        let _ = client.push(&[1.0; LEN], Push::bits(32)).unwrap();
    }
    let (status, text) = admin(&["list"]);
    let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((status, row), (Some(0), vec!["m", "100", "3"]));
    let (status, text) = admin(&["list", "--json"]);
    let listed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &listed[0]["version"]), (Some(0), &Value::from(3)));
    let (status, text) = admin(&["show", "m"]);
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, shown[0]["shards"].as_array().unwrap().len()), (Some(0), LEN.div_ceil(16)));

    assert_eq!(admin(&["delete", "m"]), (Some(0), "deleted m\n".to_owned()));
    let gone = client.pull(&mut x, Pull::default()).unwrap_err();
    assert!(matches!(&gone, ModelError::Refused { reason, .. } if reason.contains("deleted")), "{gone}");
    assert!(!folder.path().join("train/m").exists());
    let (status, text) = admin(&["show", "m"]);
    assert!(status == Some(1) && text.contains("no model m"), "{text}");
    let (status, text) = admin(&["delete", "m"]);
    assert!(status == Some(1) && text.contains("no model m"), "{text}");
    let (status, text) = administer(address, &["list", "--secret", "another secret entirely"]);
    assert!(status == Some(1) && text.contains("same secret"), "{text}");
}
