//! Logs as JSON.

use crate::controller::{Controller, NOWHERE, PROGRAM, run, target};
use std::process::{Command, Stdio};

/// Each line is an object of its own, also when a controller cannot go on.
#[test]
fn each_event_is_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.toml");
    std::fs::write(&config, target("ps1", NOWHERE, 9000)).unwrap();
    let taken = Controller::start(&target("ps1", NOWHERE, 9000));
    let listen = taken.listen.to_string();
    let output = Command::new(PROGRAM)
        .args(["run", "--log-format", "json", "--state", "none", "--listen", &listen, "--config"])
        .arg(&config)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    let events: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = events.last().unwrap();
    assert_eq!(last["level"], "ERROR", "{text}");
    assert!(last["message"].as_str().unwrap().contains("cannot listen on"), "{text}");
    assert!(last["timestamp"].as_str().unwrap().ends_with('Z') && last["target"].is_string(), "{text}");

    let wrong = run(&["run", "--config", "c.toml", "--log-format", "yaml"], &[]);
    assert!(wrong.code == Some(2) && wrong.err.contains("[possible values: text, json]"), "{wrong:?}");
}
