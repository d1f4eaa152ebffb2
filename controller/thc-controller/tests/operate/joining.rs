//! Joining by a job's name, from wherever a program stands.

use crate::aggregator;
use crate::controller::Controller;
use thc_worker::{Group, GroupConfig};

#[tokio::test]
async fn a_worker_joins_from_inside_a_runtime() {
    let server = aggregator::start();
    let controller = Controller::start(&aggregator::target_section(&server, "ps1"));
    controller.until_connected();
    controller.ask_done(&["job", "create", "alone", "--workers", "1", "--number", "7"]);
    let url = format!("thc://{}/alone", controller.listen).parse().unwrap();
    let asked = Some(thc_worker::Controller::new(url));
    let group = Group::join(GroupConfig { controller: asked, ..GroupConfig::default() }).unwrap();
    assert_eq!((group.job(), group.worker()), (7, 0));
    let mut data = vec![1.0; 5000];
    group.allreduce(&mut data).unwrap();
    let mean = data.iter().sum::<f32>() / data.len() as f32;
    assert!((mean - 1.0).abs() < 0.1, "{mean}");
    // And joins anew, which asks the controller again.
    group.rejoin().unwrap();
    group.allreduce(&mut data).unwrap();
}
