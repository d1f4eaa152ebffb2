//! `/metrics` is what Prometheus reads.

use crate::aggregator;
use crate::controller::{Controller, NOWHERE, target};
use thc_support::openmetrics::{parse, value};

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
