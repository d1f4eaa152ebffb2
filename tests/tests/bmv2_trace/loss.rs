//! Packets that BMv2 loses between two passes (docs/switch.md, "A packet lost between passes").

use super::Readings;
use super::compare::passes;
use super::rows;
use super::switch::Switch;
use fastrand::Rng;
use std::time::{Duration, Instant};
use thc_protocol::aggregator::Level;
use thc_tests::traffic::frame::ethernet;
use thc_tests::traffic::loss;
use thc_tests::traffic::plant::{Frames, OWN_MAC, PORTS};

/// Everything that comes out until nothing has come for a while.
fn settle(switch: &mut Switch) -> Frames {
    let mut got = Frames::new();
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(150) {
        for (port, frames) in switch.take() {
            if !frames.is_empty() {
                last = Instant::now();
            }
            got.entry(port).or_default().extend(frames);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    got
}

#[test]
fn a_packet_lost_between_passes_makes_no_wrong_sum() {
    let mut switch = match Switch::start(&PORTS) {
        Ok(switch) => switch,
        Err(reason) => {
            println!("not run: {reason}");
            return;
        }
    };
    let plant = loss::plant();
    rows::fresh(&plant, &switch, &[]);
    rows::write(&plant, &switch);
    // Slower than ingress, and almost no room: most bursts lose packets between passes.
    let narrow: Vec<String> = (400..403)
        .flat_map(|port| [format!("set_queue_depth 3 {port}"), format!("set_queue_rate 1500 {port}")])
        .collect();
    switch.commands(&narrow);

    let seed = super::number("THC_BMV2_SEED", 4);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let mut whole = 0;
    let (sent, results) = loss::rounds(&mut random, &plant, 4 * super::WORDS, |packets| {
        for (port, frame, header) in packets {
            switch.send(port, &frame);
            whole += passes(header.kind, header.table, &plant.tables, Level::Only) as u64 - 1;
        }
        switch.push(&ethernet(OWN_MAC, [2; 6], 0x88B6));
        settle(&mut switch)
    });
    let cells: Vec<(&str, usize)> =
        plant.jobs.iter().map(|job| ("answers", usize::from(job.index) << 2 | 3)).collect();
    let made: u64 = switch.counters(&cells).iter().map(|(packets, _)| packets).sum();
    println!("{sent} packets, {made} recirculations of {whole} without loss, {results} results");
    assert!(made < whole, "seed {seed}: nothing was lost, so nothing was tested");
}
