//! The switch as a rack (P34 to P36): random packets of its members and of its root, one after the other, into BMv2 and into the
//! model; and real `thc-worker` processes in a rack that is a switch and in one that is a thc-ps, below a thc-ps.

use super::Readings;
use super::switch::Switch;
use super::workers::{Ending, Host};
use super::{compare, number, rows};
use clap::Parser;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use thc_protocol::aggregator::{Endpoint, Outcome};
use thc_protocol::session::StaticJob;
use thc_protocol::wire::{Header, Kind};
use thc_ps::{JobOptions, ServerOptions};
use thc_tests::traffic::frame;
use thc_tests::traffic::plant::{Frames, OWN_MAC, PORTS, Plant};
use thc_tests::traffic::racks::{jobs, step, tables};
use thc_tests::{COOKIE, Ps, WorkerProcess, free_ports, write_gradients};

const PACKETS: u64 = 1500;
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
    let mut plant = Plant::new(&[Kind::Leave]);
    plant.jobs = jobs();
    plant.tables = tables();
    plant.configure_model();
    rows::fresh(&plant, &switch, &[]);
    rows::write(&plant, &switch);
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    for packet in 0..PACKETS as u32 {
        let (port, datagram) = step(&mut random, &plant, packet);
        let from = Endpoint { ingress: port, addr: datagram.from.1 };
        let bytes = datagram.frame();
        switch.send(port, &bytes);
        switch.push(&frame::ethernet(OWN_MAC, [2; 6], 0x88B6));
        let outcome = plant.handle(from, &datagram.payload, &bytes);
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
        while got.values().map(Vec::len).sum::<usize>() < wanted && begin.elapsed() < thc_tests::HANG / 10 {
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
fn means(places: &[(SocketAddr, u8)], inputs: &[PathBuf]) -> Vec<Vec<u8>> {
    let outputs: Vec<PathBuf> = inputs.iter().map(|input| input.with_extension("out")).collect();
    let start = |(&(at, number), (input, output)): (&(SocketAddr, u8), (&PathBuf, &PathBuf))| {
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
    let table = ["--granularity", "30", "--fraction", "1/32", "--data-slots", "256", "--norm-slots", "64"];
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
        let [top, rack] = [0, 2].map(|n| SocketAddr::from(([127, 0, 0, 1], first + n)));
        let common = [&table[..], &["--lane", lane, "--racks", "2,2"]].concat();
        let lossy = ["--shards", shards, "--inject", "loss=0.002"];
        let _root = Ps::listen_at(top, &[&common[..], &lossy].concat());
        let at = top.to_string();
        let _rack = Ps::listen_at(rack, &[&common[..], &["--rack", "1", "--root", &at]].concat());
        let own = ["--job", "1", "--cookie", COOKIE, "--rack", "0", "--root", &at];
        let mut host = Host::join(switch, job(&[&common[..], &own].concat()));
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
