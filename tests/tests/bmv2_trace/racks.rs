//! The switch as a rack (P34 to P36): random packets of its members and of its root, one after the other, into BMv2 and into the
//! model; and real `thc-worker` processes in a rack that is a switch and in one that is a thc-ps, below a thc-ps.

use super::frame::Datagram;
use super::plant::{Frames, Member, OWN, OWN_MAC, PORTS, PlacedJob, Plant};
use super::switch::Switch;
use super::workers::{Ending, Host};
use super::{compare, config, frame, member, number};
use clap::Parser;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use thc_protocol::aggregator::{Endpoint, JobConfig, Level, Lookup, Outcome, Racks};
use thc_protocol::session::StaticJob;
use thc_protocol::wire::{FLAG_NUDGE, Form, Header, Kind, MAX_PACKET, Norm};
use thc_protocol::{Cookie, Lane, Round, SlotId, TableId, WorkerId};
use thc_ps::{JobOptions, ServerOptions};
use thc_tests::{COOKIE, Ps, WorkerProcess, free_ports, write_gradients};

const PACKETS: u64 = 1500;
const RACKS: Racks = Racks { count: 3, largest: 3, total: 8 };

fn root() -> Member {
    let addr = SocketAddrV4::new([10, 9, 77, 1].into(), 9000);
    Member { mac: [0x02, 0, 0, 0, 77, 1], endpoint: Endpoint::udp(addr), port: 4 }
}

/// Full quorum, and one with a quorum whose root has two ports (P21); a table with lanes of 8 bits, one whose sums are narrower than the root's lanes, and one of indices
/// that are their own values.
fn jobs() -> Vec<PlacedJob> {
    let place = |job: u16, quorum, index, base, norm_base, slots, ports| PlacedJob {
        config: JobConfig {
            level: Level::Rack { racks: RACKS, rack: WorkerId(1), root: root().endpoint, ports },
            ..config(job, 3, quorum, (slots, 4), &[255, 9, 8])
        },
        index,
        epoch: 7 + u32::from(job),
        data_base: base,
        norm_base,
        members: (0..3).map(|w| (w, member(job as u8, w, 1 + u16::from(w), false))).collect(),
        root: Some(root()),
    };
    vec![place(5, 3, 2, 8, 8, 4, 1), place(6, 2, 4, 40, 40, 200, 2)]
}

fn tables() -> BTreeMap<u8, Lookup> {
    let spread = |g: u8| std::array::from_fn(|z| (u32::from(g) * (z * z) as u32 / 225) as u8);
    let wide = Form::new(4, Lane::Bits16).unwrap();
    BTreeMap::from([
        (255, Lookup { form: Form::USUAL, values: spread(30) }),
        (9, Lookup { form: wide, values: spread(63) }),
        (8, Lookup { form: Form::new(8, Lane::Bits16).unwrap(), values: [0; 16] }),
    ])
}

