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

/// The processor time that a process has used.
fn cpu_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |field: usize| fields[field].parse::<u64>().unwrap();
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

/// Prints how long answers take and what the controller uses of a core, and checks the longest.
fn measure(controller: &Controller) {
    let (began, before) = (Instant::now(), cpu_time(controller.id()));
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..50 {
        let asked = Instant::now();
        assert!(controller.get("/healthz").0.contains("200 OK"));
        times.push(asked.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    let share = (cpu_time(controller.id()) - before).as_secs_f64() / began.elapsed().as_secs_f64();
    times.sort_unstable();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{:.0} % of a core; /healthz: median {median:?}, longest {longest:?}", 100.0 * share);
    for (what, ask) in [
        ("/metrics", &(|| assert!(controller.get("/metrics").0.contains("200 OK"))) as &dyn Fn()),
        ("job list", &|| assert!(controller.ask_done(&["job", "list"]).lines().count() > JOBS)),
        ("target list", &|| drop(controller.ask_done(&["target", "list"]))),
        ("counters", &|| drop(controller.ask_done(&["counters"]))),
    ] {
        let asked = Instant::now();
        ask();
        println!("{what}: {:?}", asked.elapsed());
    }
    assert!(longest < AT_ONCE, "/healthz took {longest:?}");
}

#[test]
fn a_controller_of_many_jobs_whose_targets_are_away_answers_at_once() {
    let began = Instant::now();
    let controller = Controller::start(&config((0..TARGETS).map(|_| NOWHERE.to_owned())));
    println!("ready after {:?}", began.elapsed());
    measure(&controller);
}

/// The figures of docs/operate.md: `cargo nextest run --release -p thc-controller --run-ignored only --no-capture`.
#[test]
#[ignore = "takes minutes, and a hundred switches of the test's own"]
fn a_controller_of_many_sessions_answers_at_once() {
    let info = include_bytes!("../../../../p4/build/thc.p4info.txtpb");
    let switches: Vec<Strict> = (0..TARGETS).map(|_| Strict::start(p4info::parse(info).unwrap())).collect();
    let began = Instant::now();
    let controller = Controller::start(&config(switches.iter().map(|switch| switch.address.to_string())));
    println!("ready after {:?}", began.elapsed());
    controller.until_connected();
    println!("connected after {:?}", began.elapsed());
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
        switches[target].packet_in(Datagram { from, to, ecn: 0, payload }.frame());
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
