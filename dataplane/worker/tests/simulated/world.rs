//! Engines and an aggregator in a simulated network, in virtual time.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use thc_codec::table::LookupTable;
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfig, Scalar, Shard, Sink};
use thc_protocol::session::{Action, JoinEvent, Joiner, Joiners, Registry, StaticJob};
use thc_protocol::wire::{Form, Table, Tables, Welcome};
use thc_protocol::{Cookie, Ecn, JobId, Lane, Policy, TableId, WorkerId};
pub use thc_support::random::seeds;
use thc_support::{SimConfig, SimIo, SimNet, wire_table};
use thc_transport::{Origin, PacketIo};
use thc_worker::{Borrowed, Call, Engine, EngineConfig, Rounding, WorkerError};

pub const JOB: JobId = JobId(7);
pub const COOKIE: Cookie = Cookie(0xC00C1E);

pub fn ps_addr() -> SocketAddr {
    share_addr(0)
}

/// The last byte of an address.
pub fn host_of(at: SocketAddr) -> u8 {
    thc_p4::rows::address_number(at.ip()) as u8
}

/// Where a share of the server is.
pub fn share_addr(share: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 100 + share), 9000))
}

/// Does something to the shares beside the first, given the number of turns so far.
pub type Meddle = Box<dyn FnMut(u64, &mut Vec<Ps>)>;

/// Changes a packet, given where it goes; workers are numbered by their address.
pub type Tamper = Box<dyn FnMut(SocketAddr, &mut Vec<u8>)>;

/// Whether a packet gets in, given where it is from.
pub type Admits = Box<dyn FnMut(SocketAddr, &[u8]) -> bool>;

struct Out<'a>(&'a mut SimIo, &'a mut Option<Tamper>);

impl Out<'_> {
    fn send(&mut self, to: SocketAddr, ecn: Ecn, packet: &[u8]) {
        let mut packet = packet.to_vec();
        if let Some(tamper) = self.1 {
            tamper(to, &mut packet);
        }
        self.0.send_run_with(to, &packet, packet.len(), ecn.bits()).unwrap();
    }
}

impl Sink for Out<'_> {
    fn unicast(&mut self, to: Endpoint, ecn: Ecn, packet: &[u8]) {
        self.send(to.addr, ecn, packet);
    }

    fn multicast(&mut self, _job: JobId, members: &[Endpoint], ecn: Ecn, packet: &[u8]) {
        for member in members {
            self.send(member.addr, ecn, packet);
        }
    }
}

pub struct Ps {
    pub io: SimIo,
    pub aggregator: Aggregator<Scalar>,
    pub registry: Registry,
    job: StaticJob,
    share: u8,
    random: u32,
    /// What happens to packets of the aggregator on their way out.
    pub tamper: Option<Tamper>,
    /// Whether a packet from there gets in.
    pub admits: Admits,
}

fn install_tables(aggregator: &mut Aggregator, job: &StaticJob) {
    for table in job.welcome.tables.iter() {
        aggregator.install_table(table.id, table.into()).unwrap();
    }
}

impl Ps {
    pub fn new(net: &SimNet, job: StaticJob, share: u8) -> Ps {
        Ps::listen_at(net, share_addr(share), job, share)
    }

    fn listen_at(net: &SimNet, addr: SocketAddr, job: StaticJob, share: u8) -> Ps {
        Ps {
            io: net.endpoint(addr),
            aggregator: Ps::aggregator(&job),
            registry: Ps::registry(&job, share),
            job,
            share,
            random: 99,
            tamper: None,
            admits: Box::new(|_, _| true),
        }
    }

    /// A process that was killed and started again: it knows nothing but its configuration.
    pub fn restart(&mut self) {
        self.aggregator = Ps::aggregator(&self.job);
        self.registry = Ps::registry(&self.job, self.share);
    }

    fn aggregator(job: &StaticJob) -> Aggregator<Scalar> {
        let mut aggregator = Aggregator::new(Shard::WHOLE, 1 << 30);
        install_tables(&mut aggregator, job);
        aggregator
    }

    fn registry(job: &StaticJob, share: u8) -> Registry {
        if share == 0 { Registry::new([job.clone()]) } else { Registry::follower([job.clone()]) }
    }

