//! Engines and an aggregator in a simulated network: results are those of a network without faults,
//! bit for bit, whatever the network does.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;
use thc_codec::table::LookupTable;
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, Scalar, Shard, Sink};
use thc_protocol::session::{Action, JoinEvent, Joiner, Registry, StaticJob};
use thc_protocol::wire::{BLOCK, Mode, Welcome};
use thc_protocol::worker::{CallError, SessionError};
use thc_protocol::{Cookie, JobId, Lane, Policy, TableId, WorkerId};
use thc_transport::{PacketIo, SimConfig, SimIo, SimNet};
use thc_worker::{Borrowed, CallOptions, Engine, EngineConfig, WorkerError};

const JOB: JobId = JobId(7);
const COOKIE: Cookie = Cookie(0xC00C1E);

fn ps_addr() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 100), 9000)
}

struct Out<'a>(&'a mut SimIo);

impl Sink for Out<'_> {
    fn unicast(&mut self, to: Endpoint, packet: &[u8]) {
        self.0.send_run(to.addr, packet, packet.len()).unwrap();
    }

    fn multicast(&mut self, _job: JobId, members: &[Endpoint], packet: &[u8]) {
        for member in members {
            self.0.send_run(member.addr, packet, packet.len()).unwrap();
        }
    }
}

struct Ps {
    io: SimIo,
    aggregator: Aggregator<Scalar>,
    registry: Registry,
    job: StaticJob,
    random: u32,
}

impl Ps {
    fn new(net: &SimNet, job: StaticJob) -> Ps {
        let mut aggregator = Aggregator::new(Shard::WHOLE, 1 << 30);
        aggregator.install_table(job.welcome.table, job.welcome.values).unwrap();
        Ps {
            io: net.endpoint(ps_addr()),
            aggregator,
            registry: Registry::new([job.clone()]),
            job,
            random: 99,
        }
    }

    /// A process that was killed and started again: it knows nothing but its configuration.
    fn restart(&mut self) {
        self.aggregator = Aggregator::new(Shard::WHOLE, 1 << 30);
        self.aggregator.install_table(self.job.welcome.table, self.job.welcome.values).unwrap();
        self.registry = Registry::new([self.job.clone()]);
    }

    fn serve(&mut self) -> usize {
        let now = self.io.now();
        let mut packets = Vec::new();
        self.io.recv_burst(&mut |from, bytes| packets.push((from, bytes.to_vec()))).unwrap();
        let count = packets.len();
        for (from, bytes) in packets {
            if bytes[1] & 0x20 == 0 {
                self.aggregator.handle(Endpoint::udp(from), &bytes, &mut Out(&mut self.io));
                continue;
            }
            let random = &mut self.random;
            let actions = self.registry.handle(
                now,
                from,
                &bytes,
                |_, _| None,
                || {
                    *random += 1;
                    *random
                },
            );
            for action in actions {
                match action {
                    Action::Install(config, members) => {
                        let job = config.job;
                        self.aggregator.install_job(config).unwrap();
                        for (worker, at) in members {
                            self.aggregator.set_member(job, worker, at).unwrap();
                        }
                    }
                    Action::Move(job, worker, at) => self.aggregator.set_member(job, worker, at).unwrap(),
                    Action::Remove(job) => {
                        self.aggregator.remove_job(job);
                    }
                    Action::Send(to, bytes) => self.io.send_run(to, &bytes, bytes.len()).unwrap(),
                }
            }
        }
        count
    }
}

fn static_job(workers: u8, lane: Lane, quorum: u8, policy: Policy) -> StaticJob {
    let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
    StaticJob {
        config: JobConfig {
            job: JOB,
            cookie: COOKIE,
            workers,
            quorum,
            data_slots: 64,
            norm_slots: 8,
            lane,
            tables: vec![TableId(3)],
        },
        welcome: Welcome {
            session: Cookie(0),
            data_slots: 64,
            norm_slots: 8,
            quorum,
            lane,
            policy,
            shards: 1,
            deadline: Duration::from_millis(50),
            table: TableId(3),
            bits: 4,
            granularity: 30,
            fraction: 1.0 / 32.0,
            values: table.values16(),
            job_seed: 42,
            nonce: 0,
            t_p: table.t_p(),
            block: BLOCK,
            min_workers: workers,
            max_workers: workers,
            credit: 0,
            features: 0,
        },
    }
}

