//! Engines and an aggregator in a simulated network: results are those of a network without faults,
//! bit for bit, whatever the network does.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;
use thc_codec::table::LookupTable;
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, Scalar, Shard, Sink};
use thc_protocol::session::{Action, JoinEvent, Joiner, Registry, StaticJob};
use thc_protocol::wire::{BLOCK, HEADER_LEN, Kind, Mode, Welcome};
use thc_protocol::worker::{CallError, SessionError};
use thc_protocol::{Cookie, JobId, Lane, Policy, TableId, WorkerId};
use thc_transport::{PacketIo, SimConfig, SimIo, SimNet};
use thc_worker::{Borrowed, CallOptions, Engine, EngineConfig, WorkerError};

const JOB: JobId = JobId(7);
const COOKIE: Cookie = Cookie(0xC00C1E);

fn ps_addr() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 100), 9000)
}

/// Changes a packet, given where it goes; workers are numbered by their address.
type Tamper = Box<dyn FnMut(SocketAddrV4, &mut Vec<u8>)>;

/// Whether a packet gets in, given where it is from.
type Admits = Box<dyn FnMut(SocketAddrV4, &[u8]) -> bool>;

struct Out<'a>(&'a mut SimIo, &'a mut Option<Tamper>);

impl Out<'_> {
    fn send(&mut self, to: SocketAddrV4, packet: &[u8]) {
        let mut packet = packet.to_vec();
        if let Some(tamper) = self.1 {
            tamper(to, &mut packet);
        }
        self.0.send_run(to, &packet, packet.len()).unwrap();
    }
}

impl Sink for Out<'_> {
    fn unicast(&mut self, to: Endpoint, packet: &[u8]) {
        self.send(to.addr, packet);
    }

    fn multicast(&mut self, _job: JobId, members: &[Endpoint], packet: &[u8]) {
        for member in members {
            self.send(member.addr, packet);
        }
    }
}