    pub fn serve(&mut self) -> usize {
        let now = self.io.now();
        let mut packets: Vec<(Origin, Vec<u8>)> = Vec::new();
        self.io.recv_burst(&mut |origin, bytes| packets.push((origin, bytes.to_vec()))).unwrap();
        let count = packets.len();
        packets.retain(|(origin, bytes)| (self.admits)(origin.from, bytes));
        for (Origin { from, ecn, .. }, bytes) in packets {
            if bytes[1] & 0x20 == 0 {
                let mut out = Out(&mut self.io, &mut self.tamper);
                self.aggregator.handle_with(Endpoint::udp(from), Ecn::of_bits(ecn), &bytes, &mut out);
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
            self.act(actions);
        }
        let actions = self.registry.poll(now, |_, _| None);
        self.act(actions);
        count
    }

    fn act(&mut self, actions: Vec<Action>) {
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
                Action::RootDiffers(..) | Action::RootRefuses(..) => panic!("there is no root"),
            }
        }
    }
}

pub fn static_job(workers: u8, lane: Lane, quorum: u8, policy: Policy) -> StaticJob {
    let table = LookupTable::solve(4, 30, 1.0 / 32.0).unwrap();
    let table = Table { id: TableId(3), ..wire_table(Form::new(4, lane).unwrap(), &table) };
    let welcome = Welcome {
        data_slots: 64,
        norm_slots: 8,
        quorum,
        policy,
        deadline: Duration::from_millis(50),
        job_seed: 42,
        marks: true,
        ..Welcome::new(workers, Tables::one(table))
    };
    StaticJob::new(JobConfig::from_welcome(JOB, COOKIE, &welcome), welcome)
}

pub struct World {
    pub net: SimNet,
    pub ps: Ps,
    /// The shares beside the first.
    pub others: Vec<Ps>,
    pub meddle: Option<Meddle>,
    pub engines: Vec<Engine<SimIo>>,
}

impl World {
    pub fn new(job: StaticJob, faults: SimConfig) -> World {
        World::with_threads(job, faults, 1)
    }

    pub fn with_threads(job: StaticJob, faults: SimConfig, threads: usize) -> World {
        World::one_of_several(&SimNet::new(faults), job, 0, threads)
    }

    /// One of several of a network, each with a server of its own on the same host.
    pub fn one_of_several(net: &SimNet, job: StaticJob, number: u8, threads: usize) -> World {
        let net = net.clone();
        let at = SocketAddr::from((ps_addr().ip(), ps_addr().port() + u16::from(number)));
        let mut ps = Ps::listen_at(&net, at, job.clone(), 0);
        let mut others: Vec<_> =
            (1..job.welcome.shares.servers()).map(|share| Ps::new(&net, job.clone(), share)).collect();
        let mut joining: Vec<_> = (0..job.config.workers)
            .map(|w| {
                let addr = SocketAddr::from((Ipv4Addr::new(10, 0, number, w + 1), 5000));
                let io = net.endpoint(addr);
                let joiner = Joiner::new(JOB, WorkerId(w), COOKIE, 1000 + u64::from(w), 0, io.now());
                (io, Joiners::new(joiner), None)
            })
            .collect();
        let mut buffer = [0; 64];
        while joining.iter().any(|(_, _, welcome)| welcome.is_none()) {
            for (io, joiners, welcome) in &mut joining {
                let now = io.now();
                while let Some((share, packet)) = joiners.poll(now, &mut buffer) {
                    let to = if share == 0 { at } else { share_addr(share as u8) };
                    io.send_run(to, packet, packet.len()).unwrap();
                }
                io.recv_burst(&mut |origin, packet| {
                    let share = usize::from(host_of(origin.from) - 100);
                    if let Some(JoinEvent::Welcome(w)) = joiners.handle(now, share, packet) {
                        *welcome = Some(w);
                    }
                })
                .unwrap();
            }
            ps.serve();
            for share in &mut others {
                share.serve();
            }
            let now = net.now();
            net.advance_to(now + Duration::from_micros(200));
            ps.serve();
            for share in &mut others {
                share.serve();
            }
        }
        let engines = (0u8..)
            .zip(joining)
            .map(|(w, (io, joiners, welcome))| {
                let config = EngineConfig {
                    ps: at,
                    job: JOB,
                    worker: WorkerId(w),
                    timeout: Duration::from_secs(20),
                    patience: Duration::ZERO,
                    min_rto: Duration::from_millis(2),
                    rounding: Rounding::Stratified,
                    threads,
                };
                Engine::new(io, config, joiners, &welcome.unwrap(), 4096).unwrap()
            })
            .collect();
        World { net, ps, others, meddle: None, engines }
    }

