//! The program's flags.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn run(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thc-v1model")).args(flags).output().unwrap()
}

#[test]
fn wrong_flags_are_usage_errors() {
    for flags in [&["--hosts", "65"][..], &["--listen", "here"], &["--cpu-port", "4"], &["--ports"]] {
        let output = run(flags);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(flags[0]), "{output:?}");
    }
}

#[test]
fn an_address_in_use_is_named() {
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = other.local_addr().unwrap().to_string();
    let output = run(&["--listen", &at, "--p4runtime", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains(&at) && text.contains("in use"), "{text}");
}
