//! Files of jobs of other versions: those before are read, and one that they read can be had.

use crate::controller::{Controller, NOWHERE, run, target};
use crate::programs::{COOKIE, Site, V1MODEL};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;

/// What a controller of format 1 has written of a job of two workers whose session runs.
fn first_format() -> String {
    let member = |worker: u8| json!({"at": format!("10.9.7.{}:5000", worker + 1), "mac": [2, 0, 10, 9, 0, worker], "port": 1 + worker, "nonce": 256});
    let session = json!({
        "cookie": 4711, "epoch": 1_700_000_000, "members": {"0": member(0), "1": member(1)}, "before": {"0": 5, "1": 5}
    });
    let place = json!({
        "index": 0, "data_base": 0, "norm_base": 0, "group": 1, "earlier": null, "sessions": 3, "session": session
    });
    let spec = json!({
        "name": "a", "number": 7, "cookie": COOKIE, "seed": null, "workers": 2, "bits": 4, "granularity": 15,
        "fraction": 0.031_25, "data_slots": 64, "norm_slots": 32, "block": 13, "quorum": 2, "best_effort": false,
        "deadline_ms": 50
    });
    let job = json!({
        "spec": spec, "serial": 1, "table": 1, "targets": ["chip"], "places": {"chip": place}, "given": {},
        "active": null, "created": 1_700_000_000
    });
    let table = json!({
        "bits": 4, "granularity": 15, "fraction": 0.031_25, "values": (0..16).collect::<Vec<u8>>(), "installed": false,
        "form": [4, 8], "number": 0
    });
    let book = json!({"jobs": {"a": job}, "tables": {"1": table}, "epoch": 1_700_000_000, "serial": 1});
    let content = book.to_string();
    let checksum: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
    json!({"format": 1, "version": 9, "checksum": checksum, "content": content}).to_string()
}

/// Everything in `older` is in `newer`, too, under the same names.
fn assert_has(newer: &Value, older: &Value) {
    for (key, was) in older.as_object().into_iter().flatten() {
        assert!(newer.get(key).is_some(), "{key} of {newer}");
        assert_has(&newer[key], was);
    }
}

fn read(file: &str) -> (Value, Value) {
    let kept: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let content = serde_json::from_str(kept["content"].as_str().unwrap()).unwrap();
    (kept, content)
}

#[test]
fn a_file_of_the_format_before_is_read_and_can_be_written() {
    let before = first_format();
    let site = Site::with_state(V1MODEL, &before);
    // The session goes on, with the rows that it had.
    assert_eq!(site.rows(), site.with_session());
    let row = &site.strict.values("jobs")[0];
    assert_eq!((row["cookie"], row["epoch"], row["workers"]), (4711, 1_700_000_000, 2));
    assert_eq!(site.controller().json(&["job", "show", "a"])["spec"]["granularity"], 15);
    let path = |name: &str| site.controller().folder().join(name).display().to_string();
    let (state, copy) = (path("jobs.state"), path("copy"));
    site.controller().wait_until("written anew", |_| read(&state).0["format"] == 2);
    let said = run(&["backup", "--state", &state, "--format", "1", &copy], &[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let (kept, content) = read(&copy);
    let older: Value = serde_json::from_str(&before).unwrap();
    assert_eq!(kept["format"], 1);
    assert_has(&content, &serde_json::from_str(older["content"].as_str().unwrap()).unwrap());
    // What a controller of the format before would misread is refused.
    let refuses = |controller: &Controller, says: &str| {
        let said = run(&["backup", "--state", &state, "--format", "1", &copy], &[]);
        assert!(said.code == Some(1) && said.err.contains(says), "{said:?}: {}", controller.log());
        assert_eq!(said.err.lines().count(), 1, "{said:?}");
    };
    site.controller().ask_done(&["target", "drain", "chip"]);
    refuses(site.controller(), "knows of no drained targets, as chip is: undrain it first");
    site.controller().ask_done(&["target", "undrain", "chip"]);
}

#[test]
fn a_file_of_a_format_to_come_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let (config, state) = (folder.path().join("config.toml"), folder.path().join("jobs.state"));
    fs::write(&config, target("ps1", NOWHERE, 9000)).unwrap();
    fs::write(&state, first_format().replace("\"format\":1", "\"format\":3")).unwrap();
    let (config, state) = (config.to_str().unwrap(), state.to_str().unwrap());
    let copy = folder.path().join("copy");
    let copy = copy.to_str().unwrap();
    for asked in [
        vec!["run", "--check", "--config", config, "--state", state],
        vec!["run", "--listen", "127.0.0.1:0", "--config", config, "--state", state],
        vec!["backup", "--state", state, copy],
        vec!["restore", "--state", copy, state],
    ] {
        let said = run(&asked, &[]);
        assert_eq!((said.code, said.err.trim_end().lines().count()), (Some(1), 1), "{asked:?}: {said:?}");
        assert!(
            said.err.contains(
                "its format is 3, this thc-controller knows those up to 2: run the one that wrote it"
            ),
            "{said:?}"
        );
        assert!(!std::path::Path::new(copy).exists(), "{asked:?}");
    }
}
