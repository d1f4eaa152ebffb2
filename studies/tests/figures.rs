//! `thc figures` as users call it: files, numbers against theory, and what the paper says of them.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use thc_codec::table::LookupTable;
use thc_demo::demo::gradient_file;

fn thc(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thc-studies")).arg("figures").args(arguments).output().unwrap()
}

fn write_figures(arguments: &[&str], out: &Path) -> String {
    let output = thc(&[arguments, &["--quick", "--out", out.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {pointer}"))
}

/// Gradients of 2 steps of 4 workers, as the demo saves them: some coordinates much larger than others.
fn save_gradients(folder: &Path) {
    for step in [0, 7] {
        for worker in 0..4_u8 {
            let value = |i: u32| {
                let x = f64::from(i * (u32::from(worker) + 3) + step);
                ((x * 0.7).sin() * (4.0 * (f64::from(i) * 0.11).cos()).exp()) as f32
            };
            let gradient: Vec<f32> = (0..3000).map(value).collect();
            gradient_file::write(&gradient_file::worker_path(folder, step, worker), &gradient).unwrap();
        }
    }
}

#[test]
fn figures_numbers_and_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let gradients = folder.path().join("gradients");
    std::fs::create_dir(&gradients).unwrap();
    save_gradients(&gradients);
    let out = folder.path().join("new/folder");
    let text = write_figures(&["--gradients", gradients.to_str().unwrap(), "--seed", "3"], &out);
    assert!(text.contains("TernGrad") && text.contains("index.html"), "{text}");

    // Every picture is a document of its own with axes, and is on the page; the page needs nothing else.
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    let names = [
        "nmse-schemes",
        "nmse-distributions",
        "nmse-workers-copies",
        "nmse-workers-independent",
        "nmse-workers-saved-copies",
        "nmse-workers-saved",
        "nmse-granularity",
    ];
    for name in names {
        let svg = std::fs::read_to_string(out.join(format!("{name}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("xmlns") && svg.contains("NMSE"), "{name}");
        assert!(page.contains(&svg), "{name}");
    }
    assert_eq!(page.matches("<svg").count(), names.len());
    for reference in ["src=", "href=\"http", "url(", "@import", "<script"] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(page.contains("thc figures all --seed 3 --gradients DIR --quick"), "how to reproduce");

    schemes(&json(&out.join("nmse-schemes.json")));
    workers(&json(&out.join("nmse-workers.json")));
    granularity(&json(&out.join("nmse-granularity.json")));
    distributions(&json(&out.join("nmse-distributions.json")));

    // The same seed gives the same numbers, however many threads there are; another one others.
    let again = folder.path().join("again");
    write_figures(&["nmse", "--seed", "3"], &again);
    assert!(!again.join("index.html").exists());
    let points = |folder: &Path| json(&folder.join("nmse-granularity.json"))["points"].clone();
    let drawn = |folder: &Path| json(&folder.join("nmse-workers.json"))["copies"].clone();
    assert_eq!((points(&out), drawn(&out)), (points(&again), drawn(&again)));
    let other = folder.path().join("other");
    write_figures(&["nmse", "--seed", "4"], &other);
    assert_ne!(points(&out), points(&other));
}

/// The scheme of this label.
fn scheme<'a>(schemes: &'a Value, label: &str) -> &'a Value {
    schemes.as_array().unwrap().iter().find(|s| s["label"] == label).unwrap_or_else(|| panic!("{label}"))
}

fn schemes(found: &Value) {
    assert_eq!((&found["workers"], &found["seed"]), (&4.into(), &3.into()));
    assert_eq!(found["saved_steps"], serde_json::json!([0, 7]));
    assert_eq!(found["command"], "thc figures all --seed 3 --gradients DIR --quick");
    let schemes = &found["schemes"];
    let nmse = |label, column| number(scheme(schemes, label), &format!("/{column}/nmse/mean"));
    // THC with the paper's table: quantization error / n + truncation error.
    let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
    let theory = table.quantization_error() / 4.0 + table.truncation_error();
    let thc = nmse("THC, g = 30, p = 1/32", "copies");
    assert!((thc / theory - 1.0).abs() < 0.1, "{thc} {theory}");
    assert!(nmse("THC, table chosen for n", "copies") < thc);
    assert!(nmse("no compression", "independent") < 1e-12);
    // What the paper's Fig. 2b is about: TernGrad far above TopK, and THC far below both.
    let (tern, top) = (nmse("TernGrad", "copies"), nmse("TopK 10 %", "copies"));
    assert!(tern > 4.0 * top && top > 10.0 * thc, "{tern} {top} {thc}");
    assert_eq!(number(scheme(schemes, "TernGrad"), "/published"), 6.95);
    assert_eq!(number(scheme(schemes, "TopK 10 %"), "/published"), 0.46);
    // In one round DGC is TopK; error feedback helps over many rounds where there is some.
    assert_eq!(nmse("DGC 10 %", "copies"), top);
    assert!(scheme(schemes, "DGC 10 %")["copies_many_rounds"].is_null());
    for (label, helped) in [("TopK 10 %", true), ("1-bit SGD", true), ("signSGD, majority", false)] {
        let ratio = nmse(label, "copies_many_rounds") / nmse(label, "copies");
        assert_eq!(ratio < 0.5, helped, "{label}: {ratio}");
    }
    for key in ["saved", "saved_copies"] {
        assert!(nmse("TopK 10 %", key) > 0.0 && nmse("THC, g = 30, p = 1/32", key) < 0.1);
    }
    let bits = scheme(schemes, "TernGrad");
    assert!((number(bits, "/copies/bits_up") - 2.0).abs() < 0.01);
    assert!((number(bits, "/copies/bits_down") - 4.0).abs() < 0.01);
}

fn workers(found: &Value) {
    let curve = |panel: &str, label: &str| -> Vec<(u64, f64)> {
        let points = scheme(&found[panel]["schemes"], label)["points"].as_array().unwrap();
        points.iter().map(|p| (p["workers"].as_u64().unwrap(), number(p, "/measured/nmse/mean"))).collect()
    };
    let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
    for (n, nmse) in curve("copies", "THC, g = 30, p = 1/32") {
        let theory = table.quantization_error() / n as f64 + table.truncation_error();
        // Few of 2^14 coordinates are truncated, the same ones by all workers.
        assert!((nmse / theory - 1.0).abs() < 0.2, "{n}: {nmse} {theory}");
    }
    // The error of THC falls with the number of workers, that of TopK does not.
    for panel in ["copies", "independent"] {
        let falls = |label: &str| curve(panel, label).windows(2).all(|w| w[1].1 < w[0].1);
        assert!(falls("THC, g = 30, p = 1/32") && falls("THC, table chosen for n"), "{panel}");
        assert!(falls("TernGrad") && falls("uniform THC, RHT"), "{panel}");
    }
    let top = curve("copies", "TopK 10 %");
    assert_eq!(top.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 4, 16]);
    assert!(top.windows(2).all(|w| (w[1].1 / w[0].1 - 1.0).abs() < 1e-5), "{top:?}");
    let top = curve("independent", "TopK 10 %");
    assert!(top.windows(2).all(|w| w[1].1 > w[0].1), "{top:?}");
    // Independent coins alone: 1/n.
    for label in ["TernGrad", "uniform THC, RHT", "uniform THC, no RHT"] {
        let curve = curve("copies", label);
        let ratio = 16.0 * curve[2].1 / curve[0].1;
        assert!((ratio - 1.0).abs() < 0.15, "{label}: {ratio}");
    }
    let saved: Vec<u64> = curve("saved", "TopK 10 %").iter().map(|(n, _)| *n).collect();
    assert_eq!(saved, [1, 4]);
}

fn granularity(found: &Value) {
    assert_eq!((&found["workers"], &found["trials"]), (&10.into(), &2.into()));
    assert_eq!(number(found, "/fraction"), 1.0 / 1024.0);
    let points = found["points"].as_array().unwrap();
    for point in points {
        let theory = number(point, "/quantization_error") / 10.0 + number(point, "/truncation_error");
        assert!((number(point, "/theory") / theory - 1.0).abs() < 1e-9, "{point}");
        assert!((number(point, "/nmse") / theory - 1.0).abs() < 0.09, "{point}");
    }
    let nmse = |bits: u64, granularity: u64| {
        let point = points.iter().find(|p| p["bits"] == bits && p["granularity"] == granularity);
        number(point.unwrap(), "/nmse")
    };
    // One more bit: “almost an order of magnitude” in the paper; 4 to 7 here.
    for granularity in [15, 30, 45, 60] {
        for bits in [2, 3] {
            let ratio = nmse(bits, granularity) / nmse(bits + 1, granularity);
            assert!((3.3..8.0).contains(&ratio), "b = {bits}, g = {granularity}: {ratio}");
        }
    }
    // Error falls from the least granularity on.
    for (bits, least) in [(2, 3), (3, 7), (4, 15)] {
        assert!(nmse(bits, 60) < 0.85 * nmse(bits, least));
    }
}

fn distributions(found: &Value) {
    assert_eq!(number(found, "/published/tern_grad"), 6.95);
    assert_eq!(found["saved"].as_array().unwrap().len(), 2);
    let points = found["points"].as_array().unwrap();
    // The share of e^(2N) in its largest tenth is Φ(2 − 1.2816).
    let lognormal = points.iter().find(|p| p["family"] == "log-normal, σ" && p["parameter"] == 1.0).unwrap();
    assert!((number(lognormal, "/top_k/mean") - 0.236).abs() < 0.03);
}

#[test]
fn wrong_arguments_are_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    let missing = folder.path().join("missing");
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (arguments, status, expected) in [
        (&["--trials", "0"][..], 2, "--trials"),
        (&["--dimension", "100"], 2, "--dimension"),
        (&["frob"], 2, "frob"),
        (&["--gradients", empty], 1, "thc demo --save-gradients"),
        (&["nmse", "--quick", "--gradients", missing.to_str().unwrap()], 1, "missing"),
        (&["--quick", "--out", file.to_str().unwrap()], 1, "file"),
    ] {
        let output = thc(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{arguments:?}: {errors}");
        assert!(errors.starts_with("thc: ") && errors.contains(expected), "{arguments:?}: {errors}");
    }
    let help = thc(&["--help"]);
    assert!(String::from_utf8(help.stdout).unwrap().contains("Examples:"));
}
