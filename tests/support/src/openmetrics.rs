//! A strict parser of OpenMetrics text for tests, which panics on text that violates the specification.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

/// A sample's labels, by name.
pub type Labels = BTreeMap<String, String>;

/// A metric family.
#[derive(Debug, Default)]
pub struct Family {
    /// Counter or gauge.
    pub kind: String,
    /// The help text.
    pub help: String,
    /// Labels and values.
    pub samples: Vec<(Labels, f64)>,
}

/// Parses all families by name. Panics with the line that is wrong.
pub fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut ended = false;
    let mut seen = BTreeSet::new();
    assert!(text.ends_with("# EOF\n"), "no # EOF at the end");
    for line in text.lines() {
        assert!(!ended, "after # EOF: {line}");
        if line == "# EOF" {
            ended = true;
        } else if let Some(rest) = line.strip_prefix("# ") {
            let mut parts = rest.splitn(3, ' ');
            let (keyword, name, value) =
                (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
            assert!(is_name(name), "{line}");
            if name != current {
                assert!(!families.contains_key(name), "{name} comes twice, or mixed with others");
                current = name.to_owned();
            }
            let family = families.entry(name.to_owned()).or_default();
            assert!(family.samples.is_empty(), "after samples: {line}");
            match keyword {
                "HELP" => family.help = value.to_owned(),
                "TYPE" => family.kind = value.to_owned(),
                other => panic!("{other}: {line}"),
            }
        } else {
            let (name, labels, value) = sample(line);
            let family = families.get_mut(&current).unwrap_or_else(|| panic!("of no family: {line}"));
            let expected = match family.kind.as_str() {
                "counter" => format!("{current}_total"),
                "gauge" => current.clone(),
                other => panic!("type {other}: {line}"),
            };
            assert_eq!(name, expected, "{line}");
            assert!(seen.insert((name, labels.clone())), "twice: {line}");
            assert!(family.kind != "counter" || value >= 0.0, "{line}");
            family.samples.push((labels, value));
        }
    }
    families
}

/// The value of the first sample that has these labels.
#[must_use]
pub fn value(families: &BTreeMap<String, Family>, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let has = |of: &Labels, (label, value): &(&str, &str)| of.get(*label).is_some_and(|has| has == value);
    let samples = &families.get(name)?.samples;
    samples.iter().find(|(of, _)| labels.iter().all(|label| has(of, label))).map(|(_, value)| *value)
}

/// The names of all samples, those of counters with their `_total`.
#[must_use]
pub fn names(families: &BTreeMap<String, Family>) -> BTreeSet<String> {
    let named = |(name, family): (&String, &Family)| match family.kind.as_str() {
        "counter" => format!("{name}_total"),
        _ => name.clone(),
    };
    families.iter().map(named).collect()
}

/// The sum of all samples that have these labels.
#[must_use]
pub fn sum(families: &BTreeMap<String, Family>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |of: &Labels, (label, value): &(&str, &str)| of.get(*label).is_some_and(|has| has == value);
    let samples = families.get(name).map(|family| family.samples.iter()).into_iter().flatten();
    samples.filter(|(of, _)| labels.iter().all(|label| has(of, label))).map(|(_, value)| value).sum()
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn sample(line: &str) -> (String, Labels, f64) {
    let at = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, mut rest) = line.split_at(at);
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            rest = rest.trim_start_matches(',');
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("label: {line}"));
            assert!(is_name(label), "{line}");
            let mut value = String::new();
            let mut chars = after.char_indices();
            rest = loop {
                match chars.next().unwrap_or_else(|| panic!("no end: {line}")) {
                    (place, '"') => break &after[place + 1..],
                    (_, '\\') => value.push(match chars.next() {
                        Some((_, 'n')) => '\n',
                        Some((_, c @ ('"' | '\\'))) => c,
                        other => panic!("escape {other:?}: {line}"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "label twice: {line}");
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no value: {line}"));
    (name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("value: {line}")))
}

#[test]
fn it_reads_what_is_right_and_refuses_the_rest() {
    let text = "# HELP a_b What.\n# TYPE a_b counter\na_b_total{x=\"1\",y=\"q\\\"\\\\\"} 3\n# EOF\n";
    let families = parse(text);
    assert_eq!(families["a_b"].samples[0].0["y"], "q\"\\");
    for wrong in [
        "# TYPE a counter\na 3\n# EOF\n",
        "# TYPE a gauge\na 3\na 4\n# EOF\n",
        "# TYPE a gauge\nb 3\n# EOF\n",
        "# TYPE a gauge\na{x=\"1} 3\n# EOF\n",
        "# TYPE a gauge\na 3\n",
        "a 3\n# EOF\n",
    ] {
        assert!(std::panic::catch_unwind(|| parse(wrong)).is_err(), "{wrong}");
    }
}
