//! Virtual time, a faulty network, the aggregator's shards, and all workers.

use crate::client::{Client, Manner, TxBatch};
use crate::plan::{JobPlan, Truth};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use thc_protocol::aggregator::{Aggregator, DropReason, Endpoint, JobConfig, Lookup, Outcome, Shard, Sink};
use thc_protocol::wire::{Header, Kind, Table};
use thc_protocol::{Ecn, JobId, WorkerId};
use thc_support::Agenda;
use thc_support::random::Rng;

/// What the network does to packets. Chances are per packet and direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Network {
    pub delay: Duration,
    /// Added at random, up to this.
    pub jitter: Duration,
    pub loss: f64,
    pub duplicate: f64,
    /// Chance of a further delay of up to `late_by`.
    pub late: f64,
    pub late_by: Duration,
    /// Chance of a change that a checksum does not notice. (One that it notices is a loss.)
    pub corrupt: f64,
    /// Time a packet takes on a worker's link, each way.
    pub wire_time: Duration,
}

impl Network {
    /// The copies of a packet that arrive, and their delays.
    pub fn travel(&self, rng: &mut Rng, packet: &Rc<[u8]>) -> Vec<(Duration, Rc<[u8]>)> {
        let copies = 1 + usize::from(rng.chance(self.duplicate));
        let mut arriving = Vec::with_capacity(copies);
        for _ in 0..copies {
            if rng.chance(self.loss) {
                continue;
            }
            let mut delay = self.delay + part(self.jitter, rng);
            if rng.chance(self.late) {
                delay += part(self.late_by, rng);
            }
            let mut packet = Rc::clone(packet);
            if rng.chance(self.corrupt) {
                let mut bytes = packet.to_vec();
                let early = rng.chance(0.5);
                let at = rng.below(if early { 20 } else { bytes.len() as u64 }) as usize;
                bytes[at] ^= 1 << rng.below(8);
                packet = bytes.into();
            }
            arriving.push((delay, packet));
        }
        arriving
    }
}

/// What the aggregator suffers.
#[derive(Clone, Debug, Default)]
pub struct Restarts {
    /// It forgets all slots at these times,
    pub at: Vec<Duration>,
    /// and, after these numbers of results in all, right after sending only some copies of one.
    pub at_result: Vec<u64>,
    /// How long it hears nothing after that.
    pub outage: Duration,
}

#[derive(Clone, Debug)]
enum Event {
    Up { client: usize, shard: u8, packet: Rc<[u8]> },
    Down { client: usize, packet: Rc<[u8]> },
    Run { client: usize },
    Forget,
    Crash { client: usize },
}

#[derive(Default)]
pub struct Answers(pub Vec<(Vec<Endpoint>, Rc<[u8]>)>);

impl Sink for Answers {
    fn unicast(&mut self, to: Endpoint, _: Ecn, packet: &[u8]) {
        self.0.push((vec![to], packet.into()));
    }

    fn multicast(&mut self, _: JobId, members: &[Endpoint], _: Ecn, packet: &[u8]) {
        self.0.push((members.to_vec(), packet.into()));
    }
}

pub struct Scene {
    pub rng: Rng,
    pub network: Network,
    pub restarts: Restarts,
    pub clients: Vec<Client>,
    pub shards: Vec<Aggregator>,
    pub now: Duration,
    agenda: Agenda<Event>,
    places: HashMap<Endpoint, usize>,
    deaf_until: Duration,
    results: u64,
    /// Every RESULT sent so far, by job, kind, round and slot.
    copies: HashMap<(u16, u8, u32, u16), Rc<[u8]>>,
    /// Whether copies must be the same (not where packets are corrupted unnoticed, nor after a
    /// restart with a quorum below n).
    pub same_copies: bool,
    /// Packets that were dropped as further ahead than P9 allows, and as of another form than the slot's round.
    pub too_far: u64,
    pub mixed: u64,
    pub packets_up: u64,
    pub packets_down: u64,
    /// Which of the first 64 packets, up and down as they are sent, are lost.
    pub lost: u64,
}

fn endpoint(job: u16, worker: u8) -> Endpoint {
    Endpoint::udp(SocketAddr::from((Ipv4Addr::new(10, (job >> 8) as u8, job as u8, worker), 4000)))
}