struct World {
    net: SimNet,
    ps: Ps,
    engines: Vec<Engine<SimIo>>,
}

impl World {
    fn new(job: StaticJob, faults: SimConfig) -> World {
        World::with_threads(job, faults, 1)
    }

    fn with_threads(job: StaticJob, faults: SimConfig, threads: usize) -> World {
        let net = SimNet::new(faults);
        let mut ps = Ps::new(&net, job.clone());
        let mut joining: Vec<_> = (0..job.config.workers)
            .map(|w| {
                let addr = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, w + 1), 5000);
                let io = net.endpoint(addr);
                let joiner = Joiner::new(JOB, WorkerId(w), COOKIE, 1000 + u64::from(w), 0, io.now());
                (io, joiner, None)
            })
            .collect();
        let mut buffer = [0; 64];
        while joining.iter().any(|(_, _, welcome)| welcome.is_none()) {
            for (io, joiner, welcome) in &mut joining {
                let now = io.now();
                if let Some(packet) = joiner.poll(now, &mut buffer) {
                    io.send_run(ps_addr(), packet, packet.len()).unwrap();
                }
                io.recv_burst(&mut |_, packet| {
                    if let Some(JoinEvent::Welcome(w, n)) = joiner.handle(now, packet) {
                        *welcome = Some((w, n));
                    }
                })
                .unwrap();
            }
            ps.serve();
            let now = net.now();
            net.advance_to(now + Duration::from_micros(200));
            ps.serve();
        }
        let engines = (0u8..)
            .zip(joining)
            .map(|(w, (io, joiner, welcome))| {
                let (welcome, n) = welcome.unwrap();
                let config = EngineConfig {
                    ps: ps_addr(),
                    job: JOB,
                    worker: WorkerId(w),
                    timeout: Duration::from_secs(20),
                    min_rto: Duration::from_millis(2),
                    seed: None,
                    threads,
                };
                Engine::new(io, config, joiner, &welcome, n, 4096).unwrap()
            })
            .collect();
        World { net, ps, engines }
    }

    /// One all-reduce on every worker; `at` is called with the number of turns so far.
    fn allreduce(
        &mut self,
        data: &mut [Vec<f32>],
        options: &[CallOptions],
        mut at: impl FnMut(u64, &mut Ps),
    ) -> Vec<Result<(), WorkerError>> {
        let numbers: Vec<_> = self
            .engines
            .iter_mut()
            .zip(data.iter())
            .zip(options)
            .map(|((engine, data), &options)| engine.submit(options, None, data, None))
            .collect();
        let mut outcomes: Vec<Option<Result<(), WorkerError>>> =
            numbers.iter().map(|n| n.as_ref().err().map(|e| Err(e.clone()))).collect();
        let mut turn = 0;
        while outcomes.iter().any(Option::is_none) {
            turn += 1;
            assert!(turn < 3_000_000, "no end: {outcomes:?} at {:?}", self.net.now());
            at(turn, &mut self.ps);
            let mut busy = self.ps.serve() > 0;
            for (i, engine) in self.engines.iter_mut().enumerate() {
                let Ok(number) = numbers[i] else { continue };
                if engine.failure().is_some() {
                    engine.serve_others().unwrap();
                } else {
                    busy |= engine.step(&mut Borrowed::new(number, &mut data[i]));
                }
                if outcomes[i].is_none() {
                    outcomes[i] = engine.take_outcome(number);
                }
            }
            if !busy {
                let due = self.engines.iter().filter_map(Engine::deadline).min();
                let next = self.net.next_event().into_iter().chain(due).min();
                let now = self.net.now();
                self.net.advance_to(next.unwrap_or(now).max(now + Duration::from_micros(10)));
            }
        }
        outcomes.into_iter().map(Option::unwrap).collect()
    }
}

