//! Random packet traces into BMv2 with the compiled program, into the interpreter of that program, and into the model: frames
//! that go out, registers and counters must be equal.
//!
//! Needs `simple_switch_grpc` and `simple_switch_CLI`, on the PATH or in the folder `THC_BMV2`; without them the
//! test says that it was not run. `THC_BMV2_PACKETS` sets the number of packets, `THC_BMV2_SEED` the seed.
#![allow(clippy::unwrap_used)]

pub mod compare;
mod faults;
mod loss;
mod pcap;
mod racks;
mod rows;
mod switch;
mod workers;

use fastrand::Rng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use switch::Switch;
use thc_protocol::aggregator::{DropReason, Endpoint, Outcome};
use thc_protocol::wire::{Header, Kind, MAX_PACKET};
use thc_protocol::{Ecn, Round, WorkerId};
use thc_tests::traffic::frame::{Datagram, Mac};
use thc_tests::traffic::plant::{CONTROL_PORT, Frames, OWN, OWN_MAC, PORTS, Plant};
use thc_tests::traffic::random::Meaning;
use thc_tests::traffic::{change, frame, jobs, random, tables};

use crate::v1model::Site;

/// Packets between two comparisons, after which the configuration may change.
const SEGMENT: usize = 500;
/// The passes of a packet, and the words of a pass.
const PASSES: usize = 8;
pub const WORDS: usize = 32;

/// What a switch with the program holds and has counted.
pub trait Readings {
    /// Whole registers, in the order asked for.
    fn registers(&self, names: &[String]) -> Vec<Vec<u64>>;

    /// Counters as (packets, bytes), in the order asked for.
    fn counters(&self, cells: &[(&str, usize)]) -> Vec<(u64, u64)>;
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// The last packet of a segment: when its RESULT is out, every packet before has had all its passes.
fn marker(plant: &Plant, round: u32) -> (u16, Vec<u8>, Vec<u8>) {
    let job = plant.jobs.last().unwrap();
    let member = job.members[&0];
    let header = Header {
        table: job.config.tables[0],
        round: Round(round),
        ..Header::new(Kind::Data, 1, job.config.job, WorkerId(0), job.config.cookie)
    };
    let mut packet = [0; MAX_PACKET];
    let packet = header.emit_packet(&mut packet, &[0x5A; 512]).to_vec();
    let from = (member.mac, member.endpoint.addr);
    let datagram = Datagram { from, to: (OWN_MAC, OWN), ecn: Ecn::Ect0, payload: packet.clone() };
    (member.port, datagram.frame(), packet)
}

/// Appends frames to those of their ports.
fn add(all: &mut Frames, more: impl IntoIterator<Item = (u16, Vec<Vec<u8>>)>) {
    more.into_iter().for_each(|(port, frames)| all.entry(port).or_default().extend(frames));
}

/// Whole registers, cells of no job included, are equal.
fn compare_registers(switch: &Switch, interpreted: &Site) {
    let of = |stage: &str, names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("SwitchIngress.{stage}.{name}")).collect()
    };
    let states = ["state.epochs", "state.rounds", "state.seen", "state.counts"];
    let mut names = [of("data", &states), of("norm", &states), of("data", &["heads", "marks"])].concat();
    names.extend((0..WORDS).map(|word| format!("SwitchIngress.data.lanes{word}")));
    names.extend(of("norm", &["tags", "values", "lengths", "calls", "keys"]));
    let both = switch.registers(&names).into_iter().zip(interpreted.switch.registers(&names));
    for (name, (cells, interpreted)) in names.iter().zip(both) {
        assert!(cells == interpreted, "{name} differs between BMv2 and the interpreter");
    }
}

/// The switch's side of a trace.
#[derive(Default)]
struct Tally {
    outcomes: BTreeMap<String, usize>,
    malformed: u64,
    frames: usize,
}

/// Sends a segment into all and compares what comes out.
#[allow(clippy::too_many_arguments)]
fn segment(
    random: &mut Rng,
    seed: u64,
    number: usize,
    plant: &mut Plant,
    switch: &mut Switch,
    interpreted: &mut Site,
    stations: &[(Mac, u16)],
    tally: &mut Tally,
) {
    let mut of_interpreter = Frames::new();
    for packet in 0..SEGMENT {
        let time = (number * SEGMENT + packet) as u32 / 90;
        let step = random::step(random, plant, stations, time);
        switch.send(step.port, &step.frame);
        add(&mut of_interpreter, interpreted.exchange(step.port, &step.frame));
        let outcome = match step.meaning {
            Meaning::Packet(bytes) => {
                let ip: [u8; 4] = step.frame[26..30].try_into().unwrap();
                let udp = u16::from_be_bytes([step.frame[34], step.frame[35]]);
                let from = Endpoint { ingress: step.port, addr: SocketAddr::from((ip, udp)) };
                match plant.handle(from, &bytes, &step.frame) {
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
            Meaning::ForControl(frame) => {
                plant.out.entry(CONTROL_PORT).or_default().push(frame);
                "for the controller"
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
    add(&mut of_interpreter, interpreted.exchange(port, &frame));
    plant.handle(from, &packet, &frame);
    // To the aggregator's MAC, but nothing that it knows: dropped by the entry of that station.
    switch.push(&frame::ethernet(OWN_MAC, [2; 6], 0x88B6));

    let expected = std::mem::take(&mut plant.out);
    let wanted: usize = expected.values().map(Vec::len).sum();
    let mut got = Frames::new();
    let start = Instant::now();
    let mut last = start;
    while got.values().map(Vec::len).sum::<usize>() < wanted && last.elapsed() < thc_tests::HANG / 10 {
        assert!(switch.runs(), "seed {seed}: BMv2 has ended: {}", switch.log());
        for (port, frames) in switch.take() {
            if !frames.is_empty() {
                last = Instant::now();
            }
            add(&mut got, [(port, frames)]);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Time for what should not come.
    std::thread::sleep(Duration::from_millis(50));
    add(&mut got, switch.take());
    compare::frames(seed, number, plant, &expected, &got);
    compare::frames(seed, number, plant, &of_interpreter, &got);
    tally.frames += wanted;
}

#[test]
fn switch_interpreter_and_model_are_equal() {
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
    let mut plant = Plant::new(&[Kind::Join, Kind::Leave]);
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
    rows::fresh(&plant, &switch, &stations);
    rows::write(&plant, &switch);
    let mut interpreted = Site::new(&stations);
    interpreted.configure(&plant);

    let mut tally = Tally::default();
    let start = Instant::now();
    let mut sending = Duration::ZERO;
    for number in 0..packets.div_ceil(SEGMENT) {
        if number > 0 {
            change(&mut random, &mut plant);
            plant.configure_model();
            rows::write(&plant, &switch);
            interpreted.configure(&plant);
        }
        let begin = Instant::now();
        segment(&mut random, seed, number, &mut plant, &mut switch, &mut interpreted, &stations, &mut tally);
        sending += begin.elapsed();
    }
    let cells = compare::registers(seed, &plant, &switch);
    compare::counters(seed, &plant, &switch, tally.malformed);
    compare::counters(seed, &plant, &interpreted.switch, tally.malformed);
    compare_registers(&switch, &interpreted);
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
