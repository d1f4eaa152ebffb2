//! Random packet traces into BMv2 with the compiled program and into the model: frames that go out, registers
//! and counters must be equal.
//!
//! Needs `simple_switch_grpc` and `simple_switch_CLI`, on the PATH or in the folder `THC_BMV2`; without them the
//! test says that it was not run. `THC_BMV2_PACKETS` sets the number of packets, `THC_BMV2_SEED` the seed.
#![allow(clippy::unwrap_used)]

mod compare;
mod frame;
mod loss;
mod pcap;
mod plant;
mod racks;
mod switch;
mod trace;
mod workers;

use fastrand::Rng;
use frame::{Datagram, Mac};
use plant::{Frames, Member, OWN, OWN_MAC, PORTS, PlacedJob, Plant};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};
use switch::Switch;
use thc_protocol::aggregator::{DropReason, Endpoint, JobConfig, Level, Lookup, Outcome};
use thc_protocol::wire::{Form, Header, Kind, MAX_PACKET};
use thc_protocol::{Cookie, JobId, Lane, Round, SlotId, TableId, WorkerId};
use trace::Meaning;

/// Packets between two comparisons, after which the configuration may change.
const SEGMENT: usize = 500;
/// The passes of a packet, and the words of a pass.
const PASSES: usize = 8;
const WORDS: usize = 32;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

fn member(job: u8, worker: u8, port: u16, any: bool) -> Member {
    Member {
        mac: [0x02, 0, 0, 0, job, worker],
        endpoint: Endpoint {
            ingress: if any { 0 } else { port },
            addr: SocketAddrV4::new(Ipv4Addr::new(10, 9, job, worker + 1), 5000 + u16::from(worker)),
        },
        port,
    }
}

fn config(job: u16, workers: u8, quorum: u8, slots: (u32, u32), tables: &[u8]) -> JobConfig {
    JobConfig {
        job: JobId(job),
        cookie: Cookie(0x5EED_0000 + u32::from(job)),
        workers,
        quorum,
        skip: quorum < workers,
        data_slots: slots.0,
        norm_slots: slots.1,
        tables: tables.iter().map(|&id| TableId(id)).collect(),
        level: Level::Only,
    }
}

/// Four workers with full quorum; three with two of them on one port, one of which may send from anywhere,
/// quorum 2; five with quorum 3 in big slots; and one alone, whose packets mark the ends of segments.
fn jobs() -> Vec<PlacedJob> {
    let place = |config: JobConfig, index, data_base, norm_base, ports: &[(u16, bool)]| PlacedJob {
        members: ports
            .iter()
            .enumerate()
            .map(|(worker, &(port, any))| (worker as u8, member(config.job.0 as u8, worker as u8, port, any)))
            .collect(),
        epoch: 1000 + u32::from(config.job.0),
        config,
        index,
        data_base,
        norm_base,
        root: None,
    };
    vec![
        place(
            config(1, 4, 4, (8, 4), &[3, 7, 8, 12]),
            0,
            0,
            0,
            &[(1, false), (2, false), (3, false), (4, false)],
        ),
        place(config(2, 3, 2, (4, 2), &[7, 12]), 3, 8, 4, &[(2, false), (2, true), (4, false)]),
        place(
            config(9, 5, 3, (6, 6), &[0, 255, 12, 8]),
            15,
            1018,
            1018,
            &[(1, false), (2, false), (3, false), (4, false), (5, false)],
        ),
        place(config(60, 1, 1, (2, 2), &[3]), 7, 100, 100, &[(5, false)]),
    ]
}

