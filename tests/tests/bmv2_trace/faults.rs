//! The order of P7's checks, which the program asks one after the other (that for Tofino finds it in a table: tests/tests/tna):
//! packets with every set of faults.

use super::Readings;
use super::switch::Switch;
use super::{compare, rows};
use std::time::{Duration, Instant};
use thc_protocol::aggregator::{Endpoint, Outcome};
use thc_protocol::wire::Kind;
use thc_tests::traffic::faults::{FAULTS, packet};
use thc_tests::traffic::plant::{PORTS, Plant};
use thc_tests::traffic::{config, jobs, tables};

#[test]
fn checks_are_in_the_order_of_p7() {
    let mut switch = match Switch::start(&PORTS) {
        Ok(switch) => switch,
        Err(reason) => {
            println!("not run: {reason}");
            return;
        }
    };
    let mut plant = Plant::new(&[Kind::Leave]);
    plant.jobs = jobs();
    plant.jobs.truncate(1);
    plant.jobs[0].config = config(1, 4, 4, (8, 4), &[3]);
    plant.tables = tables();
    plant.configure_model();
    rows::fresh(&plant, &switch, &[]);
    rows::write(&plant, &switch);
    let mut dropped = 0;
    for kind in [Kind::Norm, Kind::Data, Kind::Raw] {
        for faults in 1..1 << FAULTS {
            let (port, datagram) = packet(&plant.jobs[0], kind, faults);
            let frame = datagram.frame();
            switch.send(port, &frame);
            let from = Endpoint { ingress: port, addr: datagram.from.1 };
            dropped +=
                u64::from(matches!(plant.handle(from, &datagram.payload, &frame), Outcome::Dropped(_)));
        }
    }
    switch.push(&thc_tests::traffic::frame::ethernet([2, 0xAA, 0, 0, 0, 1], [2; 6], 0x88B6));
    // All are counted when they have been through.
    let counted = |switch: &Switch| -> u64 {
        let carrier: Vec<(&str, usize)> = (0..4).map(|reason| ("carrier", reason)).collect();
        let of_job: Vec<(&str, usize)> = [0, 64]
            .into_iter()
            .flat_map(|worker| (0..13).map(move |reason| ("drops", worker << 4 | reason)))
            .collect();
        switch.counters(&[carrier, of_job].concat()).iter().map(|(packets, _)| packets).sum()
    };
    let begin = Instant::now();
    while counted(&switch) < dropped && begin.elapsed() < thc_tests::HANG / 10 {
        std::thread::sleep(Duration::from_millis(100));
    }
    compare::counters(4, &plant, &switch, 0);
}
