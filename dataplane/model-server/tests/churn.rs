//! Workers come, leave, are killed and come again, and the server dies as well: no number is wrong, and whoever stays goes on.
//!
//! Every push takes 1 from every coordinate, so in each shard x is −version. A mixture of versions, a push that was applied twice or half, or an
//! older file in the place of a newer one is a wrong number. A worker that is killed holds a version that it will never answer, for
//! which nobody waits.
#![allow(clippy::unwrap_used)]

mod program;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use program::{Running, SECRET, free_address};
use thc_model::{Client, ClientConfig, ModelBits, Pull, Push, Spec};

/// How long nothing may happen until a test counts as hung.
const HANG: Duration = Duration::from_secs(300);
const LEN: usize = 600;
const SHARD: usize = 100;
/// Workers that stay; the numbers of those that come and go are above.
const STAYING: u16 = 2;
const WORKERS: u16 = 6;
/// Tells a worker process where its server is, and its number.
const ORDER: &str = "THC_CHURN_WORKER";

fn spec() -> Spec {
    Spec {
        bits: ModelBits::Fixed(32),
        shard: SHARD as u32,
        workers: WORKERS,
        delay: Some(u32::from(WORKERS)),
        ..Spec::sgd(LEN as u64, 1.0)
    }
}

fn open(server: SocketAddr, worker: u16) -> Client {
    let config = ClientConfig {
        server: server.to_string(),
        secret: SECRET.into(),
        worker,
        timeout: HANG,
        ..ClientConfig::default()
    };
    let mut client = Client::open(config, "m", spec()).unwrap();
    client.initialise(&[0.0; LEN]).unwrap();
    client
}

/// Pulls, checks every number, and pushes: how many shards have taken the push.
fn step(client: &mut Client) -> usize {
    let mut x = vec![0.0; LEN];
    let pulled = client.pull(&mut x, Pull::default()).unwrap();
    for (x, stamp) in x.chunks(SHARD).zip(pulled.stamps()) {
        assert!(
            x.iter().all(|v| *v == -(stamp.version as f32)),
            "{:?} at version {}",
            &x[..3],
            stamp.version
        );
    }
    let pushed = client.push(&[1.0; LEN], Push::bits(32)).unwrap();
    assert!(pushed.delay <= u64::from(WORKERS), "{pushed:?}");
    pushed.accepted_shards
}

/// A worker process, until it is killed or its standard input ends.
#[test]
#[ignore = "a process of the tests beside it"]
fn worker_process() {
    let order = std::env::var(ORDER).unwrap();
    let (server, worker) = order.split_once(' ').unwrap();
    let mut client = open(server.parse().unwrap(), worker.parse().unwrap());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            step(&mut client);
        }
    });
}

fn spawn_worker(server: SocketAddr, worker: u16) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "worker_process", "--ignored", "--nocapture"])
        .env(ORDER, format!("{server} {worker}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until all who stay have pushed again.
fn wait_for_steps(steps: &[AtomicU64]) {
    let before: Vec<u64> = steps.iter().map(|steps| steps.load(Ordering::Relaxed)).collect();
    let hung = Instant::now() + HANG;
    while steps.iter().zip(&before).any(|(steps, before)| steps.load(Ordering::Relaxed) == *before) {
        assert!(Instant::now() < hung, "a worker that stays makes no steps any more");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What has happened, how many times.
#[derive(Debug, Default)]
struct Events {
    came: u32,
    left: u32,
    killed: u32,
    server_killed: u32,
    steps: u64,
}

fn churn(rounds: u32, limit: Duration, seed: u64) -> Events {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let state = folder.path().to_str().unwrap();
    let start = || {
        let flags = ["--job", "train", "--durable", "30ms", "--state", state];
        Running::start_with(address, &flags)
    };
    let mut server = start();
    let (stop, steps) = (AtomicBool::new(false), [(); STAYING as usize].map(|()| AtomicU64::new(0)));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut events = Events::default();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for (worker, steps) in (0..).zip(&steps) {
            let stop = &stop;
            scope.spawn(move || {
                let mut client = open(address, worker);
                while !stop.load(Ordering::Relaxed) {
                    if step(&mut client) > 0 {
                        steps.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut guests: BTreeMap<u16, Child> = BTreeMap::new();
        for round in 1..=rounds {
            if began.elapsed() > limit {
                println!(
                    "ended after {} of {rounds} rounds: {limit:?} are over (THC_CHURN_LIMIT)",
                    round - 1
                );
                break;
            }
            let worker = random.u16(STAYING..WORKERS);
            match guests.remove(&worker) {
                None => {
                    guests.insert(worker, spawn_worker(address, worker));
                    events.came += 1;
                }
                Some(mut guest) if random.bool() => {
                    guest.kill().unwrap();
                    guest.wait().unwrap();
                    events.killed += 1;
                }
                Some(mut guest) => {
                    drop(guest.stdin.take());
                    assert!(guest.wait().unwrap().success(), "worker {worker} has seen a wrong number");
                    events.left += 1;
                }
            }
            if round % 4 == 0 {
                server.kill();
                server = start();
                events.server_killed += 1;
            }
            wait_for_steps(&steps);
            for (worker, guest) in &mut guests {
                assert!(guest.try_wait().unwrap().is_none(), "worker {worker} has ended by itself");
            }
            if round % 50 == 0 {
                println!("{:5.0} s  {round} of {rounds} rounds: {events:?}", began.elapsed().as_secs_f64());
            }
        }
        for guest in guests.values_mut() {
            guest.kill().unwrap();
            guest.wait().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    events.steps = steps.iter().map(|steps| steps.load(Ordering::Relaxed)).sum();
    events
}

#[test]
fn workers_come_and_go() {
    let events = churn(16, HANG, 1);
    println!("{events:?}");
    assert!(
        events.came > 0 && events.left > 0 && events.killed > 0 && events.server_killed == 4,
        "{events:?}"
    );
}

/// `make soak-async`
#[test]
#[ignore = "takes minutes"]
fn workers_come_and_go_for_long() {
    let variable = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let limit = Duration::from_secs(60 * variable("THC_CHURN_LIMIT", 20));
    let events = churn(variable("THC_CHURN", 500) as u32, limit, variable("THC_CHURN_SEED", 1));
    println!("{events:?}");
}