fn gradients(workers: usize, len: usize, seed: u64) -> Vec<Vec<f32>> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 2.0
    };
    (0..workers).map(|_| (0..len).map(|_| next() * next() * next()).collect()).collect()
}

fn quiet() -> SimConfig {
    SimConfig { seed: 1, latency: Duration::from_micros(20), ..SimConfig::default() }
}

fn hostile(seed: u64) -> SimConfig {
    SimConfig {
        seed,
        latency: Duration::from_micros(50),
        jitter: Duration::from_micros(20),
        loss: 0.01,
        duplicate: 0.01,
        reorder: 0.01,
        corrupt: 0.005,
        ..SimConfig::default()
    }
}

fn nmse(mean: &[f32], estimate: &[f32]) -> f64 {
    let error: f64 = mean.iter().zip(estimate).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    error / mean.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>()
}

fn exact_mean(data: &[Vec<f32>]) -> Vec<f32> {
    (0..data[0].len())
        .map(|i| (data.iter().map(|d| f64::from(d[i])).sum::<f64>() / data.len() as f64) as f32)
        .collect()
}

const LEN: usize = 100_000;

#[test]
fn all_workers_get_the_same_mean() {
    for lane in [Lane::Bits8, Lane::Bits16] {
        let mut world = World::new(static_job(4, lane, 4, Policy::Reliable), quiet());
        let data = gradients(4, LEN, 3);
        let mean = exact_mean(&data);
        let mut out = data.clone();
        for outcome in world.allreduce(&mut out, &[CallOptions::default(); 4], |_, _| {}) {
            outcome.unwrap();
        }
        assert!(out.iter().all(|o| o == &out[0]), "bit-identical on all workers");
        let error = nmse(&mean, &out[0]);
        assert!(error < 0.03, "NMSE {error}");
    }
}

#[test]
fn raw_is_exact_to_f32() {
    let mut world = World::new(static_job(3, Lane::Bits8, 3, Policy::Reliable), quiet());
    let data = gradients(3, 5000, 3);
    let mean = exact_mean(&data);
    let mut out = data.clone();
    let options = CallOptions { mode: Mode::Raw, feedback: None };
    for outcome in world.allreduce(&mut out, &[options; 3], |_, _| {}) {
        outcome.unwrap();
    }
    let scale = mean.iter().fold(0f32, |m, v| m.max(v.abs()));
    for (a, b) in mean.iter().zip(&out[0]) {
        assert!((a - b).abs() <= scale * 2f32.powi(-22), "{a} {b}");
    }
}

fn run_three(config: SimConfig, restarts: &[u64]) -> Vec<Vec<f32>> {
    let mut world = World::new(static_job(4, Lane::Bits8, 4, Policy::Reliable), config);
    let mut results = Vec::new();
    for call in 0..3 {
        let mut out = gradients(4, LEN, call);
        let options = CallOptions { mode: Mode::Compressed, feedback: Some(5) };
        let outcomes = world.allreduce(&mut out, &[options; 4], |turn, ps| {
            if restarts.contains(&turn) {
                ps.restart();
            }
        });
        for outcome in outcomes {
            outcome.unwrap();
        }
        assert!(out.iter().all(|o| o == &out[0]));
        results.push(out.swap_remove(0));
    }
    results
}

#[test]
fn loss_changes_no_bit() {
    let clean = run_three(quiet(), &[]);
    for seed in 0..4 {
        assert!(run_three(hostile(seed), &[]) == clean, "seed {seed}");
    }
}

#[test]
fn threads_change_no_bit() {
    let run = |threads| {
        let mut job = static_job(2, Lane::Bits8, 2, Policy::Reliable);
        job.config.data_slots = 4096;
        job.welcome.data_slots = 4096;
        let mut world = World::with_threads(job, quiet(), threads);
        let options = CallOptions { mode: Mode::Compressed, feedback: Some(5) };
        let mut results = Vec::new();
        for call in 0..2 {
            let mut out = gradients(2, 5_000_000, call);
            for outcome in world.allreduce(&mut out, &[options; 2], |_, _| {}) {
                outcome.unwrap();
            }
            results.append(&mut out);
        }
        results
    };
    assert!(run(1) == run(3));
}