impl Scene {
    pub fn new(seed: u64, shards: u8, network: Network, restarts: Restarts) -> Scene {
        let shards = (0..shards).map(|index| Aggregator::new(Shard { index, count: shards }, 1 << 28));
        let mut scene = Scene {
            rng: Rng::new(seed ^ 0x57AB_1E00),
            network,
            clients: Vec::new(),
            shards: shards.collect(),
            now: Duration::ZERO,
            agenda: Agenda::default(),
            places: HashMap::new(),
            deaf_until: Duration::ZERO,
            results: 0,
            copies: HashMap::new(),
            same_copies: network.corrupt == 0.0,
            packets_up: 0,
            packets_down: 0,
            lost: 0,
            too_far: 0,
            mixed: 0,
            restarts,
        };
        for at in scene.restarts.at.clone() {
            scene.schedule(at, Event::Forget);
        }
        scene
    }

    /// Adds a job; `manners` has one entry per worker, `others` the workers that see other calls.
    pub fn add_job(&mut self, plan: &JobPlan, manners: Vec<Manner>, others: &[(u8, JobPlan)]) {
        for shard in &mut self.shards {
            for &Table { id, form, values, .. } in plan.tables.iter() {
                shard.install_table(id, Lookup { form, values }).unwrap();
            }
            let skip = JobConfig::may_skip(plan.policy, plan.config.quorum, plan.config.workers);
            shard.install_job(JobConfig { skip, ..plan.config.clone() }).unwrap();
            for worker in 0..plan.config.workers {
                let at = endpoint(plan.config.job.0, worker);
                shard.set_member(plan.config.job, WorkerId(worker), at).unwrap();
            }
        }
        let truth = Rc::new(Truth::new(plan.clone()));
        let strict = self.network.corrupt == 0.0;
        for (number, manner) in (0u8..).zip(manners) {
            let truth = match others.iter().find(|(worker, _)| *worker == number) {
                Some((_, other)) => Rc::new(Truth::new(other.clone())),
                None => Rc::clone(&truth),
            };
            let client = self.clients.len();
            self.places.insert(endpoint(plan.config.job.0, number), client);
            let shards = self.shards.len() as u8;
            self.clients.push(Client::new(truth, number.into(), shards, manner, strict));
            self.wake(client, Duration::ZERO);
        }
    }

    pub fn crash_at(&mut self, client: usize, at: Duration) {
        self.schedule(at, Event::Crash { client });
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.agenda.add(at.max(self.now), event);
    }

    fn wake(&mut self, client: usize, at: Duration) {
        if self.clients[client].wake.is_none_or(|wake| at < wake) {
            self.clients[client].wake = Some(at);
            self.schedule(at, Event::Run { client });
        }
    }

    /// Runs until every worker is through, has failed or has crashed, and then `after` longer.
    ///
    /// # Panics
    /// If that takes longer than `limit`: somebody waits for ever.
    pub fn run(&mut self, limit: Duration, after: Duration) {
        let mut end = None;
        while let Some((at, event)) = self.agenda.pop() {
            if end.is_some_and(|end| at > end) {
                return;
            }
            assert!(at <= limit, "not through after {limit:?}: {}", self.describe());
            self.now = at;
            self.handle(event);
            if end.is_none() && self.clients.iter().all(|c| c.crashed || c.ended.is_some()) {
                end = Some(self.now + after);
            }
        }
        assert!(end.is_some(), "nothing moves any more: {}", self.describe());
    }

