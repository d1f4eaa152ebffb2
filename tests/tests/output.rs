//! Where `thc-worker` puts the mean, and what it says when it cannot: real processes, each a job of one worker.
#![allow(clippy::unwrap_used, missing_docs)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use thc_tests::{COOKIE, Finished, Ps, WorkerProcess, binary, free_port, run, write_gradient};

/// A worker whose output cannot be: its end comes before it looks for the server, which there is none of.
fn expect_refusal(args: &[&str]) -> Finished {
    let nowhere = format!("127.0.0.1:{}", free_port()).parse().unwrap();
    let started = Instant::now();
    let end = WorkerProcess::start(nowhere, 0, &[args, &["--join-timeout", "600s"]].concat()).finish();
    assert!(started.elapsed() < thc_tests::HANG / 5, "{end:?}");
    assert_eq!(end.err.lines().count(), 1, "{end:?}");
    end
}

fn input(dir: &Path) -> PathBuf {
    let input = dir.join("in.f32");
    write_gradient(&input, 50_000, 1);
    input
}

/// Names of what is in a folder.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_output_that_cannot_be_is_refused_before_anybody_waits() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let input = input(dir.path());
    let input = input.to_str().unwrap();
    let two = path("two.safetensors");
    let header = br#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    let header = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 8]].concat();
    std::fs::write(&two, header).unwrap();
    for (input, output, says) in [
        (input, path("no/such/out.f32"), "there is no folder"),
        (input, path("in.f32/out.f32"), "is not a folder"),
        (input, path(""), "is a folder"),
        (input, dir.path().to_str().unwrap().to_owned(), "is a folder"),
        (input, path("new/"), "is a folder"),
        (&two, path("out.npy"), "2 tensors do not fit"),
    ] {
        let end = expect_refusal(&["--input", input, "--output", &output]);
        assert_eq!(end.code, Some(1), "{end:?}");
        assert!(end.err.contains(says) && end.err.contains(&output), "{says}: {end:?}");
    }
    assert_eq!(names(dir.path()), ["in.f32", "two.safetensors"]);
    let end = expect_refusal(&["--coordinates", "9", "--output", &path("out.f32")]);
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(end.err.contains("--output needs --input"), "{end:?}");
}

#[test]
fn inputs_that_cannot_be_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for (input, says) in
        [(path("missing.npy"), "No such file"), (dir.path().to_str().unwrap().to_owned(), "Is a directory")]
    {
        let end = expect_refusal(&["--input", &input]);
        assert_eq!(end.code, Some(1), "{end:?}");
        assert!(end.err.contains(says) && end.err.contains(&input), "{end:?}");
    }
}

#[test]
fn numbers_beyond_all_measure_are_usage_errors() {
    for (args, says) in [
        (&["--coordinates", "99999999999999"][..], "coordinates is 99999999999999"),
        (&["--coordinates", "4294967296"], "4294967295 at most"),
        (&["--coordinates", "9", "--threads", "99999999"], "threads is 99999999"),
        (&["--coordinates", "9", "--timeout", "1000y"], "a year is the longest"),
    ] {
        let end = expect_refusal(args);
        assert_eq!(end.code, Some(2), "{end:?}");
        assert!(end.err.contains(says), "{end:?}");
    }
}

/// Runs a worker from a shell, which can limit it.
fn run_limited(limits: &str, args: &[&str]) -> Finished {
    let worker = binary("thc-worker");
    let output = Command::new("sh")
        .args(["-c", &format!("{limits} && exec \"$0\" \"$@\"")])
        .arg(worker)
        .args(["--worker", "0", "--cookie", COOKIE])
        .args(args)
        .env("RUST_LOG", "off")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Finished { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn memory_that_is_not_there_is_an_error_and_no_crash() {
    let end = run_limited("ulimit -v 2000000", &["--coordinates", "4294967295"]);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.err.contains("there is no memory for 4294967295 coordinates"), "{end:?}");
    assert_eq!(end.err.lines().count(), 1, "{end:?}");
}

#[test]
fn a_full_disk_leaves_an_earlier_file_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let input = input(dir.path());
    for name in ["out.f32", "out.npy", "out.safetensors"] {
        let output = dir.path().join(name);
        std::fs::write(&output, b"an earlier good file").unwrap();
        let before = names(dir.path());
        let ps = Ps::start(1, &[]);
        // As a full disk does, this lets a write fail in the middle: 64 blocks of 512 bytes.
        let args = ["--input", input.to_str().unwrap(), "--output", output.to_str().unwrap()];
        let end =
            run_limited("trap '' XFSZ; ulimit -f 64", &[&args[..], &["--ps", &ps.addr.to_string()]].concat());
        assert_eq!(end.code, Some(1), "{end:?}");
        assert!(end.err.contains(&format!("cannot write {}", output.display())), "{end:?}");
        assert_eq!(std::fs::read(&output).unwrap(), b"an earlier good file");
        assert_eq!(names(dir.path()), before);
    }
}

