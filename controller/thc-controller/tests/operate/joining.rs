//! Joining by a job's name, from wherever a program stands.

use crate::aggregator;
use crate::controller::Controller;
use thc_worker::{Group, GroupConfig};

fn join(controller: &Controller, job: &str) -> Group {
    let url = format!("thc://{}/{job}", controller.listen).parse().unwrap();
    let asked = Some(thc_worker::Controller::new(url));
    Group::join(GroupConfig { controller: asked, ..GroupConfig::default() }).unwrap()
}

/// More workers than lanes of 8 bits have room for, with the default of 4 bits, get lanes of 16.
#[test]
fn eighteen_workers_average_with_four_bits() {
    let server = aggregator::start();
    let controller = Controller::start(&aggregator::target_section(&server, "ps1"));
    controller.until_connected();
    let refused = controller.ask(&["job", "create", "wide", "--workers", "18", "--lane", "8"]);
    assert!(refused.code == Some(2) && refused.err.contains("use lane = 16"), "{refused:?}");
    controller.ask_done(&["job", "create", "wide", "--workers", "18"]);
    std::thread::scope(|scope| {
        for _ in 0..18 {
            scope.spawn(|| {
                let group = join(&controller, "wide");
                let mut data = vec![1.0; 5000];
                group.allreduce(&mut data).unwrap();
                let mean = data.iter().sum::<f32>() / data.len() as f32;
                assert!((mean - 1.0).abs() < 0.1, "{mean}");
            });
        }
    });
}

#[tokio::test]
async fn a_worker_joins_from_inside_a_runtime() {
    let server = aggregator::start();
    let controller = Controller::start(&aggregator::target_section(&server, "ps1"));
    controller.until_connected();
    controller.ask_done(&["job", "create", "alone", "--workers", "1", "--number", "7"]);
    let group = join(&controller, "alone");
    assert_eq!((group.job(), group.worker()), (7, 0));
    let mut data = vec![1.0; 5000];
    group.allreduce(&mut data).unwrap();
    let mean = data.iter().sum::<f32>() / data.len() as f32;
    assert!((mean - 1.0).abs() < 0.1, "{mean}");
    // And joins anew, which asks the controller again.
    group.rejoin().unwrap();
    group.allreduce(&mut data).unwrap();
}