fn tables() -> BTreeMap<u8, Lookup> {
    let spread = |g: u8| std::array::from_fn(|z| (u32::from(g) * (z * z) as u32 / 225) as u8);
    let short: [u8; 16] = std::array::from_fn(|z| if z < 4 { 3 * z as u8 } else { 0 });
    // n·g fits 8 bits wherever a job may use the table.
    let values = [(3, spread(63)), (7, short), (0, spread(51)), (255, spread(30))];
    let mut tables = BTreeMap::from(values.map(|(id, values)| (id, Lookup { form: Form::USUAL, values })));
    // Of 2 bits in lanes of 4: five workers' sums are 15 at most.
    let values = std::array::from_fn(|z| if z < 4 { z as u8 } else { 0 });
    tables.insert(12, Lookup { form: Form::new(2, Lane::Bits4).unwrap(), values });
    // Indices that are their own values.
    tables.insert(8, Lookup { form: Form::new(8, Lane::Bits16).unwrap(), values: [0; 16] });
    tables
}

/// A controller's changes between two segments; packets of what was before die or start anew.
fn change(random: &mut Rng, plant: &mut Plant) {
    let job = random.usize(..plant.jobs.len() - 1);
    let placed = &mut plant.jobs[job];
    match random.u8(..5) {
        // A new incarnation, with empty slots (P24).
        0 => {
            placed.config.cookie = Cookie(random.u32(..));
            placed.epoch += 1;
        }
        // Another quorum, which empties slots too.
        1 => {
            let quorum = random.u8(1..=placed.config.workers);
            placed.epoch += u32::from(quorum != placed.config.quorum);
            placed.config.quorum = quorum;
            placed.config.skip = quorum < placed.config.workers;
        }
        2 => {
            placed.members.remove(&(placed.config.workers - 1));
        }
        3 => {
            placed.members = jobs().swap_remove(job).members;
        }
        _ => {
            if placed.config.tables.len() > 1 {
                placed.config.tables.pop();
            } else {
                // Table 255 is small enough for five workers, 3 for up to four.
                placed.config.tables.push(TableId(match placed.config.job.0 {
                    1 => 7,
                    2 => 3,
                    _ => 255,
                }));
            }
        }
    }
}

/// The last packet of a segment: when its RESULT is out, every packet before has had all its passes.
fn marker(plant: &Plant, round: u32) -> (u16, Vec<u8>, Vec<u8>) {
    let job = plant.jobs.last().unwrap();
    let member = job.members[&0];
    let header = Header {
        kind: Kind::Data,
        flags: 0,
        num_workers: 1,
        job: job.config.job,
        worker: WorkerId(0),
        table: job.config.tables[0],
        cookie: job.config.cookie,
        round: Round(round),
        slot: SlotId(0),
        count: 0,
    };
    let mut packet = [0; MAX_PACKET];
    let packet = header.emit_packet(&mut packet, &[0x5A; 512]).to_vec();
    let datagram =
        Datagram { from: (member.mac, member.endpoint.addr), to: (OWN_MAC, OWN), payload: packet.clone() };
    (member.port, datagram.frame(), packet)
}

/// The switch's side of a trace.
#[derive(Default)]
struct Tally {
    outcomes: BTreeMap<String, usize>,
    malformed: u64,
    frames: usize,
}

