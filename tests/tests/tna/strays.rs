//! Packets that look as if they came back from a pass, from ports that none come back by; and a host's packets on a port that they
//! do come back by. Neither gets anywhere.

use super::{CASES, Case, Site, trace};
use fastrand::Rng;
use std::collections::BTreeSet;
use thc_protocol::wire::Kind;
use thc_tests::p4::Order;
use thc_tests::traffic::plant::PORTS;
use thc_tests::traffic::random;

/// Where a packet between two passes has its round: behind trip_h.
const ROUND: std::ops::Range<usize> = 52..56;
/// Where a frame to the aggregator has its kind.
const KIND: usize = 43;
/// A port that nobody is behind.
const UNUSED: u16 = 300;
/// The index of `carrier` under which they are counted.
const CARRIER: usize = 13;

/// Has a packet come in that must be dropped and counted: what it did otherwise.
fn expect_drop(site: &mut Site, port: u16, frame: &[u8]) -> Result<(), String> {
    let gone = |site: &Site| site.chip.counter_value("Ingress.carrier", CARRIER).0 + site.chip.short.0;
    let (before, passes) = (gone(site), site.chip.passes);
    site.chip.send(port, frame);
    site.chip.run(Order::First);
    let (out, counted) = (std::mem::take(&mut site.chip.out), gone(site) - before);
    if out.is_empty() && counted == 1 && site.chip.passes == passes {
        return Ok(());
    }
    let head = &frame[..frame.len().min(60)];
    Err(format!(
        "port {port}, {head:02x?}: counted {counted} times, {} passes, {out:02x?}",
        site.chip.passes - passes
    ))
}

/// How many were sent and did nothing; or what one did.
pub fn strays(case: Case, program: &str) -> Result<usize, String> {
    let mut random = Rng::with_seed(4);
    let plant = trace::plant(case);
    let stations = trace::stations(&plant);
    let mut site = Site::new(case, program, &stations, 4);
    site.configure(&plant);
    site.chip.back = Some(Vec::new());
    let mut frames = Vec::new();
    for packet in 0..300 {
        let step = random::step(&mut random, &plant, &stations, packet / 45);
        site.exchange(step.port, &step.frame);
        frames.push(step.frame);
    }
    // Some of each sort of what came back: its kind, pass, what it asks for.
    let mut back = site.chip.back.take().unwrap_or_default();
    random.shuffle(&mut back);
    let mut sorts = BTreeSet::new();
    back.retain(|(_, frame)| sorts.insert((frame[0], frame[1], frame[41])));
    assert!(back.len() > 30, "{}", back.len());

    let holds = |site: &Site| {
        let (registers, mut counters) = site.chip.holds();
        counters.get_mut("Ingress.carrier").unwrap()[CARRIER] = (0, 0);
        (registers, counters)
    };
    let before = holds(&site);
    let mut sent = 0;
    let next = |frame: &[u8]| {
        let mut frame = frame.to_vec();
        let round = u32::from_be_bytes(frame[ROUND].try_into().unwrap());
        frame[ROUND].copy_from_slice(&round.wrapping_add(1).to_be_bytes());
        frame
    };
    for (_, frame) in &back {
        for port in PORTS.into_iter().chain([UNUSED]) {
            expect_drop(&mut site, port, frame)?;
            expect_drop(&mut site, port, &next(frame))?;
            sent += 2;
        }
    }
    // Those to the aggregator also as if they were for the control plane.
    let joins = frames.clone().into_iter().filter(|frame| frame.len() > KIND).map(|mut frame| {
        frame[KIND] = Kind::Join as u8;
        frame
    });
    for frame in frames.iter().cloned().chain(joins) {
        for &port in case.pass_ports {
            expect_drop(&mut site, port, &frame)?;
            sent += 1;
        }
    }
    if holds(&site) != before {
        return Err("a cell or another counter has changed".to_owned());
    }
    // They are what they look like: from their own ports they would have been believed.
    for (port, frame) in &back {
        site.chip.send(*port, &next(frame));
    }
    site.chip.run(Order::First);
    assert_ne!(holds(&site), before);
    Ok(sent)
}

#[test]
fn nobody_else_gets_into_a_pass() {
    for case in CASES {
        let sent = strays(case, &case.program()).unwrap_or_else(|what| panic!("{case:?}: {what}"));
        println!("{case:?}: {sent} packets");
    }
}
