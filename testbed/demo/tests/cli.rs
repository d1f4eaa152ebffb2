//! The program `thc` as users call it: tables, errors of the mean, wrong arguments.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use serde_json::Value;

fn thc(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thc")).args(arguments.split_whitespace()).output().unwrap()
}

fn json(arguments: &str) -> Value {
    let output = thc(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "thc {arguments}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn assert_near(value: &Value, expected: f64, tolerance: f64) {
    let value = value.as_f64().unwrap();
    assert!((value - expected).abs() <= tolerance, "{value}, not {expected}");
}

#[test]
fn the_known_optimal_table() {
    let table = json("table -b 4 -g 30 -p 1/32 --json");
    assert_eq!(table["bits"], 4);
    assert_eq!(table["granularity"], 30);
    assert_eq!(table["fraction"], 0.03125);
    assert_near(&table["t_p"], 2.15387, 5e-6);
    let values: Vec<u64> =
        table["table"].as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).collect();
    assert_eq!(values, [0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30]);
    assert_near(&table["quantization_error"], 0.013063, 5e-7);
    // 2·((1 + t²)·(1 − Φ(t)) − t·φ(t)) at t = 2.15387.
    assert_near(&table["truncation_error"], 0.007267, 5e-7);
    assert_eq!(table, json("table -b 4 -g 30 -p 0.03125 --json"));
    let text = String::from_utf8(thc("table -b 4 -g 30 -p 1/32").stdout).unwrap();
    assert!(text.contains("0 3 5 7 9 11 13 14 15 17 19 21 23 25 27 30"), "{text}");
    assert!(text.contains("1/32"), "{text}");
}

#[test]
fn the_chosen_table_fits_the_lane_and_beats_its_neighbours() {
    for (workers, lane) in [(1u64, 8u64), (4, 8), (10, 8), (10, 16)] {
        let chosen = json(&format!("table -b 4 --workers {workers} --lane {lane} --json"));
        let granularity = chosen["granularity"].as_u64().unwrap();
        let fraction = chosen["fraction"].as_f64().unwrap();
        assert!(granularity * workers < 1 << lane && granularity <= 255);
        assert_eq!((&chosen["workers"], &chosen["lane"]), (&workers.into(), &lane.into()));
        let expected = chosen["expected_nmse"].as_f64().unwrap();
        let error = |granularity: u64, fraction: f64| {
            let table = json(&format!("table -b 4 -g {granularity} -p {fraction} --json"));
            table["quantization_error"].as_f64().unwrap() / workers as f64
                + table["truncation_error"].as_f64().unwrap()
        };
        assert!((error(granularity, fraction) / expected - 1.0).abs() < 1e-9);
        for (other_granularity, other_fraction) in [
            (granularity - 1, fraction),
            (granularity, fraction * 1.5),
            (granularity, fraction / 1.5),
            (15, 1.0 / 32.0),
        ] {
            assert!(error(other_granularity, other_fraction) >= expected * (1.0 - 1e-9));
        }
    }
}

#[test]
fn the_error_of_the_mean_follows_theory() {
    let arguments = "nmse -b 4 -g 30 -p 1/32 -n 4 -d 65536 --trials 10 --json";
    let found = json(arguments);
    let theory =
        found["quantization_error"].as_f64().unwrap() / 4.0 + found["truncation_error"].as_f64().unwrap();
    assert_near(&found["theory"], theory, 1e-12);
    assert_near(&found["nmse"], theory, 0.03 * theory);
    assert!(found["standard_error"].as_f64().unwrap() < 0.02 * theory);
    for (key, value) in [
        ("bits", 4),
        ("granularity", 30),
        ("workers", 4),
        ("dimension", 65536),
        ("trials", 10),
        ("seed", 1),
        ("lane", 8),
    ] {
        assert_eq!(found[key], value, "{key}");
    }
    // A seed decides everything.
    assert_eq!(found, json(arguments));
    assert_ne!(found["nmse"], json(&format!("{arguments} --seed 2"))["nmse"]);
    // Sums beyond 255 take wide lanes.
    let wide = json("nmse -b 4 -g 60 -p 1/512 -n 10 -d 4096 --trials 1 --json");
    assert_eq!((&wide["lane"], &wide["standard_error"]), (&16.into(), &Value::Null));
}

