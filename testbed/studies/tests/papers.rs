//! `thc papers` as users call it: the same numbers again, and clear errors.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn thc(gradients: &Path, out: &Path) -> Output {
    let mut thc = Command::new(env!("CARGO_BIN_EXE_thc-studies"));
    thc.args(["papers", "--quick", "--gradients"]).arg(gradients).arg("--out").arg(out).output().unwrap()
}

/// A matrix and a bias of a model with two workers, as testbed/bench-torch/gradients.py writes them.
fn gradients(folder: &Path) {
    std::fs::create_dir_all(folder.join("small")).unwrap();
    let index = r#"{"seed": 1, "models": [{"name": "Small", "folder": "small", "workers": 2,
            "tensors": [{"name": "matrix", "shape": [64, 32]}, {"name": "bias", "shape": [40]}]}]}"#;
    std::fs::write(folder.join("index.json"), index).unwrap();
    for (number, name) in ["seen", "worker-0", "worker-1"].into_iter().enumerate() {
        let value =
            |i: usize| ((i + 9 * number) as f32 * 0.7).sin() * if i.is_multiple_of(64) { 30.0 } else { 1.0 };
        let bytes: Vec<u8> = (0..64 * 32 + 40).flat_map(|i| value(i).to_le_bytes()).collect();
        std::fs::write(folder.join(format!("small/{name}.f32")), bytes).unwrap();
    }
}

#[test]
fn gradients_are_measured_and_the_numbers_are_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    let (out, saved) = (folder.path().join("new/folder"), folder.path().join("gradients"));
    gradients(&saved);
    let measure = || -> Value {
        let output = thc(&saved, &out);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(&std::fs::read_to_string(out.join("gradients.json")).unwrap()).unwrap()
    };
    let numbers = measure();
    for row in ["Small, QSGD, uniform", "Small, TopK, L-GreCo"] {
        assert!(numbers["choices"][row]["NMSE"].is_number(), "{row}: {numbers}");
    }
    let errors = &numbers["errors"]["Small, each tensor by itself"];
    assert!(errors["THC"].as_f64() < errors["TopK 1/10"].as_f64(), "{errors}");
    assert!(out.join("aqgb.json").is_file() && out.join("nmse.json").is_file());
    let text = std::fs::read_to_string(out.join("double_quantization.json")).unwrap();
    let methods = &serde_json::from_str::<Value>(&text).unwrap()["methods"];
    // 8 bits each way in the place of 32 are by the paper's count 4 times fewer, but for flags and scales.
    let fewer = |name: &str| methods[name]["times fewer bits"].as_f64().unwrap();
    assert!(fewer("AsyLPG") > 2.5 && fewer("Sparse-AsyLPG") > fewer("AsyLPG"), "{methods}");
    assert_eq!(measure(), numbers);

    std::fs::remove_file(saved.join("index.json")).unwrap();
    let output = thc(&saved, &out);
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && says.contains("index.json") && says.lines().count() == 1,
        "{says}"
    );
}

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// All numbers at the end of `path`: keys of objects, in which a leading `*` stands for any beginning.
fn numbers(value: &Value, path: &[&str], found: &mut Vec<f64>) {
    let Some((key, rest)) = path.split_first() else {
        found.extend(value.as_f64());
        return;
    };
    for (name, inner) in value.as_object().into_iter().flatten() {
        let fits = key.strip_prefix('*').map_or(name == key, |end| name.ends_with(end));
        if fits {
            numbers(inner, rest, found);
        }
    }
}

/// What a reference on the page stands for: `FILE;KEY;…`, or the least or largest of several: `min;FILE;KEY;…`.
fn referenced(reference: &str) -> f64 {
    let (pick, path): (fn(f64, f64) -> f64, &str) = match reference.split_once(';') {
        Some(("min", rest)) => (f64::min, rest),
        Some(("max", rest)) => (f64::max, rest),
        _ => (|_, _| f64::NAN, reference),
    };
    let (file, keys) = path.split_once(';').unwrap();
    let text = std::fs::read_to_string(format!("{DOCS}/papers/{file}.json")).unwrap();
    let mut found = Vec::new();
    let keys: Vec<&str> = keys.split(';').collect();
    numbers(&serde_json::from_str(&text).unwrap(), &keys, &mut found);
    found.into_iter().reduce(pick).unwrap_or_else(|| panic!("{reference}: no such number"))
}

/// The pages of docs to which a cell links.
fn linked_pages(cell: &str) -> impl Iterator<Item = String> {
    let targets = cell.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    targets.map(|page| std::fs::read_to_string(format!("{DOCS}/{page}")).unwrap())
}

/// Every decimal number in a column "ours", or of what the default gains, is followed by its reference and is that number rounded,
/// or is on a page to which its cell links.
fn check(page: &str) -> Result<usize, String> {
    let (mut checked, mut column) = (0, None);
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').collect();
        if let Some(at) =
            cells.iter().position(|cell| matches!(cell.trim(), "ours" | "what the default gains"))
        {
            column = Some(at);
        } else if !line.starts_with('|') {
            column = None;
        } else if let Some(cell) = column.and_then(|at| cells.get(at)) {
            let mut rest = *cell;
            while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
                let end =
                    rest[at..].find(|c: char| !c.is_ascii_digit() && c != '.').map_or(rest.len(), |n| at + n);
                let sign = if rest[..at].ends_with('−') { "-" } else { "" };
                let number = format!("{sign}{}", rest[at..end].trim_end_matches('.'));
                let after = &rest[end..];
                rest = after;
                if let Some((reference, after)) =
                    after.strip_prefix("<!--").and_then(|text| text.split_once("-->"))
                {
                    let digits = number.split_once('.').map_or(0, |(_, digits)| digits.len());
                    let found = format!("{:.digits$}", referenced(reference));
                    if found != number {
                        return Err(format!("{reference} is {found}, and the page has {number}"));
                    }
                    checked += 1;
                    rest = after;
                } else if number.contains('.') && !linked_pages(cell).any(|page| page.contains(&number)) {
                    return Err(format!("{number} has no reference, and no page that has it: {cell}"));
                }
            }
        }
    }
    Ok(checked)
}

#[test]
fn the_page_has_the_numbers_of_the_files() {
    let page = std::fs::read_to_string(format!("{DOCS}/papers.md")).unwrap();
    let checked = check(&page).unwrap();
    assert!(checked > 40, "{checked}");
    let reference = "<!--nmse;granularity;b = 2;g = 30-->";
    let wrong = [
        (reference, format!("9{reference}")),
        (reference, String::new()),
        ("21.5 instead of 25.9 ms", "21.5 instead of 25.97 ms".to_owned()),
    ];
    for (right, wrong) in wrong {
        let other = page.replacen(right, &wrong, 1);
        assert!(other != page && check(&other).is_err(), "{wrong}");
    }
}
