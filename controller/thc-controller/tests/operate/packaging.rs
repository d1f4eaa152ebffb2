//! Files for installations.

use crate::controller::PROGRAM;
use std::fs;
use std::path::Path;
use std::process::Command;

/// systemd's own check, with a program in place of the ones that would be installed.
#[test]
fn systemd_takes_the_units() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for entry in fs::read_dir(units).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "service") {
            let text = fs::read_to_string(&path).unwrap();
            let start = text.lines().find(|line| line.starts_with("ExecStart=/usr/local/bin/thc-"));
            let start = start.unwrap_or_else(|| panic!("{}", path.display()));
            let program = start["ExecStart=".len()..].split(' ').next().unwrap();
            let file = folder.path().join(path.file_name().unwrap().to_str().unwrap().replace("@.", "@one."));
            fs::write(&file, text.replace(program, PROGRAM)).unwrap();
            files.push(file);
        }
    }
    assert_eq!(files.len(), 3);
    let output = match Command::new("systemd-analyze")
        .arg("verify")
        .args(["--man=no", "--recursive-errors=no"])
        .args(&files)
        .output()
    {
        Ok(output) => output,
        Err(error) => {
            println!("not run: systemd-analyze: {error}");
            return;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    // What the machine's own units lack is not ours to mend.
    let ours: Vec<&str> =
        said.lines().filter(|line| line.contains("thc-") && !line.contains("network-online")).collect();
    assert!(ours.is_empty() && output.status.success(), "{said}");
}
