//! `thc bench`: real processes, on the loopback interface and on hosts of their own.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thc-studies")).args(["bench", "allreduce"]).args(args).output().unwrap()
}

/// `thc bench local` where Python has no torch.
fn local(args: &str) -> Output {
    let mut thc = Command::new(env!("CARGO_BIN_EXE_thc-studies"));
    thc.env("THC_PYTHON", "/bin/false").args(["bench", "local"]).args(args.split(' ')).output().unwrap()
}

/// The settings that were measured.
fn measurements(output: &Output) -> Vec<Value> {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let found: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for setting in &found {
        for key in ["seconds", "cpu_seconds_per_gib", "nmse"] {
            assert!(setting[key].as_f64().unwrap() > 0.0, "{key}: {setting}");
        }
    }
    found
}

#[test]
fn all_places_on_the_loopback_interface() {
    let args =
        "--rate loopback --workers 3 --size 64KiB,1MiB --repeat 1 --place switch,colocated,server --json";
    let found = measurements(&bench(&args.split(' ').collect::<Vec<_>>()));
    let places: Vec<&str> = found.iter().map(|setting| setting["place"].as_str().unwrap()).collect();
    assert_eq!(places, ["switch", "colocated", "server", "switch", "colocated", "server"]);
    // One server and shares average to the same bits: the same error, to the last digit.
    for size in found.chunks(3) {
        assert!(size.iter().all(|setting| setting["nmse"] == size[0]["nmse"]), "{size:?}");
    }
    assert!(found.iter().all(|setting| setting["limit_seconds"].is_null()));
}

#[test]
fn sizes_on_this_host() {
    let found = measurements(&local("-n 3 -b 64KiB -e 4MiB --repeat 1 --json"));
    let sizes: Vec<u64> = found.iter().map(|size| size["bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [64 << 10, 256 << 10, 1 << 20, 4 << 20]);
    let of = |size: &Value, key: &str| size[key].as_f64().unwrap();
    for size in &found {
        // A mean of other numbers, or a sum that was not divided, has an error near 1.
        assert!((1e-3..0.03).contains(&of(size, "nmse")), "{size}");
        let share = of(size, "worker_bytes") / of(size, "bytes");
        assert!((0.39..0.45).contains(&share), "{share}: {size}");
        assert!(size["against_seconds"].is_null(), "{size}");
    }

    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("sizes.svg");
    let output = local(&format!("-n 2 -b 4KiB -e 4KiB --repeat 1 --plot {}", picture.display()));
    let drawn = std::fs::read_to_string(picture).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("4.0 KiB") && drawn.contains("THC"), "{drawn}");
    let (table, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("/bin/false has no torch: gloo is not measured"), "{said}");
    assert_eq!(table.trim_end().lines().count(), 2 + 1, "{table}");
    let refused = local("-n 2 --plot /nowhere/sizes.svg");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("thc: /nowhere/sizes.svg: "), "{said}");
    let refused = local("-b 2MiB -e 1MiB");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("--begin is larger than --end"), "{said}");
}

/// A reader of the output or of the messages that has gone, as `head` goes, is no failure.
#[test]
fn closed_pipes_end_no_command_in_a_panic() {
    let mut thc = Command::new(env!("CARGO_BIN_EXE_thc-studies"));
    let words = "bench local -n 2 -b 4KiB -e 4KiB --repeat 1";
    let thc = thc.env("THC_PYTHON", "/bin/false").args(words.split(' '));
    let mut child = thc.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn shaped_hosts_have_a_limit_and_leave_nothing() {
    let output =
        bench(&["--workers", "2", "--size", "256KiB", "--repeat", "1", "--rate", "100mbit", "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("no hosts for the workers") {
        println!("not run: {said}");
        return;
    }
    let found = measurements(&output);
    assert!((found[0]["limit_seconds"].as_f64().unwrap() - 0.00422).abs() < 0.00001, "{}", found[0]);
}

#[test]
fn wrong_arguments_are_an_error_and_exit_status_2() {
    for (args, says) in [
        (&["--workers", "1"][..], "one worker has no other worker to share a server with"),
        (&["--workers", "65"], "65 is not in 1..=64"),
        (&["--size", "64 megs"], "write a size like"),
        (&["--size", "3"], "write a size like"),
        (&["--rate", "fast"], "write a rate like"),
        (&["--place", "moon"], "moon"),
        (&["--repeat", "0"], "0 is not in"),
    ] {
        let output = bench(args);
        let said = String::from_utf8_lossy(&output.stderr);
        let errors =
            said.lines().filter(|line| line.starts_with("error: ") || line.starts_with("thc: ")).count();
        assert_eq!((output.status.code(), errors), (Some(2), 1), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    }
}
