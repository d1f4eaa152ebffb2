//! `thc simulate`: settings, figures, pages; that it says no in a line.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::Value;
use std::process::{Command, Output};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/thc-simulate.example.toml");

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

/// The example has every key, with its default; flags go before it; the same settings give the same figures.
#[test]
fn the_example_file_is_the_defaults_and_runs() {
    let small = "--workers 2,4,96 --rate 1gbit --coordinates 300000 --json";
    let args: Vec<&str> = small.split(' ').collect();
    let from_file = simulate(&[&["--config", EXAMPLE][..], &args].concat());
    let found = points(&from_file);
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
    let settings = |output: &Output| -> Value {
        let mut all: Value = serde_json::from_slice(&output.stdout).unwrap();
        all["settings"]["job"] = Value::Null;
        all["settings"].clone()
    };
    let without = simulate(&args);
    assert_eq!(settings(&from_file), settings(&without), "the example is not the defaults");
    let seconds =
        |output: &Output| points(output).iter().map(|point| point["seconds"].clone()).collect::<Vec<_>>();
    assert_eq!(seconds(&from_file), seconds(&without), "another run, other figures");
    let text = std::fs::read_to_string(EXAMPLE).unwrap();
    let help = String::from_utf8(simulate(&["--help"]).stdout).unwrap();
    for key in text.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key) {
        let flag = format!("--{}", key.trim_start_matches("# ").replace('_', "-"));
        assert!(help.contains(&flag) || ["bits", "data_slots", "block"].contains(&key), "{key}");
    }
}

/// Losses cost time and packets, stragglers only what the last one takes, and no mean is another for it.
#[test]
fn losses_and_stragglers() {
    let common = "--workers 4 --rate 1gbit --coordinates 1000000 --layout colocated,switch,racks --rack 2 --json --rounds 3";
    let run = |more: &str| points(&simulate(&common.split(' ').chain(more.split(' ')).collect::<Vec<_>>()));
    let plain = run("--compute-ms 20");
    let lossy = run("--loss 0.002");
    let slow = run("--compute-ms 20 --compute-spread 0.1 --stragglers 0.4 --slowdown 3");
    for ((plain, lossy), slow) in plain.iter().zip(&lossy).zip(&slow) {
        let of = |point: &Value| point["seconds"].as_f64().unwrap();
        assert!(of(lossy) > of(plain) && lossy["repeated"].as_u64() > Some(0), "{lossy}");
        assert_eq!(plain["nmse"], lossy["nmse"]);
        // From when the last one began.
        assert!(of(slow) < 1.2 * of(plain), "{slow}");
    }
}

#[test]
fn curves_are_drawn_by_rate() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let svg = at("curves.svg");
    let args = "--workers 2,8 --rate 1gbit,25gbit --coordinates 262144 --layout colocated,ring-int8 --svg";
    let output = simulate(&args.split(' ').chain([&*svg]).collect::<Vec<_>>());
    assert!(output.status.success(), "{}", stdout(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("quickest") && table.contains("25 Gb/s, 8"), "{table}");
    let svg = std::fs::read_to_string(svg).unwrap();
    assert_eq!(svg.matches("<svg").count(), 3);
    for text in ["colocated", "ring-int8", "25 Gb/s"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn what_makes_no_sense_is_a_line_and_exit_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.toml");
    std::fs::write(&file, "latency = 3\n").unwrap();
    let file = file.to_str().unwrap();
    for (args, says) in [
        (&["--config", file][..], "unknown field `latency`"),
        (&["--workers", "1"], "workers is 1: give 2 to 1024"),
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

/// AQGB's simulator prints the paper's figures beside its own, and says no in a line.
#[test]
fn row_stands_beside_what_was_published() {
    let output = simulate(&["row", "--json", "--scheme", "plain,fixed4,aqgb"]);
    assert!(output.status.success(), "{}", stdout(&output));
    let found: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for entry in &found {
        let (rounds, published) =
            (entry["rounds"].as_f64().unwrap(), entry["published_rounds"].as_f64().unwrap());
        assert!((0.9..1.05).contains(&(rounds / published)), "{rounds} {published}");
    }
    let steps = "row --scheme aqgb --workers 4 --seconds 20 --steps 0:2.5gbit,10:1gbit";
    let output = simulate(&steps.split(' ').collect::<Vec<_>>());
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("changing, 4, AQGB"));
    for (args, says) in [
        (["--blocks", "2"], "blocks is 2: give 1, 3, 4, 5 or 6"),
        (["--least", "0"], "least is 0"),
        (["--seconds", "0"], "seconds is 0"),
        (["--steps", "5:1gbit"], "begin with 0"),
    ] {
        let output = simulate(&[&["row"][..], &args].concat());
        assert_eq!(
            (output.status.code(), stdout(&output).lines().count()),
            (Some(2), 1),
            "{}",
            stdout(&output)
        );
        assert!(stdout(&output).contains(says), "{}", stdout(&output));
    }
}