/// A packet of a member, or of the root.
fn step(random: &mut Rng, plant: &Plant, time: u32) -> (u16, Datagram) {
    let job = random.choice(&plant.jobs).unwrap();
    let config = &job.config;
    // Of three blocks, if it has so many.
    let slot = random.choice([0, 1, 2, 64, 130]).filter(|&slot| slot < config.data_slots as u16).unwrap_or(3);
    let round = match random.u8(..20) {
        0 => (time / 40).wrapping_sub(1),
        1 => time / 40 + 1,
        2 => time / 40 + 3,
        _ => time / 40,
    };
    // All packets of a slot's round are of one kind and table.
    let table = TableId([255, 9, 8][(round as usize + usize::from(slot)) % 3]);
    let form = plant.tables[&table.0].form;
    let worker = random.u8(..config.workers);
    let mut header = Header {
        kind: Kind::Data,
        flags: if random.u8(..5) == 0 { FLAG_NUDGE } else { 0 },
        num_workers: config.workers,
        job: config.job,
        worker: WorkerId(worker),
        table,
        cookie: config.cookie,
        round: Round(round),
        slot: SlotId(slot),
        count: 0,
    };
    let norm = Norm {
        tag: 0,
        value: (random.f32() * 4.0).to_bits(),
        length: 1 << 20,
        call: round as u16,
        table: TableId(255),
        mode: u8::from(random.u8(..20) == 0),
        key: 77,
    };
    let (mut from, own) = (job.members[&worker], config.level.lookup(&plant.tables[&table.0]).unwrap().form);
    let mut payload: Vec<u8> = match random.u8(..8) {
        0 | 1 => {
            (header.kind, header.table) = (Kind::Norm, TableId(0));
            norm.tagged(1).to_bytes().to_vec()
        }
        2 | 3 => {
            // Of the root.
            let kinds = [
                Kind::NormResult,
                Kind::Result,
                Kind::RawResult,
                Kind::Straggler,
                Kind::Mismatch,
                Kind::Nudge,
            ];
            header.kind = random.choice(kinds).unwrap();
            header.num_workers = RACKS.count;
            header.worker = WorkerId(random.choice([255, 0, 1, 2]).unwrap());
            header.count = random.u16(..2000);
            from = job.root.unwrap();
            (0..header.kind.payload_len(form)).map(|_| random.u8(..)).collect()
        }
        4 if slot == 0 => {
            (header.kind, header.table) = (Kind::Raw, TableId(0));
            (0..1024).map(|_| random.u8(..)).collect()
        }
        _ => (0..own.data_len()).map(|_| random.u8(..)).collect(),
    };
    let mut place = (from.mac, from.endpoint.addr);
    let fault = random.u8(..60);
    if fault == 3 {
        header.slot = SlotId(random.u16(200..));
    }
    if let Level::Rack { ports, .. } = config.level
        && Some(from) == job.root
    {
        place.1.set_port(place.1.port() + header.slot.0 / 64 % u16::from(ports));
    }
    match fault {
        0 => header.cookie = Cookie(random.u32(..)),
        1 => header.num_workers ^= 1,
        2 => payload.truncate(payload.len() / 2),
        4 => header.table = TableId(77),
        5 => place.1.set_port(place.1.port() ^ 1),
        6 => place.1.set_ip([10, 9, 77, 2].into()),
        7 => header.worker = WorkerId(40),
        _ => {}
    }
    let mut packet = [0; MAX_PACKET];
    let payload = header.emit_packet(&mut packet, &payload).to_vec();
    (from.port, Datagram { from: place, to: (OWN_MAC, OWN), payload })
}

#[test]
fn switch_and_model_are_equal_as_racks() {
    let mut switch = match Switch::start(&PORTS) {
        Ok(switch) => switch,
        Err(reason) => {
            println!("not run: {reason}");
            return;
        }
    };
    let seed = number("THC_BMV2_SEED", 4);
    let mut random = Rng::with_seed(seed);
    let mut plant = Plant::new();
    plant.jobs = jobs();
    plant.tables = tables();
    plant.configure_model();
    plant.configure_fresh(&switch, &[]);
    plant.configure(&switch);
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    for packet in 0..PACKETS as u32 {
        let (port, datagram) = step(&mut random, &plant, packet);
        let from = Endpoint { ingress: port, addr: datagram.from.1 };
        let bytes = datagram.frame();
        switch.send(port, &bytes);
        switch.push(&frame::ethernet(OWN_MAC, [2; 6], 0x88B6));
        let outcome = plant.handle(from, &datagram.payload, bytes.len());
        let name = match outcome {
            Outcome::Handled(event) => event.name(),
            Outcome::Dropped(reason) => reason.name(),
            Outcome::Passed => "passed",
        };
        *outcomes.entry(name.to_owned()).or_default() += 1;
        let expected = std::mem::take(&mut plant.out);
        let wanted: usize = expected.values().map(Vec::len).sum();
        let (mut got, begin) = (Frames::new(), Instant::now());
        // Whatever should not come, comes with a later packet at the latest.
        while got.values().map(Vec::len).sum::<usize>() < wanted && begin.elapsed() < Duration::from_secs(10)
        {
            for (port, frames) in switch.take().into_iter().filter(|(_, frames)| !frames.is_empty()) {
                got.entry(port).or_default().extend(frames);
            }
        }
        let header = Header::parse(&datagram.payload).map(|(header, _)| header);
        assert!(
            expected == got,
            "seed {seed}, packet {packet}, {name}: {header:?}\n{expected:02x?}\n{got:02x?}"
        );
    }
    std::thread::sleep(Duration::from_millis(200));
    assert!(switch.take().values().all(Vec::is_empty), "seed {seed}: more frames than the model's");
    let cells = compare::registers(seed, &plant, &switch);
    compare::counters(seed, &plant, &switch, 0);
    println!("{PACKETS} packets, {cells} cells of registers: {outcomes:?}");
    for what in
        ["opened", "added", "duplicate", "late", "stale", "mismatch", "passed", "cookie", "source", "workers"]
    {
        assert!(outcomes.contains_key(what), "seed {seed}: no packet is {what}: {outcomes:?}");
    }
}

