//! Models are kept, put back, exported, imported and deleted.
#![allow(clippy::unwrap_used)]

mod program;

use std::net::SocketAddr;
use std::time::Duration;

use program::{Running, SECRET, administer, free_address};
use thc_model::{Client, ClientConfig, ModelBits, ModelError, Optimizer, Pull, Push, Spec};

/// How long nothing may happen until a test counts as hung.
const HANG: Duration = Duration::from_secs(300);
const LEN: usize = 100;

/// With a rate of 1 and momentum, so that more than x must survive.
fn spec() -> Spec {
    let optimizer = Optimizer::Momentum { beta: 0.5 };
    Spec { bits: ModelBits::Fixed(32), optimizer, shard: 16, workers: 4, ..Spec::sgd(LEN as u64, 1.0) }
}

fn config(servers: &[String]) -> ClientConfig {
    ClientConfig {
        servers: servers.to_vec(),
        secret: SECRET.into(),
        timeout: HANG,
        ..ClientConfig::default()
    }
}

fn open(servers: &[SocketAddr], model: &str) -> Client {
    let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
    Client::open(config(&servers), model, spec()).unwrap()
}

/// x after so many pushes of 1 with momentum 0.5, from 0.
fn expected_after(pushes: u64) -> f32 {
    let (mut x, mut m) = (0.0, 0.0);
    for _ in 0..pushes {
        m = 0.5 * m + 1.0;
        x -= m;
    }
    x
}

/// Pulls, checks every number, and pushes: the version after it.
fn work(client: &mut Client) -> u64 {
    let mut x = vec![0.0; LEN];
    loop {
        let pulled = client.pull(&mut x, Pull::default()).unwrap();
        let versions: Vec<u64> = pulled.stamps().map(|stamp| stamp.version).collect();
        for (version, x) in versions.iter().zip(x.chunks(16)) {
            assert!(x.iter().all(|x| *x == expected_after(*version)), "{x:?} at version {version}");
        }
        if client.push(&[1.0; LEN], Push::bits(32)).unwrap().refused.is_empty() {
            return versions.iter().min().unwrap() + 1;
        }
    }
}

#[test]
fn a_model_is_kept_put_back_moved_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let server = Running::start(address, folder.path());
    let admin = |arguments: &[&str]| administer(&[address], arguments);
    let mut client = open(&[address], "m");
    client.initialise(&[0.0; LEN]).unwrap();
    while work(&mut client) < 3 {}
    assert_eq!(admin(&["checkpoint", "m"]), (Some(0), "kept m: state 1\n".to_owned()));
    while work(&mut client) < 5 {}
    let (status, text) = admin(&["models"]);
    assert!(status == Some(0) && text.contains("1@3"), "{text}");
    let (status, text) = admin(&["rollback", "m", "--to", "9"]);
    assert!(status == Some(1) && text.contains("there are: 1"), "{text}");
    assert_eq!(admin(&["rollback", "m"]), (Some(0), "put back m: state 1\n".to_owned()));
    // The worker goes on from there, by itself.
    assert_eq!(work(&mut client), 4);

    // To two servers: the file has all that the optimizer keeps.
    let file = folder.path().join("m.thc");
    let (status, text) = admin(&["export", "m", file.to_str().unwrap()]);
    assert!(status == Some(0) && text.contains("version 4"), "{text}");
    let other = tempfile::tempdir().unwrap();
    let pair = [free_address(), free_address()];
    let _servers = [0, 1].map(|i| Running::start(pair[i], &other.path().join(i.to_string())));
    let (status, text) = administer(&pair, &["import", "n", file.to_str().unwrap()]);
    assert_eq!(status, Some(0), "{text}");
    let (status, text) = administer(&pair, &["import", "n", file.to_str().unwrap()]);
    assert!(status == Some(2) && text.contains("has a value already"), "{text}");
    let mut moved = open(&pair, "n");
    assert_eq!(work(&mut moved), 5);
    let mut exact = vec![0.0; LEN];
    assert!(moved.exact(&mut exact).unwrap().iter().all(|stamp| stamp.version == 5));
    assert!(exact.iter().all(|x| *x == expected_after(5)));

    let array = folder.path().join("m.npy");
    assert_eq!(admin(&["export", "m", array.to_str().unwrap()]).0, Some(0));
    assert!(std::fs::read(array).unwrap().starts_with(b"\x93NUMPY"));
    assert_eq!(admin(&["delete", "m"]), (Some(0), "deleted m\n".to_owned()));
    let gone = client.pull(&mut exact, Pull::default()).unwrap_err();
    assert!(matches!(&gone, ModelError::Refused { reason, .. } if reason.contains("deleted")), "{gone}");
    let (status, text) = admin(&["show", "m"]);
    assert!(status == Some(2) && text.contains("no model m"), "{text}");
    assert!(!folder.path().join("train/m").exists());
    let wrong = administer(&[address], &["models", "--secret", "another secret entirely"]);
    assert!(wrong.0 == Some(1) && wrong.1.contains("same secret"), "{}", wrong.1);
    drop(server);
}
