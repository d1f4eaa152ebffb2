//! Random traffic, as BMv2 and the programs for Tofino have it.

use super::{SEED, Site, name_of};
use crate::bmv2_trace::compare;
use crate::tna::{describe_difference, trace::stations};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use thc_protocol::aggregator::{DropReason, Endpoint};
use thc_protocol::wire::Kind;
use thc_tests::traffic::plant::{CONTROL_PORT, PORTS, Plant};
use thc_tests::traffic::random::{self, Meaning};
use thc_tests::traffic::{change, jobs, tables};

const PACKETS: usize = 6000;
/// Packets between two changes of the configuration.
const SEGMENT: usize = 200;

#[test]
fn program_and_model_are_equal() {
    let mut random = Rng::with_seed(SEED);
    let mut plant = Plant::new(&[Kind::Join, Kind::Leave]);
    (plant.jobs, plant.tables) = (jobs(), tables());
    let mut stations = stations(&plant);
    stations.push(([0x02, 0xBB, 0, 0, 0, 7], 3));
    let mut site = Site::new(&stations);
    plant.configure_model();
    site.configure(&plant);
    let (mut outcomes, mut malformed, mut frames) = (BTreeMap::<&str, usize>::new(), 0, 0);
    for packet in 0..PACKETS {
        if packet > 0 && packet % SEGMENT == 0 {
            change(&mut random, &mut plant);
            plant.configure_model();
            site.configure(&plant);
        }
        let step = random::step(&mut random, &plant, &stations, packet as u32 / 90);
        let mut put = |port: u16, frame: Vec<u8>| plant.out.entry(port).or_default().push(frame);
        let outcome = match step.meaning {
            Meaning::Packet(bytes) => {
                let ip: [u8; 4] = step.frame[26..30].try_into().unwrap();
                let udp = u16::from_be_bytes([step.frame[34], step.frame[35]]);
                let from = Endpoint { ingress: step.port, addr: SocketAddr::from((ip, udp)) };
                name_of(plant.handle(from, &bytes, &step.frame))
            }
            Meaning::Malformed => {
                malformed += 1;
                "malformed"
            }
            Meaning::Forwarded(port) => {
                put(port, step.frame.clone());
                "forwarded"
            }
            Meaning::ForControl(frame) => {
                put(CONTROL_PORT, frame);
                "for the controller"
            }
            Meaning::Flooded => {
                let others = PORTS.into_iter().filter(|&port| port != step.port);
                others.for_each(|port| put(port, step.frame.clone()));
                "flooded"
            }
            Meaning::Answered(answer) => {
                put(step.port, answer);
                "ARP"
            }
            Meaning::Ignored => "ignored",
        };
        *outcomes.entry(outcome).or_default() += 1;
        let expected = std::mem::take(&mut plant.out);
        let got = site.exchange(step.port, &step.frame);
        frames += expected.values().map(Vec::len).sum::<usize>();
        assert!(
            got == expected,
            "seed {SEED}, packet {packet}, {outcome}: {}",
            describe_difference(step.port, &step.frame, &expected, &got)
        );
    }
    let cells = compare::registers(SEED, &plant, &site.switch);
    compare::counters(SEED, &plant, &site.switch, malformed);
    println!(
        "{PACKETS} packets in, {frames} frames out, {} passes, {cells} cells: {outcomes:?}",
        site.switch.passes
    );
    let always = ["opened", "added", "duplicate", "late", "stale", "mismatch", "ARP", "flooded", "forwarded"];
    for what in always.into_iter().chain(DropReason::ALL.map(DropReason::name)) {
        assert!(outcomes.contains_key(what), "the trace has no packet that is {what}");
    }
}