#[test]
fn files_of_all_formats_may_be_read_by_all() {
    let dir = tempfile::tempdir().unwrap();
    let input = input(dir.path());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (umask, wanted) in [("022", 0o644), ("077", 0o600)] {
        for name in ["out.f32", "out.npy", "out.safetensors"] {
            let ps = Ps::start(1, &[]);
            let output = dir.path().join(name);
            // The first replaces a link's file, and not the link.
            let file = dir.path().join("file");
            if name == "out.f32" && umask == "022" {
                std::fs::write(&file, "").unwrap();
                symlink(&file, &output).unwrap();
            }
            let args = ["--input", input.to_str().unwrap(), "--output", output.to_str().unwrap()];
            let end = run_limited(
                &format!("umask {umask}"),
                &[&args[..], &["--ps", &ps.addr.to_string()]].concat(),
            );
            assert_eq!(end.code, Some(0), "{end:?}");
            assert_eq!(mode(&output), wanted, "{name}");
            assert!(std::fs::metadata(&output).unwrap().len() >= 200_000);
            let link = std::fs::symlink_metadata(&output).unwrap().is_symlink();
            assert_eq!(link, name == "out.f32");
        }
    }
    assert_eq!(names(dir.path()), ["file", "in.f32", "out.f32", "out.npy", "out.safetensors"]);
}

#[test]
fn a_device_is_written_into() {
    let dir = tempfile::tempdir().unwrap();
    let ps = Ps::start(1, &[]);
    let args = ["--input", input(dir.path()).to_str().unwrap(), "--output", "/dev/stdout"].map(str::to_owned);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = Command::new(binary("thc-worker"))
        .args(["--worker", "0", "--cookie", COOKIE, "--ps", &ps.addr.to_string()])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.len() > 200_000);
    assert!(!Path::new("/dev/stdout").is_file());
}

/// Each line on stderr is an object, also the last one of a program that cannot go on.
#[test]
fn each_program_writes_its_events_as_json_where_that_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let also_taken = listening.local_addr().unwrap().to_string();
    let _held = std::net::UdpSocket::bind(&taken).unwrap();
    std::fs::write(path("c.toml"), "[[target]]\naddress = \"127.0.0.1:1\"\nip = \"127.0.0.1\"\n").unwrap();
    let (missing, config) = (path("missing.npy"), path("c.toml"));
    let secret = "sixteen letters or more";
    for (program, args, says) in [
        ("thc-ps", vec!["--job", "1", "--cookie", "1", "--workers", "2", "--listen", &taken], "in use"),
        ("thc-worker", vec!["--worker", "0", "--cookie", "1", "--input", &missing], "No such file"),
        ("thc-model", vec!["--job", "a", "--secret", secret, "--listen", &taken], "in use"),
        (
            "thc-controller",
            vec!["run", "--state", "none", "--config", &config, "--listen", &also_taken],
            "cannot listen on",
        ),
    ] {
        let end = run(program, &[&args[..], &["--log-format", "json"]].concat());
        let error = String::from_utf8(end.stderr).unwrap();
        assert_eq!(end.status.code(), Some(1), "{program}: {error}");
        let events: Vec<serde_json::Value> = error
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{program}: {e}: {line}")))
            .collect();
        let last = events.last().unwrap();
        assert!(last["message"].as_str().unwrap().contains(says), "{program}: {last}");
        assert_eq!(
            (&last["level"], last["timestamp"].is_string()),
            (&"ERROR".into(), true),
            "{program}: {last}"
        );
    }
}
