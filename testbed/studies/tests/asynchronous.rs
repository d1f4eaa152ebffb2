//! `thc async`: methods compared by real processes, the study of μ, and wrong arguments.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use serde_json::Value;

fn thc(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thc-studies"));
    command.arg("async").args(arguments.split_whitespace()).env_remove("THC_ASYNC_ORDER").output().unwrap()
}

fn json(arguments: &str) -> Value {
    let output = thc(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "thc async {arguments}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn methods_are_compared() {
    let arguments = "demo --scale 0.02 --epochs 4 --workers 3 --slow 3 --delay 8 --target 0.6 --rate 2 --json \
         --methods asyfpg,asylpg,sparse-asylpg,acc-asylpg";
    let found = json(arguments);
    let outcomes = found["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 4);
    for outcome in outcomes {
        let name = &outcome["name"];
        let points = outcome["points"].as_array().unwrap();
        assert_eq!(points.len(), 5, "{name}");
        let loss = |i: usize| points[i]["loss"].as_f64().unwrap();
        assert!((loss(0) - 2_f64.ln()).abs() < 1e-6, "{name} begins at {}", loss(0));
        assert!(loss(4) < loss(0), "{name}: {} after {}", loss(4), loss(0));
        assert!(outcome["longest_delay"].as_u64().unwrap() <= 8);
        // m = ⌈404 / 200⌉ pushes in each of four epochs.
        assert_eq!(outcome["pushes"], 12);
    }
    // 8 bits each way in the place of 32: by the paper's count 4 × fewer, but for flags and scales.
    let bits = |i: usize| outcomes[i]["points"][4]["bits"].as_f64().unwrap();
    assert!(bits(0) / bits(1) > 2.5, "{} and {}", bits(0), bits(1));
    assert!(bits(2) < bits(1));
    // The time to the target has parts.
    for outcome in outcomes {
        let part = |name: &str| outcome["time"][name].as_f64().unwrap();
        assert!(part("computing") > 0.0 && part("waiting") > 0.0 && part("epochs") > 0.0, "{outcome}");
    }
}

#[test]
fn each_method_has_the_rate_that_takes_the_fewest_bits() {
    let demo = "demo --scale 0.02 --epochs 6 --workers 2 --slow 1 --target 0.6 --until-target --json --methods asylpg";
    let of = |rates: &str| json(&format!("{demo} --rate {rates}"))["outcomes"][0].clone();
    // 1e-6 does not come there, 1e30 ends in numbers that are not finite.
    let best = of("0.000001,1e30,2");
    assert_eq!(best["rate"], 2.0);
    assert!(best["bits_to_target"].as_f64().is_some());
    assert_eq!(of("0.000001,0.0001")["rate"].as_f64().map(|rate| rate as f32), Some(1e-4));
    let output = thc(&format!("{demo} --rate 1e30"));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn mu_decides_precision() {
    let found = json("mu --data real-sim --scale 0.01 --epochs 6 --rate 4 --json");
    let rows = found["table"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    let bits: Vec<f64> = rows.iter().map(|row| row["mean_bits"].as_f64().unwrap()).collect();
    assert!(bits.windows(2).all(|w| w[0] >= w[1] - 0.7), "{bits:?}");
    assert!(bits[0] > bits[9] + 2.0, "{bits:?}");
    let needed = found["needed"].as_array().unwrap();
    // Three of four steps of five epochs; the fourth ends in the snapshot.
    assert_eq!(needed.len(), 15);
    for step in needed {
        // Fewer bits need a larger μ.
        assert!(step["mu"][0].as_f64().unwrap() < step["mu"][1].as_f64().unwrap());
    }
}

#[test]
fn wrong_arguments_are_told_in_one_line() {
    for (arguments, wanted) in [
        ("demo --workers 6 --delay 4", "--delay must be at least 5"),
        ("demo --scale 2", "--scale"),
        ("demo --slow 0.5", "--slow"),
        ("demo --rate 0", "--rate"),
        ("demo --methods best", "--methods"),
        ("demo --data mnist", "--data"),
    ] {
        let output = thc(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {text}");
        assert!(text.contains(wanted), "{arguments}: {text}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_thc-studies"))
        .args(["async-worker", "--parent", "1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let help = String::from_utf8(thc("--help").stdout).unwrap();
    assert!(help.contains("thc async demo") && help.contains("docs/asynchronous.md"), "{help}");
}

#[test]
fn digits_are_those_of_scikit_learn() {
    let output = thc("demo --data digits --epochs 6 --workers 2 --methods asylpg --json");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("no digits") {
        println!("not run: {errors}");
        return;
    }
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let points = found["outcomes"][0]["points"].as_array().unwrap();
    assert!(points[6]["loss"].as_f64().unwrap() < points[0]["loss"].as_f64().unwrap() / 2.0);
}
