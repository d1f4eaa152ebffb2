//! `thc simulate`: its figures, and refusals of one line.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::Value;
use std::process::{Command, Output};

fn simulate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thc-studies")).arg("simulate").args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn points(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", stdout(output));
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    all["points"].as_array().unwrap().clone()
}

/// The same settings give the same figures.
#[test]
fn all_layouts_are_simulated() {
    let small = "--workers 2,4,96 --rate 1gbit --coordinates 300000 --json";
    let args: Vec<&str> = small.split(' ').collect();
    let first = simulate(&args);
    let found = points(&first);
    // Five layouts of few workers; racks and two rings take 96.
    assert_eq!(found.len(), 13, "{found:?}");
    for point in &found {
        let seconds = point["seconds"].as_f64().unwrap();
        assert!((1e-3..0.1).contains(&seconds), "{point}");
        if let Some(nmse) = point["nmse"].as_f64() {
            assert!((1e-4..0.1).contains(&nmse), "{point}");
            assert_eq!(
                (point["repeated"].as_u64(), point["dropped"].as_u64()),
                (Some(0), Some(0)),
                "{point}"
            );
        }
    }
    assert_eq!(found, points(&simulate(&args)), "another run, other figures");
}

/// Losses cost time and packets, and no mean is another for it.
#[test]
fn losses_are_repaired() {
    let common = "--workers 4 --rate 1gbit --coordinates 1000000 --layout colocated,switch,racks --rack 2 --json --rounds 3";
    let run = |loss: &str| points(&simulate(&common.split(' ').chain(["--loss", loss]).collect::<Vec<_>>()));
    for (plain, lossy) in run("0").iter().zip(&run("0.002")) {
        let of = |point: &Value| point["seconds"].as_f64().unwrap();
        assert!(of(lossy) > of(plain) && lossy["repeated"].as_u64() > Some(0), "{lossy}");
        assert_eq!(plain["nmse"], lossy["nmse"]);
    }
}

#[test]
fn the_table_names_the_quickest() {
    let args = "--workers 2,8 --rate 1gbit,25gbit --coordinates 262144 --layout colocated,ring-int8";
    let output = simulate(&args.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{}", stdout(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("quickest") && table.contains("25 Gb/s, 8"), "{table}");
}

#[test]
fn what_makes_no_sense_is_a_line_and_exit_status_2() {
    for (args, says) in [
        (&["--workers", "1"][..], "workers is 1: give 2 to 1024"),
        (&["--workers", "65", "--layout", "switch"], "an aggregator takes 2 to 64"),
        (&["--rate", "fast"], "write a rate like"),
        (&["--layout", "tree"], "tree"),
        (&["--loss", "0.9"], "loss is 0.9"),
        (&["--job", "bits"], "KEY=VALUE"),
        (&["--job", "slots=5", "--workers", "2"], "slots"),
        (&["--job", "granularity=255", "--workers", "4", "--layout", "switch"], "no such job for 4 workers"),
    ] {
        let output = simulate(args);
        let said = stdout(&output);
        let said: Vec<&str> = said.lines().filter(|line| !line.starts_with("simulating")).collect();
        assert_eq!((output.status.code(), said.len()), (Some(2), 1), "{args:?}: {said:?}");
        assert!(said[0].contains(says), "{args:?}: {said:?}");
    }
}
