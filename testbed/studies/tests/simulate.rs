//! `thc simulate`: its figures, and refusals of one line.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::Value;
use std::process::{Command, Output};

fn simulate(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thc-studies"));
    command.arg("simulate").args(args.split_whitespace()).output().unwrap()
}

fn points(args: &str) -> Vec<Value> {
    let output = simulate(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The same settings give the same figures.
#[test]
fn all_layouts_are_simulated() {
    let small = "--layout switch,colocated,server --workers 2,4 --rate 1gbit --coordinates 300000 --losses 0 --rounds 1 --json";
    let found = points(small);
    assert_eq!(found.len(), 6, "{found:?}");
    for point in &found {
        let of = |key: &str| point[key].as_f64().unwrap();
        assert!((1e-3..0.1).contains(&of("seconds")) && (1e-4..0.1).contains(&of("nmse")), "{point}");
        assert_eq!((of("repeated"), of("dropped")), (0.0, 0.0), "{point}");
    }
    assert_eq!(found, points(small), "another run, other figures");
}

/// Losses cost time and packets, and do not change the mean.
#[test]
fn losses_are_repaired() {
    let common = "--workers 4 --rate 1gbit --coordinates 1000000 --layout switch,colocated --losses 0,0.002";
    let found = points(&format!("{common} --json"));
    for pair in found.chunks(2) {
        let [plain, lossy] = pair else { panic!("{found:?}") };
        let goodput = |point: &Value| point["goodput"].as_f64().unwrap();
        assert!(
            goodput(plain) == 1.0 && goodput(lossy) < 1.0 && lossy["repeated"].as_u64() > Some(0),
            "{lossy}"
        );
        assert_eq!(plain["nmse"], lossy["nmse"]);
    }
    let table = String::from_utf8(simulate(common).stdout).unwrap();
    assert_eq!(table.lines().count(), 2 + 4, "{table}");
}

/// A larger window hides more of the round trip.
#[test]
fn windows_bound_the_goodput() {
    let found = points("--workers 2 --slots 16,64,1024 --losses 0 --coordinates 1000000 --json");
    let seconds: Vec<f64> = found.iter().map(|point| point["seconds"].as_f64().unwrap()).collect();
    assert!(seconds[0] > 1.5 * seconds[1] && seconds[1] > seconds[2], "{seconds:?}");
}

#[test]
fn wrong_arguments_are_an_error_and_exit_status_2() {
    for (args, says) in [
        ("--workers 1", "1 is not in 2..=64"),
        ("--workers 65", "65 is not in 2..=64"),
        ("--rate fast", "write a rate like"),
        ("--layout tree", "tree"),
        ("--losses 0.9", "give a share from 0 to 0.5"),
        ("--slots 5 --workers 2", "data_slots"),
    ] {
        let output = simulate(args);
        let said = String::from_utf8_lossy(&output.stderr);
        let errors =
            said.lines().filter(|line| line.starts_with("error: ") || line.starts_with("thc: ")).count();
        assert_eq!((output.status.code(), errors), (Some(2), 1), "{args:?}: {said:?}");
        assert!(said.contains(says), "{args:?}: {said:?}");
    }
}
