//! `/metrics` is what Prometheus reads, and the dashboard asks for nothing else.

use crate::aggregator;
use crate::controller::{Controller, NOWHERE, target};
use std::collections::BTreeSet;
use thc_support::openmetrics::{names, parse, value};

#[test]
fn metrics_are_well_formed_and_true() {
    let server = aggregator::start();
    let config = aggregator::target_section(&server, "ps1") + &target("away", NOWHERE, 9000);
    let controller = Controller::start(&config);
    controller
        .wait_until("connected", |controller| controller.ask_done(&["target", "list"]).contains("connected"));
    let refused = controller.ask(&["job", "create", "both", "--workers", "2"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    controller.ask_done(&["job", "create", "train", "--workers", "2", "--target", "ps1", "--cookie", "99"]);
    let workers = [0, 1].map(|_| aggregator::Averager::join(controller.listen, "train"));
    let of_worker = [("thc_job", "train"), ("target", "ps1"), ("worker", "1")];
    controller.wait_until("counted", |controller| {
        let families = parse(&controller.get("/metrics").1);
        value(&families, "thc_packets", &of_worker).is_some_and(|packets| packets > 100.0)
    });
    let (head, text) = controller.get("/metrics");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    let families = parse(&text);
    for (name, family) in &families {
        assert!(name.starts_with("thc_") && !family.help.is_empty(), "{name}: {family:?}");
    }
    assert_eq!(value(&families, "thc_target_up", &[("target", "ps1")]), Some(1.0));
    assert_eq!(value(&families, "thc_target_up", &[("target", "away")]), Some(0.0));
    assert_eq!(value(&families, "thc_jobs", &[]), Some(1.0));
    assert_eq!(value(&families, "thc_job_running", &[("thc_job", "train")]), Some(1.0));
    assert_eq!(value(&families, "thc_job_workers_joined", &[("thc_job", "train")]), Some(2.0));
    assert!(value(&families, "thc_bytes", &of_worker) > value(&families, "thc_packets", &of_worker));
    assert!(value(&families, "thc_results", &[("thc_job", "train")]) > Some(50.0));
    drop(workers);
}

/// The one label that looks like a metric.
const LABEL: &str = "thc_job";

/// Everything in the dashboard that looks like a metric of ours.
fn asked_for(value: &serde_json::Value, names: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) => map.iter().for_each(|(key, value)| match value.as_str() {
            Some(text) if ["expr", "query", "definition"].contains(&key.as_str()) => {
                let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                let ours = words.filter(|word| word.starts_with("thc_") && *word != LABEL);
                names.extend(ours.map(str::to_owned));
            }
            _ => asked_for(value, names),
        }),
        serde_json::Value::Array(list) => list.iter().for_each(|value| asked_for(value, names)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_are_there() {
    let controller = Controller::start(&target("away", NOWHERE, 9000));
    let families = parse(&controller.get("/metrics").1);
    let there = names(&families);
    let text = include_str!("../../../../packaging/grafana/thc.json");
    let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut asked = BTreeSet::new();
    asked_for(&dashboard, &mut asked);
    assert!(asked.len() > 8, "{asked:?}");
    let missing: Vec<&String> = asked.difference(&there).collect();
    assert!(missing.is_empty(), "{missing:?} are not among {there:?}");
}