    /// One all-reduce on every worker; `at` is called with the number of turns so far.
    pub fn allreduce(
        &mut self,
        data: &mut [Vec<f32>],
        calls: &[Call<'_>],
        at: impl FnMut(u64, &mut Ps),
    ) -> Vec<Result<(), WorkerError>> {
        let calls = self.engines.iter_mut().zip(data.iter()).zip(calls);
        let numbers = calls.map(|((engine, data), &call)| engine.submit(data.len(), call)).collect();
        self.reduce(data, numbers, at)
    }

    fn reduce(
        &mut self,
        data: &mut [Vec<f32>],
        numbers: Vec<Result<u64, WorkerError>>,
        mut at: impl FnMut(u64, &mut Ps),
    ) -> Vec<Result<(), WorkerError>> {
        let mut outcomes: Vec<Option<Result<(), WorkerError>>> =
            numbers.iter().map(|n| n.as_ref().err().map(|e| Err(e.clone()))).collect();
        let mut turn = 0;
        while outcomes.iter().any(Option::is_none) {
            turn += 1;
            assert!(turn < 3_000_000, "no end: {outcomes:?} at {:?}", self.net.now());
            at(turn, &mut self.ps);
            if let Some(meddle) = &mut self.meddle {
                meddle(turn, &mut self.others);
            }
            self.turn(|i, engine| {
                let Ok(number) = numbers[i] else { return false };
                let busy = if engine.failure().is_some() {
                    engine.serve_others().unwrap();
                    false
                } else {
                    engine.step(&mut Borrowed::new(number, &mut data[i]))
                };
                if outcomes[i].is_none() {
                    outcomes[i] = engine.take_outcome(number);
                }
                busy
            });
        }
        outcomes.into_iter().map(Option::unwrap).collect()
    }

    /// Has the servers serve, and each engine do what `step` does with it; if nobody was busy, time goes on.
    pub fn turn(&mut self, mut step: impl FnMut(usize, &mut Engine<SimIo>) -> bool) {
        let mut busy = self.ps.serve() > 0;
        self.others.iter_mut().for_each(|share| busy |= share.serve() > 0);
        for (i, engine) in self.engines.iter_mut().enumerate() {
            busy |= step(i, engine);
        }
        if !busy {
            let due = self.engines.iter().filter_map(Engine::deadline).min();
            let next = self.net.next_event().into_iter().chain(due).min();
            let now = self.net.now();
            self.net.advance_to(next.unwrap_or(now).max(now + Duration::from_micros(10)));
        }
    }
}

pub fn gradients(workers: usize, len: usize, seed: u64) -> Vec<Vec<f32>> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 2.0
    };
    (0..workers).map(|_| (0..len).map(|_| next() * next() * next()).collect()).collect()
}

pub fn quiet() -> SimConfig {
    SimConfig { seed: 1, latency: Duration::from_micros(20), ..SimConfig::default() }
}

pub fn hostile(seed: u64) -> SimConfig {
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

pub fn nmse(mean: &[f32], estimate: &[f32]) -> f64 {
    let error: f64 = mean.iter().zip(estimate).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    error / mean.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>()
}

pub fn exact_mean(data: &[Vec<f32>]) -> Vec<f32> {
    (0..data[0].len())
        .map(|i| (data.iter().map(|d| f64::from(d[i])).sum::<f64>() / data.len() as f64) as f32)
        .collect()
}

pub const LEN: usize = 100_000;

/// All error feedback of a worker.
pub fn saved_feedback(engine: &Engine<SimIo>) -> Vec<(u64, Vec<u8>)> {
    engine.feedback().unwrap().to_bytes()
}
