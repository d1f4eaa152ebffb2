//! Random traffic, as BMv2 has it.

use super::{CASES, Case, Site, compare, describe_difference};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use thc_protocol::TableId;
use thc_protocol::aggregator::{DropReason, Endpoint, Outcome};
use thc_protocol::wire::{FLAG_MARK, Kind};
use thc_tests::traffic::frame::Mac;
use thc_tests::traffic::plant::{CONTROL_PORT, Frames, PORTS, Plant};
use thc_tests::traffic::random::{self, Meaning};
use thc_tests::traffic::{change, jobs, tables};

pub const PACKETS: usize = 1500;
/// Packets between two changes of the configuration.
const SEGMENT: usize = 100;

/// Four lookup tables, as many as the chips have room for.
pub(super) fn plant(case: Case) -> Plant {
    let mut plant = Plant::new(&[Kind::Join, Kind::Leave]);
    // A cut of DATA shows only in the pass that lacks its indices (docs/switch.md).
    plant.cuts = false;
    plant.tables = tables();
    plant.tables.retain(|id, _| [3, 7, 8, 12].contains(id));
    plant.jobs = jobs();
    // The last slots of the chip.
    plant.jobs[2].data_base = if case.name == "tofino" && case.pass_ports.len() == 1 { 506 } else { 1018 };
    fit(&mut plant);
    plant
}

/// The length of a queue that marks packets.
fn marking_depth(case: Case) -> u64 {
    if case.name == "tofino" { 1024 } else { 466 }
}

/// Tables that the chips have in place of BMv2's.
fn fit(plant: &mut Plant) {
    for job in &mut plant.jobs {
        for table in &mut job.config.tables {
            match table.0 {
                0 => *table = TableId(7),
                255 => *table = TableId(12),
                _ => {}
            }
        }
        job.config.tables.dedup();
    }
}

/// Hosts and the ports that they are behind.
pub fn stations(plant: &Plant) -> Vec<(Mac, u16)> {
    let members = plant.jobs.iter().flat_map(|job| job.members.values().copied().chain(job.root));
    let mut stations: Vec<(Mac, u16)> = members.map(|member| (member.mac, member.port)).collect();
    stations.sort_unstable();
    stations.dedup();
    stations
}

/// How often packets had which fate; or what differs first.
pub(super) fn trace(
    case: Case,
    program: &str,
    seed: u64,
    packets: usize,
) -> Result<BTreeMap<String, usize>, String> {
    let mut random = Rng::with_seed(seed);
    let mut plant = plant(case);
    let mut stations = stations(&plant);
    stations.push(([0x02, 0xBB, 0, 0, 0, 7], 3));
    let mut site = Site::new(case, program, &stations, seed);
    // Of their own, so that traffic is that of a chip without queues.
    let (mut lengths, marking) = (Rng::with_seed(seed), marking_depth(case));
    let depths = [0, 0, 0, marking - 1, marking, (1 << 19) - 1];
    let (mut outcomes, mut malformed) = (BTreeMap::new(), 0);
    plant.configure_model();
    site.configure(&plant);
    for packet in 0..packets {
        if packet > 0 && packet % SEGMENT == 0 {
            change(&mut random, &mut plant);
            fit(&mut plant);
            plant.configure_model();
            site.configure(&plant);
        }
        let step = random::step(&mut random, &plant, &stations, packet as u32 / 45);
        let mut expected = Frames::new();
        let mut put = |port: u16, frame: Vec<u8>| expected.entry(port).or_default().push(frame);
        let outcome = match step.meaning {
            Meaning::Packet(bytes) => {
                let ip: [u8; 4] = step.frame[26..30].try_into().unwrap();
                let udp = u16::from_be_bytes([step.frame[34], step.frame[35]]);
                let from = Endpoint { ingress: step.port, addr: SocketAddr::from((ip, udp)) };
                let mut bytes = bytes;
                site.chip.depth = lengths.choice(depths).unwrap_or(0);
                // To the model and thc-ps it is as if the sender had said that the packet met congestion.
                if site.chip.depth >= marking
                    && let [_, kind, flags, ..] = &mut bytes[..]
                    && [Kind::Data as u8, Kind::Raw as u8].contains(kind)
                {
                    *flags |= FLAG_MARK;
                }
                match plant.handle(from, &bytes, &step.frame) {
                    Outcome::Handled(event) => event.name(),
                    Outcome::Dropped(reason) => reason.name(),
                    Outcome::Passed => "passed",
                }
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
        *outcomes.entry(outcome.to_owned()).or_default() += 1;
        for (port, frames) in std::mem::take(&mut plant.out) {
            expected.entry(port).or_default().extend(frames);
        }
        let got = site.exchange(step.port, &step.frame);
        if got != expected {
            let what = describe_difference(step.port, &step.frame, &expected, &got);
            return Err(format!("{case:?}, seed {seed}, packet {packet}, {outcome}: {what}"));
        }
    }
    compare::registers(&plant, &site, case)?;
    compare::counters(&plant, &site, malformed)?;
    Ok(outcomes)
}

fn equal(case: Case) {
    let outcomes =
        trace(case, &case.program(), 4, PACKETS).unwrap_or_else(|difference| panic!("{difference}"));
    println!("{case:?}: {outcomes:?}");
    let always = ["opened", "added", "duplicate", "late", "stale", "mismatch", "ARP", "flooded", "forwarded"];
    for what in always.into_iter().chain(DropReason::ALL.map(DropReason::name)) {
        assert!(outcomes.contains_key(what), "the trace has no packet that is {what}");
    }
}

#[test]
fn programs_and_model_are_equal() {
    CASES.into_iter().for_each(equal);
}