/// Sends a segment into both and compares what comes out.
fn segment(
    random: &mut Rng,
    seed: u64,
    number: usize,
    plant: &mut Plant,
    switch: &mut Switch,
    stations: &[(Mac, u16)],
    tally: &mut Tally,
) {
    for packet in 0..SEGMENT {
        let time = (number * SEGMENT + packet) as u32 / 90;
        let step = trace::step(random, plant, stations, time);
        switch.send(step.port, &step.frame);
        let outcome = match step.meaning {
            Meaning::Packet(bytes) => {
                let ip: [u8; 4] = step.frame[26..30].try_into().unwrap();
                let udp = u16::from_be_bytes([step.frame[34], step.frame[35]]);
                let from = Endpoint { ingress: step.port, addr: SocketAddrV4::new(ip.into(), udp) };
                match plant.handle(from, &bytes, step.frame.len()) {
                    Outcome::Handled(event) => event.name(),
                    Outcome::Dropped(reason) => reason.name(),
                    Outcome::Passed => "passed",
                }
            }
            Meaning::Malformed => {
                tally.malformed += 1;
                "malformed"
            }
            Meaning::Forwarded(port) => {
                plant.out.entry(port).or_default().push(step.frame);
                "forwarded"
            }
            Meaning::Flooded => {
                for port in PORTS.into_iter().filter(|&port| port != step.port) {
                    plant.out.entry(port).or_default().push(step.frame.clone());
                }
                "flooded"
            }
            Meaning::Answered(answer) => {
                plant.out.entry(step.port).or_default().push(answer);
                "ARP"
            }
            Meaning::Ignored => "ignored",
        };
        *tally.outcomes.entry(outcome.to_owned()).or_default() += 1;
    }
    let (port, frame, packet) = marker(plant, number as u32);
    let from = plant.jobs.last().unwrap().members[&0].endpoint;
    switch.send(port, &frame);
    plant.handle(from, &packet, frame.len());
    // To the aggregator's MAC, but nothing that it knows: dropped by the entry of that station.
    switch.push(&frame::ethernet(OWN_MAC, [2; 6], 0x88B6));

    let expected = std::mem::take(&mut plant.out);
    let wanted: usize = expected.values().map(Vec::len).sum();
    let mut got = Frames::new();
    let start = Instant::now();
    let mut last = start;
    while got.values().map(Vec::len).sum::<usize>() < wanted && last.elapsed() < Duration::from_secs(20) {
        assert!(switch.runs(), "seed {seed}: BMv2 has ended: {}", switch.log());
        for (port, frames) in switch.take() {
            if !frames.is_empty() {
                last = Instant::now();
            }
            got.entry(port).or_default().extend(frames);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Time for what should not come.
    std::thread::sleep(Duration::from_millis(50));
    for (port, frames) in switch.take() {
        got.entry(port).or_default().extend(frames);
    }
    compare::frames(seed, number, plant, &expected, &got);
    tally.frames += wanted;
}

#[test]
fn switch_and_model_are_equal() {
    let mut switch = match Switch::start(&PORTS) {
        Ok(switch) => switch,
        Err(reason) => {
            println!("not run: {reason}");
            return;
        }
    };
    let packets = number("THC_BMV2_PACKETS", 20_000) as usize;
    let seed = number("THC_BMV2_SEED", 4);
    println!("seed {seed}, {packets} packets");
    let mut random = Rng::with_seed(seed);
    let mut plant = Plant::new();
    plant.jobs = jobs();
    plant.tables = tables();
    plant.configure_model();
    let mut stations: Vec<(Mac, u16)> = plant
        .jobs
        .iter()
        .flat_map(|job| job.members.values())
        .map(|member| (member.mac, member.port))
        .collect();
    stations.push(([0x02, 0xBB, 0, 0, 0, 7], 3));
    plant.configure_fresh(&switch, &stations);
    plant.configure(&switch);

    let mut tally = Tally::default();
    let start = Instant::now();
    let mut sending = Duration::ZERO;
    for number in 0..packets.div_ceil(SEGMENT) {
        if number > 0 {
            change(&mut random, &mut plant);
            plant.configure_model();
            plant.configure(&switch);
        }
        let begin = Instant::now();
        segment(&mut random, seed, number, &mut plant, &mut switch, &stations, &mut tally);
        sending += begin.elapsed();
    }
    let cells = compare::registers(seed, &plant, &switch);
    compare::counters(seed, &plant, &switch, tally.malformed);
    let total: usize = tally.outcomes.values().sum();
    println!(
        "{total} packets in and {} frames out compared, {cells} cells of registers; {:.1} s, of which BMv2 {:.1} s",
        tally.frames,
        start.elapsed().as_secs_f64(),
        sending.as_secs_f64()
    );
    println!("{:?}", tally.outcomes);
    let always = ["opened", "added", "duplicate", "late", "stale", "mismatch", "ARP", "flooded", "forwarded"];
    for what in always.into_iter().chain(DropReason::ALL.map(DropReason::name)) {
        assert!(tally.outcomes.contains_key(what), "seed {seed}: the trace has no packet that is {what}");
    }
}
