//! tshark with the project's dissector.

use std::path::Path;
use std::process::{Command, Stdio};

const DISSECTOR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testbed/wireshark/thc.lua");

/// Whether tshark can be run; says so if not.
pub fn is_here() -> bool {
    let here = Command::new("tshark")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !here {
        println!("not run: tshark not found (Debian: apt-get install tshark)");
    }
    here
}

/// What tshark prints, line by line.
fn run(file: &Path, more: &[&str]) -> Vec<String> {
    let output = Command::new("tshark")
        .args(["-X", &format!("lua_script:{DISSECTOR}"), "-r"])
        .arg(file)
        .args(more)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("Lua"), "{errors}");
    String::from_utf8(output.stdout).unwrap().lines().map(String::from).collect()
}

/// The fields of every frame, in the order of `names`; a field has several values if a frame has several packets, or a packet the
/// field several times.
pub fn fields(file: &Path, names: &[&str]) -> Vec<Vec<Vec<String>>> {
    let mut more = vec!["-T", "fields", "-E", "separator=|", "-E", "occurrence=a", "-E", "aggregator=;"];
    for name in names {
        more.extend(["-e", *name]);
    }
    let values =
        |column: &str| column.split(';').filter(|value| !value.is_empty()).map(String::from).collect();
    run(file, &more).iter().map(|line| line.split('|').map(values).collect()).collect()
}

/// The numbers, from 1, of the frames that a filter shows.
pub fn frames(file: &Path, filter: &str, more: &[&str]) -> Vec<usize> {
    let mut args = more.to_vec();
    args.extend(["-Y", filter, "-T", "fields", "-e", "frame.number"]);
    run(file, &args).iter().map(|line| line.parse().unwrap()).collect()
}