    fn describe(&self) -> String {
        let clients = self.clients.iter().map(|c| {
            let (job, worker) = (c.truth.plan.config.job, c.number);
            let (submitted, pending, stats) = (c.submitted, c.worker.pending_calls(), c.worker.stats());
            format!(
                "job {job} worker {worker}: {submitted} submitted, {pending} pending, ended {:?}, failure {:?}, {stats:?}",
                c.ended,
                c.worker.failure(),
            )
        });
        let plans = self.clients.iter().filter(|c| c.number == 0).map(|c| {
            let plan = &c.truth.plan;
            let calls: Vec<&[u32]> = plan.calls.iter().map(|call| &call.packets[..]).collect();
            format!("{:?}, RTO {:?} to {:?}, calls {calls:?}", plan.config, plan.min_rto, plan.max_rto)
        });
        let manners = self.clients.iter().map(|c| format!("{:?}", c.manner));
        let rows = clients.chain(plans).chain(manners).collect::<Vec<_>>();
        format!("{:?}, {:?}\n{}", self.network, self.restarts, rows.join("\n"))
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Run { client } => {
                let this = &mut self.clients[client];
                if this.wake != Some(self.now) || this.crashed {
                    return;
                }
                this.wake = None;
                let mut out = TxBatch { memory: std::mem::take(&mut this.memory), ..TxBatch::default() };
                let next = this.run(self.now, &mut out);
                this.memory = out.memory;
                for (shard, packet) in out.sent {
                    self.send_up(client, shard, &packet);
                }
                if let Some(next) = next {
                    self.wake(client, next);
                }
            }
            Event::Down { client, packet } => {
                let this = &mut self.clients[client];
                if !this.crashed && self.now >= this.manner.start {
                    this.inbox.push_back(packet);
                    let at = self.now + this.manner.latency;
                    self.wake(client, at);
                }
            }
            Event::Up { client, shard, packet } => self.arrive(client, shard, &packet),
            Event::Forget => self.forget(),
            Event::Crash { client } => self.clients[client].crashed = true,
        }
    }

    fn forget(&mut self) {
        self.shards.iter_mut().for_each(Aggregator::forget_slots);
        self.deaf_until = self.deaf_until.max(self.now + self.restarts.outage);
    }

    fn arrive(&mut self, client: usize, shard: u8, packet: &[u8]) {
        if self.now < self.deaf_until {
            return;
        }
        let this = &self.clients[client];
        let from = endpoint(this.truth.plan.config.job.0, this.number as u8);
        let mut answers = Answers::default();
        let outcome = self.shards[usize::from(shard)].handle(from, packet, &mut answers);
        match outcome {
            Outcome::Dropped(DropReason::Round) => self.too_far += 1,
            Outcome::Dropped(DropReason::Mixed) => self.mixed += 1,
            _ => {}
        }
        for (members, answer) in answers.0 {
            let header = Header::parse(&answer).unwrap().0;
            let result = matches!(header.kind, Kind::Result | Kind::RawResult | Kind::NormResult);
            if result && self.same_copies {
                let class = u8::from(header.kind == Kind::NormResult);
                let key = (header.job.0, class, header.round.0, header.slot.0);
                let first = self.copies.entry(key).or_insert_with(|| Rc::clone(&answer));
                assert!(*first == answer, "copies of a result differ: {header:?}");
            }
            self.results += u64::from(result);
            let partial = result && self.restarts.at_result.contains(&self.results);
            for member in members {
                if !partial || self.rng.chance(0.5) {
                    let client = self.places[&member];
                    self.send_down(client, &answer);
                }
            }
            if partial {
                self.forget();
            }
        }
    }

    /// Whether the packet that has just been counted is one of those that are lost.
    fn is_lost(&self) -> bool {
        let number = self.packets_up + self.packets_down - 1;
        number < 64 && self.lost >> number & 1 == 1
    }

    fn send_up(&mut self, client: usize, shard: u8, packet: &Rc<[u8]>) {
        self.packets_up += 1;
        if self.is_lost() {
            return;
        }
        let free = self.clients[client].up_free.max(self.now) + self.network.wire_time;
        self.clients[client].up_free = free;
        for (delay, packet) in self.network.travel(&mut self.rng, packet) {
            self.schedule(free + delay, Event::Up { client, shard, packet });
        }
    }

    fn send_down(&mut self, client: usize, packet: &Rc<[u8]>) {
        self.packets_down += 1;
        if self.is_lost() {
            return;
        }
        let free = self.clients[client].down_free.max(self.now) + self.network.wire_time;
        self.clients[client].down_free = free;
        for (delay, packet) in self.network.travel(&mut self.rng, packet) {
            self.schedule(free + delay, Event::Down { client, packet });
        }
    }
}

fn part(of: Duration, rng: &mut Rng) -> Duration {
    Duration::from_nanos(rng.below(of.as_nanos() as u64 + 1))
}