struct Ps {
    io: SimIo,
    aggregator: Aggregator<Scalar>,
    registry: Registry,
    job: StaticJob,
    random: u32,
    /// What happens to packets of the aggregator on their way out.
    tamper: Option<Tamper>,
    /// Whether a packet from there gets in.
    admits: Admits,
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
            tamper: None,
            admits: Box::new(|_, _| true),
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
        let mut packets: Vec<(SocketAddrV4, Vec<u8>)> = Vec::new();
        self.io.recv_burst(&mut |from, bytes| packets.push((from, bytes.to_vec()))).unwrap();
        let count = packets.len();
        packets.retain(|(from, bytes)| (self.admits)(*from, bytes));
        for (from, bytes) in packets {
            if bytes[1] & 0x20 == 0 {
                self.aggregator.handle(Endpoint::udp(from), &bytes, &mut Out(&mut self.io, &mut self.tamper));
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

/// The value of a NORM_RESULT.
fn norm_result(packet: &mut [u8]) -> Option<&mut [u8]> {
    (packet[1] == Kind::NormResult as u8).then(|| &mut packet[HEADER_LEN + 4..HEADER_LEN + 8])
}

#[test]
fn a_norm_that_no_worker_may_send_fails_its_call_everywhere_and_the_next_succeeds() {
    for mode in [Mode::Compressed, Mode::Raw] {
        for value in [
            0x7F80_0000_u32,    // +Inf
            f32::MAX.to_bits(), // M overflows
            0x7C80_0001,        // just above 2^122
            1,                  // denormals
            0x0D7F_FFFF,        // just below 2^-100
            0x8000_0000,        // negative
            0xBF80_0000,
            0x7FC0_0000 | 3, // of a worker that there is not
            0x7FC0_0100 | 1,
            0x7F80_0001,
            u32::MAX,
        ] {
            let mut world = World::new(static_job(3, Lane::Bits8, 3, Policy::Reliable), quiet());
            let options = CallOptions { mode, feedback: (mode == Mode::Compressed).then_some(1) };
            let mut data = gradients(3, 10_000, 1);
            for outcome in world.allreduce(&mut data, &[options; 3], |_, _| {}) {
                outcome.unwrap();
            }
            let feedback: Vec<_> = world.engines.iter().map(saved).collect();
            // Frozen in the slot: every copy says so, also one asked for again.
            world.ps.tamper = Some(Box::new(move |_, packet| {
                if let Some(bytes) = norm_result(packet) {
                    bytes.copy_from_slice(&value.to_be_bytes());
                }
            }));
            let mut data = gradients(3, 10_000, 2);
            let before = data.clone();
            let results = world.ps.aggregator.job_counters(JOB).unwrap().results;
            for outcome in world.allreduce(&mut data, &[options; 3], |_, _| {}) {
                let text = outcome.expect_err(&format!("{value:#010x} in {mode:?}")).to_string();
                assert!(text.contains(&format!("{value:#010x}")), "{text}");
            }
            assert_eq!(data, before, "a failed call leaves the data alone");
            assert!(feedback.iter().eq(&world.engines.iter().map(saved).collect::<Vec<_>>()));
            let parts = 4; // 8192, 1024, 784 coordinates, and one call's worth of norms
            assert!(
                world.ps.aggregator.job_counters(JOB).unwrap().results < results + parts,
                "DATA was sent"
            );
            world.ps.tamper = None;
            let mut data = gradients(3, 10_000, 3);
            for outcome in world.allreduce(&mut data, &[options; 3], |_, _| {}) {
                outcome.unwrap();
            }
        }
    }
}

#[test]
fn a_norm_damaged_on_its_way_to_one_worker_is_asked_for_again() {
    let run = |damage: Option<fn(&mut [u8])>| {
        let mut world = World::new(static_job(3, Lane::Bits8, 3, Policy::Reliable), quiet());
        let mut left = 1;
        world.ps.tamper = damage.map(|damage| -> Tamper {
            Box::new(move |to, packet| {
                if to.ip().octets()[3] == 2
                    && let Some(bytes) = norm_result(packet)
                    && std::mem::take(&mut left) == 1
                {
                    damage(bytes);
                }
            })
        });
        let mut data = gradients(3, 10_000, 1);
        for outcome in world.allreduce(&mut data, &[CallOptions::default(); 3], |_, _| {}) {
            outcome.unwrap();
        }
        data
    };
    let clean = run(None);
    assert!(clean == run(Some(|bytes| bytes[0] ^= 0x80)), "a negative norm");
    assert!(clean == run(Some(|bytes| bytes[0] ^= 0x40)), "one beyond the limit");
    assert!(clean == run(Some(|bytes| bytes[0] = 0x20)), "one below the worker's own");
    assert!(clean == run(Some(|bytes| bytes.copy_from_slice(&[0x7F, 0x80, 0, 0]))), "an infinite one");
}

#[test]
fn a_maximum_below_a_workers_own_norm_ends_the_session() {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
    let mut data = gradients(2, 4096, 1);
    data[1].iter_mut().for_each(|x| *x *= 1000.0);
    world.ps.tamper = Some(Box::new(|_, packet| {
        if let Some(bytes) = norm_result(packet) {
            bytes.copy_from_slice(&50f32.to_bits().to_be_bytes());
        }
    }));
    let outcomes = world.allreduce(&mut data, &[CallOptions::default(); 2], |_, _| {});
    let text = outcomes[1].as_ref().expect_err("it sent a larger norm").to_string();
    assert!(text.contains("own"), "{text}");
    assert!(matches!(outcomes[1], Err(WorkerError::Session(_))));
    assert!(outcomes[0].is_err());
}

/// All error feedback of a worker.
fn saved(engine: &Engine<SimIo>) -> Vec<(u64, Vec<u8>)> {
    engine.save_feedback().unwrap()
}

#[test]
fn a_session_that_ends_in_the_middle_leaves_the_feedback_of_all_partitions_alone() {
    // Partitions of 65536, 32768, 1024 and 672 coordinates, and 64 slots: some are fed back long before others end.
    let mut failed = 0;
    let mut succeeded = 0;
    for turn in (1..70).step_by(3) {
        let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
        let options = CallOptions { mode: Mode::Compressed, feedback: Some(5) };
        let mut data = gradients(2, LEN, 1);
        for outcome in world.allreduce(&mut data, &[options; 2], |_, _| {}) {
            outcome.unwrap();
        }
        let before: Vec<_> = world.engines.iter().map(saved).collect();
        let mut data = gradients(2, LEN, 2);
        let outcomes = world.allreduce(&mut data, &[options; 2], |now, ps| {
            if now == turn {
                ps.admits = Box::new(|_, _| false);
            }
        });
        for ((outcome, engine), before) in outcomes.iter().zip(&world.engines).zip(&before) {
            match outcome {
                Ok(()) => {
                    succeeded += 1;
                    assert!(saved(engine) != *before);
                }
                Err(error) => {
                    failed += 1;
                    assert!(matches!(error, WorkerError::Session(_)), "{error}");
                    assert!(saved(engine) == *before, "turn {turn}: half of the feedback was replaced");
                }
            }
        }
    }
    assert!(failed > 10 && succeeded > 0, "{failed} failed, {succeeded} succeeded");
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
fn what_best_effort_gives_up_returns_to_the_error_feedback() {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::BestEffort), quiet());
    let data = gradients(2, 10_000, 3);
    let mut out = data.clone();
    // Packets 2 and 5 of the first partition come from nobody, the 1 of the last from worker 0 alone.
    world.ps.admits = Box::new(|from, packet| {
        let slot = u16::from_be_bytes([packet[16], packet[17]]);
        packet[1] != Kind::Data as u8 || !(slot == 2 || slot == 5 || slot == 9 && from.ip().octets()[3] == 2)
    });
    let options = CallOptions { mode: Mode::Compressed, feedback: Some(1) };
    for outcome in world.allreduce(&mut out, &[options; 2], |_, _| {}) {
        outcome.unwrap();
    }
    assert_eq!(out[0], out[1]);
    // What has been sent and what is kept make up the whole, for each worker; sums are of what all have sent.
    let kept: Vec<Vec<f32>> = world
        .engines
        .iter()
        .map(|engine| {
            saved(engine)[0].1[16..]
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect()
        })
        .collect();
    for i in 0..10_000 {
        let sent = (0..2).map(|w| data[w][i] - kept[w][i]).sum::<f32>() / 2.0;
        assert!((sent - out[0][i]).abs() < 1e-4, "coordinate {i}: {sent} was sent, {} came back", out[0][i]);
    }
    assert!(world.engines.iter().all(|engine| engine.stats().lost == 3));
}

#[test]
fn best_effort_goes_on_without_lost_packets() {
    let mut config = hostile(5);
    config.loss = 0.2;
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

#[test]
fn error_feedback_in_use_is_neither_saved_nor_restored_nor_reset() {
    let mut world = World::new(static_job(2, Lane::Bits8, 2, Policy::Reliable), quiet());
    let options = CallOptions { mode: Mode::Compressed, feedback: Some(1) };
    let mut data = gradients(2, 5000, 1);
    for outcome in world.allreduce(&mut data, &[options; 2], |_, _| {}) {
        outcome.unwrap();
    }
    let engine = &mut world.engines[0];
    let before = saved(engine);
    engine.submit(options, Some(vec![1.0; 5000]), &[], None).unwrap();
    let busy = |result: Result<(), WorkerError>| {
        let Err(error @ WorkerError::FeedbackBusy { key: 1 }) = result else { panic!("{result:?}") };
        assert!(error.to_string().contains("wait for its handle"));
    };
    busy(engine.save_feedback().map(drop));
    busy(engine.restore_feedback(1, 5000, &before[0].1));
    busy(engine.reset_feedback(1));
    busy(engine.submit(options, Some(vec![1.0; 5000]), &[], None).map(drop));
    // Another tensor's is free.
    engine.restore_feedback(2, 5000, &before[0].1).unwrap();
    engine.reset_feedback(2).unwrap();
    engine.end(WorkerError::Closed);
    assert!(saved(engine) == before, "as before the call");
}