#[test]
fn wrong_arguments_are_one_clear_error_and_status_2() {
    for (arguments, expected) in [
        ("table", "--workers"),
        ("table -g 30", "--fraction"),
        ("table -b 4 -g 14 -p 1/32", "granularity 14"),
        ("table -b 4 -g 256 -p 1/32", "granularity 256"),
        ("table -b 9 -g 30 -p 1/32", "give 1, 2, 3, 4 or 8"),
        ("table -b 4 -g 30 -p 2", "not between 0 and 1"),
        ("table -b 4 -g 30 -p x/y", "not a fraction"),
        ("table -n 300", "300 workers"),
        ("table -n 4 --lane 17", "17"),
        ("table -n 4 -g 30 -p 1/32", "--workers"),
        ("nmse -b 4 -g 3", "granularity 3"),
        ("nmse -b 5", "--bits"),
        ("nmse -n 0", "--workers"),
        ("nmse -d 0", "--dimension"),
        ("demo --workers 0", "--workers"),
        ("demo --steps none", "--steps"),
        ("demo --aggregator abacus", "abacus"),
        ("demo --method thc", "thc-paper"),
        ("demo --method thc-paper --bits 4", "--method thc-paper fixes what --bits sets"),
        ("demo --method thc-paper --no-feedback", "--method thc-paper fixes what --no-feedback sets"),
        ("frob", "frob"),
        ("demoo", "a similar subcommand exists: 'demo'"),
        ("table -b 4 -n 500", "use --lane 16, fewer bits or fewer workers"),
    ] {
        let output = thc(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "thc {arguments}: {errors}");
        // clap's errors end with the usage.
        let is_error = if errors.starts_with("error: ") {
            errors.contains("--help")
        } else {
            errors.lines().count() == 1
        };
        assert!(is_error && errors.contains(expected), "thc {arguments}: {errors}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn unusable_texts_are_one_clear_line_and_status_1() {
    let folder = tempfile::tempdir().unwrap();
    let short = folder.path().join("short");
    std::fs::write(&short, "too short").unwrap();
    let same = folder.path().join("same");
    std::fs::write(&same, vec![b'a'; 5000]).unwrap();
    for (path, expected) in [
        (folder.path().join("missing"), "cannot read the text"),
        (folder.path().to_owned(), "cannot read the text"),
        (short, "has 9 bytes, at least 2048"),
        (same, "repeats a single byte"),
    ] {
        let output = thc(&format!("demo --text {}", path.display()));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.contains(expected) && errors.contains("--text"), "{errors}");
    }
}

#[test]
fn help_teaches_by_examples() {
    for arguments in ["--help", "demo --help", "table --help", "nmse --help"] {
        let output = thc(arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("Examples:"), "thc {arguments}: {text}");
        assert!(!text.contains("internal-worker"), "hidden subcommands are shown: {text}");
    }
}

#[test]
fn studies_are_commands_of_a_program_beside_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("thc");
    std::fs::copy(env!("CARGO_BIN_EXE_thc"), &alone).unwrap();
    let study = |arguments: &[&str]| Command::new(&alone).args(arguments).output().unwrap();
    let output = study(&["bench", "allreduce", "--help"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("build it with: cargo build --release -p thc-studies"), "{said}");
    let program = folder.path().join("thc-studies");
    std::fs::write(&program, "#!/bin/sh\necho \"$@\"\nexit 2\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = study(&["simulate", "recirculation", "--help", "--workers", "4"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "simulate recirculation --help --workers 4\n");
}

#[test]
fn hidden_subcommands_refuse_to_run_alone() {
    let output = thc("internal-worker --parent 1 {}");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("thc demo"));
}
