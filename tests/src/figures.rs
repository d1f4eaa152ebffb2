//! Results of a program that measures, in the form of docs/measuring.md.

use crate::built_in;
use serde_json::json;

/// One result.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What over what.
    pub name: String,
    /// The result.
    pub ratio: f64,
    /// Whether a lower one is better, or a higher one.
    pub lower_is_better: bool,
    /// What the project wants to reach.
    pub aim: f64,
    /// Beyond it something is broken.
    pub floor: f64,
    /// Absolute figures and circumstances.
    pub detail: String,
}

/// Prints results, and writes them to `bench/<topic>.json` in the target directory.
pub fn write(topic: &str, figures: &[Figure]) {
    let value = |figure: &Figure| {
        json!({
            "name": figure.name,
            "ratio": figure.ratio,
            "better": if figure.lower_is_better { "lower" } else { "higher" },
            "aim": figure.aim,
            "floor": figure.floor,
            "detail": figure.detail,
        })
    };
    for figure in figures {
        println!("{}: {:.3} (aim {}); {}", figure.name, figure.ratio, figure.aim, figure.detail);
    }
    let folder = built_in().with_file_name("bench");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{topic}.json"));
    let results: Vec<_> = figures.iter().map(value).collect();
    std::fs::write(&file, serde_json::to_string_pretty(&results).unwrap()).unwrap();
    println!("written to {}", file.display());
}
