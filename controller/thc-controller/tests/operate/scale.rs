//! A controller of many jobs and targets answers at once.

use crate::controller::{Controller, NOWHERE};
use crate::programs::COOKIE;
use crate::strict::Strict;
use p4runtime_proto::p4info;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use thc_protocol::wire::{Header, Join, Kind, MAX_PACKET};
use thc_protocol::{Cookie, JobId, WorkerId};
use thc_transport::frame::Datagram;

const TARGETS: usize = 100;
const JOBS: usize = 1000;
const WORKERS: u8 = 2;
/// A build without optimisation takes some ten times as long as a release.
const AT_ONCE: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1000 } else { 100 });

fn own_address(target: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, target as u8, 254)
}

/// Targets at these addresses, and jobs spread over them.
fn config(addresses: impl Iterator<Item = String>) -> String {
    let target = |(number, address)| {
        let ip = own_address(number);
        format!("[[target]]\nname = \"t{number}\"\naddress = \"{address}\"\nip = \"{ip}\"\n")
    };
    let job = |number| {
        let target = number % TARGETS;
        format!(
            "[[job]]\nname = \"j{number}\"\njob = {number}\ncookie = {COOKIE}\nworkers = {WORKERS}\ndata_slots = 64\n\
             norm_slots = 16\ntargets = [\"t{target}\"]\n"
        )
    };
    let targets: String = addresses.enumerate().map(target).collect();
    targets + &(0..JOBS).map(job).collect::<String>()
}

/// How long a controller has run on a processor.
fn ran(controller: &Controller) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/schedstat", controller.id())).unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

/// Prints how long answers take and what the controller uses of a core. What it computes before an answer is bounded,
/// whatever else runs on this machine.
fn measure(controller: &Controller) {
    let (began, before) = (Instant::now(), ran(controller));
    let mut times: Vec<(Duration, Duration)> = Vec::new();
    for _ in 0..50 {
        let (asked, ran_before) = (Instant::now(), ran(controller));
        assert!(controller.get("/healthz").0.contains("200 OK"));
        times.push((ran(controller) - ran_before, asked.elapsed()));
        std::thread::sleep(Duration::from_millis(100));
    }
    let share = (ran(controller) - before).as_secs_f64() / began.elapsed().as_secs_f64();
    times.sort_unstable();
    let (median, (longest, _)) = (times[times.len() / 2].1, times[times.len() - 1]);
    println!("{:.0} % of a core; /healthz: median {median:?}, computes {longest:?}", 100.0 * share);
    for (what, ask) in [
        ("/metrics", &(|| assert!(controller.get("/metrics").0.contains("200 OK"))) as &dyn Fn()),
        ("job list", &|| assert!(controller.ask_done(&["job", "list"]).lines().count() > JOBS)),
    ] {
        let asked = Instant::now();
        ask();
        println!("{what}: {:?}", asked.elapsed());
    }
    assert!(longest < AT_ONCE, "/healthz: computes for {longest:?}");
}

#[test]
fn a_controller_of_many_jobs_whose_targets_are_away_answers_at_once() {
    measure(&Controller::start(&config((0..TARGETS).map(|_| NOWHERE.to_owned()))));
}

/// The figures of docs/operate.md: `cargo nextest run --release -p thc-controller --run-ignored only --no-capture`.
#[test]
#[ignore = "takes minutes, and a hundred switches of the test's own"]
fn a_controller_of_many_sessions_answers_at_once() {
    let info = include_bytes!("../../../../p4/build/thc.p4info.txtpb");
    let switches: Vec<Strict> = (0..TARGETS).map(|_| Strict::start(p4info::parse(info).unwrap())).collect();
    let controller = Controller::start(&config(switches.iter().map(|switch| switch.address.to_string())));
    controller.until_connected();
    let join = |job: usize, worker: u8| {
        let nonce = (job as u64) << 8 | u64::from(worker);
        let join = Join { nonce, session: Cookie(0), ends: false, fingerprint: 0, definitions: 0 };
        let header = Header::new(Kind::Join, 0, JobId(job as u16), WorkerId(worker), Cookie(COOKIE));
        let mut buffer = [0; MAX_PACKET];
        let payload = header.emit_packet(&mut buffer, &join.to_bytes());
        let at = Ipv4Addr::new(10, 10 + worker, (job >> 8) as u8, job as u8);
        let from = ([2, 0, 0, worker, (job >> 8) as u8, job as u8], SocketAddr::from((at, 5000)));
        let target = job % TARGETS;
        let to = ([2, 0xaa, 0, 0, 0, 1], SocketAddr::from((own_address(target), 9000)));
        switches[target].packet_in(1, Datagram { from, to, ecn: 0, payload }.frame());
    };
    let began = Instant::now();
    let running = || switches.iter().map(|switch| switch.rows("jobs")).sum::<usize>();
    while running() < JOBS {
        assert!(began.elapsed() < Duration::from_secs(600), "{} sessions run", running());
        (0..JOBS).for_each(|job| (0..WORKERS).for_each(|worker| join(job, worker)));
        std::thread::sleep(Duration::from_secs(2));
    }
    println!("{JOBS} sessions begun after {:?}", began.elapsed());
    measure(&controller);
}
