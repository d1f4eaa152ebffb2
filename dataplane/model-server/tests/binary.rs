//! The program itself: what it says, and how it ends.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thc-model"));
    command.env_remove("RUST_LOG").env_remove("THC_MODEL_SECRET");
    command
}

fn fails(flags: &[&str]) -> String {
    let Output { status, stdout, stderr } = command().args(flags).output().unwrap();
    assert_eq!(status.code(), Some(2), "{flags:?}");
    assert!(stdout.is_empty());
    String::from_utf8(stderr).unwrap()
}

#[test]
fn wrong_flags_are_one_line_and_status_2() {
    let secret = "sixteen letters or more";
    for (flags, wanted) in [
        (&[][..], "there is no job"),
        (&["--job", "a/b", "--secret", secret][..], "letters, digits"),
        (&["--job", "a"][..], "16 characters"),
        (&["--job", "a", "--secret", "short"][..], "16 characters"),
        (&["--job", "a", "--secret", secret, "--threads", "0"][..], "threads"),
        (&["--job", "a", "--secret", secret, "--durable", "1ms"][..], "durable"),
        (&["--config", "/nowhere/thc-model.toml"][..], "cannot read /nowhere"),
        (&["--job", "a", "--secret-file", "/nowhere/secret"][..], "cannot read /nowhere"),
    ] {
        let message = fails(flags);
        assert!(message.contains(wanted), "{flags:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    assert!(fails(&["--durable", "soon"]).contains("--durable"));
}

/// A server that cannot keep models says so, and not that it is ready.
#[test]
fn a_state_that_cannot_be_kept_is_refused() {
    let flags = ["--job", "a", "--secret", "sixteen letters or more", "--listen", "127.0.0.1:0", "--state"];
    for state in ["/proc/x", "/dev/null"] {
        let Output { status, stdout, stderr } = command().args(flags).arg(state).output().unwrap();
        let message = String::from_utf8(stderr).unwrap();
        assert!(status.code() == Some(1) && stdout.is_empty(), "{state}: {message}");
        assert!(message.contains(state) && message.contains("give --state a folder"), "{message}");
    }
}

#[test]
fn files_are_read_and_secrets_in_them_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("thc-model.toml");
    let text =
        "listen = \"127.0.0.1:0\"\n[[job]]\nname = \"a\"\nsecret = \"sixteen letters or more\"\nwhat = 1\n";
    std::fs::write(&file, text).unwrap();
    let message = fails(&["--config", file.to_str().unwrap()]);
    assert!(message.contains("what") && !message.contains("sixteen"), "{message}");
    std::fs::write(&file, text.replace("secret = \"", "secret = 7 # \"")).unwrap();
    assert!(!fails(&["--config", file.to_str().unwrap()]).contains("sixteen"));
}

#[test]
fn help_teaches_and_a_signal_ends_with_totals() {
    let help = command().arg("--help").output().unwrap();
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).unwrap();
    for part in ["Examples:", "--state", "Exit status", "asynchronous.py --slow", "THC_MODEL_SECRET"] {
        assert!(help.contains(part), "{part}");
    }
    let mut child = command()
        .args(["--listen", "127.0.0.1:0", "--job", "train"])
        .env("THC_MODEL_SECRET", "sixteen letters or more")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("ready 127.0.0.1:"), "{line}");
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    let totals: serde_json::Value = serde_json::from_str(&rest).unwrap();
    assert_eq!(totals["jobs"]["train"]["pulls"], 0);
}