#[test]
fn a_restarted_parameter_server_changes_no_bit() {
    let clean = run_three(quiet(), &[]);
    assert!(run_three(quiet(), &[3, 20, 37]) == clean);
    assert!(run_three(hostile(9), &[11, 40, 200]) == clean);
}

#[test]
fn error_feedback_makes_up_for_what_was_lost() {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
    let data = gradients(2, 4096, 8);
    let mean = exact_mean(&data);
    let options = CallOptions { mode: Mode::Compressed, feedback: Some(1) };
    let mut sum = vec![0f64; 4096];
    let rounds = 30;
    for _ in 0..rounds {
        let mut out = data.clone();
        for outcome in world.allreduce(&mut out, &[options; 2], |_, _| {}) {
            outcome.unwrap();
        }
        sum.iter_mut().zip(&out[0]).for_each(|(s, v)| *s += f64::from(*v));
    }
    let average: Vec<f32> = sum.iter().map(|s| (s / f64::from(rounds)) as f32).collect();
    let error = nmse(&mean, &average);
    assert!(error < 1e-4, "the error of the average of {rounds} rounds is {error}");
}

#[test]
fn nan_fails_everywhere_and_the_next_call_succeeds() {
    let mut world = World::new(static_job(3, Lane::Bits8, 3, Policy::Reliable), quiet());
    let mut data = gradients(3, 10_000, 1);
    data[1][9_000] = f32::NAN;
    let before = data.clone();
    for outcome in world.allreduce(&mut data, &[CallOptions::default(); 3], |_, _| {}) {
        let Err(WorkerError::Call(CallError::NonFinite { worker })) = outcome else { panic!("{outcome:?}") };
        assert_eq!(worker, WorkerId(1));
    }
    assert_eq!(data[0], before[0], "a failed call leaves the data alone");
    let mut data = gradients(3, 10_000, 2);
    for outcome in world.allreduce(&mut data, &[CallOptions::default(); 3], |_, _| {}) {
        outcome.unwrap();
    }
}

#[test]
fn different_lengths_are_an_error_that_shows_both() {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
    let mut data = vec![vec![1.0; 5000], vec![1.0; 6000]];
    for outcome in world.allreduce(&mut data, &[CallOptions::default(); 2], |_, _| {}) {
        let Err(error @ WorkerError::Session(SessionError::Mismatch { .. })) = outcome else {
            panic!("{outcome:?}")
        };
        let text = error.to_string();
        assert!(text.contains("5000") && text.contains("6000"), "{text}");
    }
}

#[test]
fn zero_gradients_need_no_data() {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
    let mut data = vec![vec![0.0; 3000]; 2];
    let options = CallOptions { mode: Mode::Compressed, feedback: Some(1) };
    for outcome in world.allreduce(&mut data, &[options; 2], |_, _| {}) {
        outcome.unwrap();
    }
    assert!(data.iter().flatten().all(|v| *v == 0.0));
    let counters = world.ps.aggregator.job_counters(JOB).unwrap();
    assert_eq!(counters.results, 2, "two norms and nothing else");
}

#[test]
fn best_effort_goes_on_without_lost_packets() {
    let mut config = hostile(5);
    config.loss = 0.02;
    let mut world = World::new(static_job(4, Lane::Bits8, 4, Policy::BestEffort), config);
    let data = gradients(4, LEN, 3);
    let mean = exact_mean(&data);
    let mut out = data.clone();
    for outcome in world.allreduce(&mut out, &[CallOptions::default(); 4], |_, _| {}) {
        outcome.unwrap();
    }
    for (engine, out) in world.engines.iter().zip(&out) {
        let lost = engine.stats().lost;
        assert!(lost > 0, "the network lost packets");
        let error = nmse(&mean, out);
        assert!(
            error < 0.03 + lost as f64 * 1024.0 / LEN as f64 * 1.5,
            "NMSE {error} with {lost} packets lost"
        );
    }
}