/// What thc-ps is told by flags.
#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    job: JobOptions,
}

/// What thc-ps would be configured with by these flags, the test's control plane is, too.
fn job(flags: &[&str]) -> StaticJob {
    let Flags { server, job } = Flags::parse_from([&["thc-ps"], flags].concat());
    let config = ServerOptions { job: vec![job], ..server }.validate().unwrap();
    config.jobs[0].to_static()
}

/// What workers at these servers, with these numbers, get.
fn means(places: &[(SocketAddrV4, u8)], inputs: &[PathBuf]) -> Vec<Vec<u8>> {
    let outputs: Vec<PathBuf> = inputs.iter().map(|input| input.with_extension("out")).collect();
    let start = |(&(at, number), (input, output)): (&(SocketAddrV4, u8), (&PathBuf, &PathBuf))| {
        let files = ["--input", input.to_str().unwrap(), "--output", output.to_str().unwrap()];
        WorkerProcess::start(at, number, &[&files[..], &["--repeat", "2", "--error-feedback=true"]].concat())
    };
    let workers: Vec<WorkerProcess> = places.iter().zip(inputs.iter().zip(&outputs)).map(start).collect();
    for end in workers.into_iter().map(WorkerProcess::finish) {
        assert_eq!(end.code, Some(0), "{end:?}");
    }
    outputs.iter().map(|output| std::fs::read(output).unwrap()).collect()
}

/// The root of two racks of two workers: a switch, and a thc-ps.
#[test]
fn a_switch_and_a_thc_ps_are_racks_below_a_thc_ps() {
    let dir = tempfile::tempdir().unwrap();
    let inputs = write_gradients(dir.path(), 4, 1 << 17);
    let table = ["--granularity", "30", "--fraction", "1/32", "--slots", "256", "--norm-slots", "64"];
    // Lanes of 16 bits have sums of 8 below.
    for (lane, shards) in [("8", "2"), ("16", "1")] {
        let switch = match Switch::start(&[1]) {
            Ok(switch) => switch,
            Err(reason) => {
                println!("not run: {reason}");
                return;
            }
        };
        let ps = Ps::start(4, &[&table[..], &["--lane", lane]].concat());
        let one = means(&[0, 1, 2, 3].map(|number| (ps.addr, number)), &inputs);
        drop(ps);
        let first = free_ports(3);
        // The root may have two ports.
        let [top, rack] = [0, 2].map(|n| SocketAddrV4::new([127, 0, 0, 1].into(), first + n));
        let common = [&table[..], &["--lane", lane, "--racks", "2,2"]].concat();
        let lossy = ["--shards", shards, "--inject-loss", "0.002"];
        let _root = Ps::of(top, &[&common[..], &lossy].concat());
        let at = top.to_string();
        let _rack = Ps::of(rack, &[&common[..], &["--rack", "1", "--root", &at]].concat());
        let own = ["--job", "1", "--cookie", COOKIE, "--rack", "0", "--root", &at];
        let mut host = Host::of(switch, job(&[&common[..], &own].concat()));
        let (below, end) = (host.addr(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let carrier = scope.spawn(|| host.run(&end));
            let ending = Ending(&end);
            let begin = Instant::now();
            let got = means(&[(below, 0), (below, 1), (rack, 0), (rack, 1)], &inputs);
            println!("lanes of {lane} bits: {:.1} s", begin.elapsed().as_secs_f64());
            assert!(got == one, "lanes of {lane} bits: another mean than one thc-ps gives");
            assert!(!carrier.is_finished());
            drop(ending);
            carrier.join().unwrap();
        });
        // It was the switch that added up its workers' packets: 2 calls, of 128 packets or 256 and 16 norms.
        let sent = host.switch.counters(&[("answers", 1 << 2)])[0].0;
        let packets = if lane == "8" { 128 } else { 256 };
        assert!(sent >= 2 * (packets + 16), "{sent}");
    }
}
