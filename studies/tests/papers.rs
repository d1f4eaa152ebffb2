//! `thc papers` as users call it: all entries on one page, the same numbers again, and clear errors.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

fn thc(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thc-studies")).arg("papers").args(arguments).output().unwrap()
}

fn document(arguments: &[&str], out: &Path) -> String {
    let output = thc(&[arguments, &["--quick", "--out", out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(out.join("papers.md")).unwrap()
}

#[test]
fn all_papers_are_on_one_page_and_a_run_that_was_ended_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/folder");
    let text = document(&[], &out);
    for paper in ["thc", "lgreco", "slimgc", "aqgb", "double-quantization", "together"] {
        assert!(text.contains(&format!("\n## {paper}\n")), "{paper}");
    }
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    for name in
        ["thc-claim-1", "lgreco-table-4", "slimgc-figure-14", "aqgb-table-2", "double-quantization-table-1"]
    {
        assert!(
            page.contains(&format!("id=\"{name}\"")) && text.contains(&format!("id=\"{name}\"")),
            "{name}"
        );
    }
    assert!(page.contains("<svg") && out.join("thc-workers.svg").exists());
    // What is gone is made again, and comes to the same, on one core as on all.
    for gone in ["thc-uniform-1-1", "thc-round-1", "double-rates-1"] {
        std::fs::remove_file(out.join(format!("trainings/{gone}.json"))).unwrap();
    }
    assert_eq!(document(&["--jobs", "1"], &out), text);
}

/// A matrix and a bias of a model with two workers, as python/bench/gradients.py writes them.
fn gradients(folder: &Path, size: f32) {
    std::fs::create_dir_all(folder.join("small")).unwrap();
    let index = format!(
        r#"{{"seed": 1, "models": [{{"name": "Small", "folder": "small", "workers": 2, "sha256": "{size}",
            "tensors": [{{"name": "matrix", "shape": [64, 32]}}, {{"name": "bias", "shape": [40]}}]}}]}}"#
    );
    std::fs::write(folder.join("index.json"), index).unwrap();
    for (number, name) in ["seen", "worker-0", "worker-1"].into_iter().enumerate() {
        let value = |i: usize| {
            size * ((i + 9 * number) as f32 * 0.7).sin() * if i.is_multiple_of(64) { 30.0 } else { 1.0 }
        };
        let bytes: Vec<u8> = (0..64 * 32 + 40).flat_map(|i| value(i).to_le_bytes()).collect();
        std::fs::write(folder.join(format!("small/{name}.f32")), bytes).unwrap();
    }
}

#[test]
fn gradients_of_architectures_are_measured_where_they_are_given() {
    let folder = tempfile::tempdir().unwrap();
    let (out, saved) = (folder.path().join("out"), folder.path().join("gradients"));
    let table = ["--paper", "together", "--table", "4"];
    let without = document(&table, &out);
    assert!(without.contains("python/bench/gradients.py") && !without.contains("Small"), "{without}");
    gradients(&saved, 1.0);
    let given = [&table[..], &["--gradients", saved.to_str().unwrap()]].concat();
    let text = document(&given, &out);
    for row in ["Small, QSGD, uniform", "Small, TopK, L-GreCo", "Small, THC, k-means"] {
        assert!(text.contains(row), "{row}: {text}");
    }
    // Other gradients are another measurement; the same ones are not.
    let path = out.join("trainings/layers-chosen-1.json");
    let kept = std::fs::read_to_string(&path).unwrap();
    document(&given, &out);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), kept);
    gradients(&saved, 2.0);
    document(&given, &out);
    assert_ne!(std::fs::read_to_string(&path).unwrap(), kept);
    std::fs::remove_file(saved.join("index.json")).unwrap();
    let output = thc(&given);
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && says.contains("index.json") && says.lines().count() == 1,
        "{says}"
    );
}

#[test]
fn one_figure_the_list_and_what_there_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let text = document(&["--paper", "thc", "--figure", "14"], folder.path());
    assert!(text.contains("thc Figure 14") && !text.contains("Figure 10"), "{text}");
    let claim = document(&["--paper", "thc", "--claim", "1"], folder.path());
    assert!(claim.contains("thc Claim 1") && claim.contains("6320"), "{claim}");
    let list = String::from_utf8(thc(&["--list"]).stdout).unwrap();
    assert!(
        list.contains("Figure 2a")
            && list.contains("computed")
            && list.contains("scaled down")
            && list.lines().count() > 70,
        "{list}"
    );
    for (arguments, says) in [
        (&["--paper", "nobody"][..], "double-quantization (6 figures, 1 tables, 1 claims)"),
        (&["--paper", "thc", "--figure", "99"], "no such paper, figure, table or claim"),
        (&["--figure", "3"], "--paper"),
    ] {
        let output = thc(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(says), "{arguments:?}: {text}");
    }
}
