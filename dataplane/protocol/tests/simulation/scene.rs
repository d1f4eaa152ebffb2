//! Virtual time, a faulty network, aggregators, and all workers: those of one aggregator, or in racks below a root.

use crate::client::{Client, Manner, TxBatch};
use crate::plan::{JobPlan, Truth};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use thc_protocol::aggregator::{
    Aggregator, DropReason, Endpoint, JobConfig, Level, Lookup, Outcome, Shard, Sink,
};
use thc_protocol::wire::{Header, Kind, Table};
use thc_protocol::{Ecn, JobId, Policy, WorkerId};
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

/// A copy for one receiver.
#[derive(Clone, Debug)]
enum Event {
    Up { node: usize, shard: u8, from: Endpoint, packet: Rc<[u8]> },
    Down { client: usize, packet: Rc<[u8]> },
    Run { client: usize },
    Forget { node: usize },
    Crash { client: usize },
}

#[derive(Default)]
struct Answers(Vec<(Vec<Endpoint>, Rc<[u8]>)>);

impl Sink for Answers {
    fn unicast(&mut self, to: Endpoint, _: Ecn, packet: &[u8]) {
        self.0.push((vec![to], packet.into()));
    }

    fn multicast(&mut self, _: JobId, members: &[Endpoint], _: Ecn, packet: &[u8]) {
        self.0.push((members.to_vec(), packet.into()));
    }
}

/// An aggregator.
struct Node {
    shards: Vec<Aggregator>,
    deaf_until: Duration,
}

#[derive(Clone, Copy)]
enum Place {
    Node(usize),
    Client(usize),
}

pub struct Scene {
    pub rng: Rng,
    pub network: Network,
    restarts: Restarts,
    pub clients: Vec<Client>,
    /// The only aggregator, or the root and then its racks.
    nodes: Vec<Node>,
    pub now: Duration,
    agenda: Agenda<Event>,
    places: HashMap<Endpoint, Place>,
    results: u64,
    /// Every RESULT sent so far, by job, kind, round and slot.
    copies: HashMap<(u16, u8, u32, u16), Rc<[u8]>>,
    /// Whether copies must be the same (not where packets are corrupted unnoticed, nor after a
    /// restart with a quorum below n).
    pub same_copies: bool,
    /// Packets that were dropped as further ahead than P9 allows, and as of another form than the slot's round.
    pub too_far: u64,
    pub mixed: u64,
    /// Packets on the workers' links.
    pub packets: u64,
    /// Which of the first 64 of them, as they are sent, are lost.
    pub lost: u64,
}

fn endpoint_of_worker(job: JobId, worker: u16) -> Endpoint {
    let ([high, low], [more, worker]) = (job.0.to_be_bytes(), worker.to_be_bytes());
    Endpoint::udp(SocketAddr::from((Ipv4Addr::new(10, high, low, worker), 4000 + u16::from(more))))
}

fn endpoint_of_node(node: usize) -> Endpoint {
    Endpoint::udp(SocketAddr::from((Ipv4Addr::new(11, 0, 0, node as u8), 4000)))
}

impl Scene {
    pub fn new(seed: u64, shards: u8, network: Network, restarts: Restarts) -> Scene {
        let mut scene = Scene {
            rng: Rng::new(seed ^ 0x57AB_1E00),
            network,
            clients: Vec::new(),
            nodes: Vec::new(),
            now: Duration::ZERO,
            agenda: Agenda::default(),
            places: HashMap::new(),
            results: 0,
            copies: HashMap::new(),
            same_copies: network.corrupt == 0.0,
            packets: 0,
            lost: 0,
            too_far: 0,
            mixed: 0,
            restarts,
        };
        scene.add_node(shards);
        for at in scene.restarts.at.clone() {
            scene.forget_at(0, at);
        }
        scene
    }

    fn add_node(&mut self, count: u8) {
        let shards = (0..count).map(|index| Aggregator::new(Shard { index, count }, 1 << 28)).collect();
        self.places.insert(endpoint_of_node(self.nodes.len()), Place::Node(self.nodes.len()));
        self.nodes.push(Node { shards, deaf_until: Duration::ZERO });
    }

    /// Adds a job, with a node for each of its racks; `manners` has one entry per worker, `others` the workers that see
    /// other calls.
    pub fn add_job(&mut self, plan: &JobPlan, manners: Vec<Manner>, others: &[(u16, JobPlan)]) {
        let job = plan.config.job;
        let worker = |number| endpoint_of_worker(job, number);
        match plan.config.level {
            Level::Root(racks) => {
                let members = (1..=plan.racks.len()).map(endpoint_of_node).collect();
                self.install(0, plan, (racks.count, racks.count), plan.config.level, members);
                let mut first = 0;
                for (rack, &(size, quorum)) in (0u8..).zip(&plan.racks) {
                    self.add_node(1);
                    let root = endpoint_of_node(0);
                    let level = Level::Rack { racks, rack: WorkerId(rack), root, ports: 1 };
                    let members = (first..first + u16::from(size)).map(worker).collect();
                    self.install(self.nodes.len() - 1, plan, (size, quorum), level, members);
                    first += u16::from(size);
                }
            }
            level => {
                let members = (0..plan.workers()).map(worker).collect();
                self.install(0, plan, (plan.config.workers, plan.config.quorum), level, members);
            }
        }
        let truth = Rc::new(Truth::new(plan.clone()));
        let strict = self.network.corrupt == 0.0;
        for (number, manner) in (0u16..).zip(manners) {
            let truth = match others.iter().find(|(worker, _)| *worker == number) {
                Some((_, other)) => Rc::new(Truth::new(other.clone())),
                None => Rc::clone(&truth),
            };
            let client = self.clients.len();
            self.places.insert(worker(number), Place::Client(client));
            let shards = self.nodes[0].shards.len() as u8;
            self.clients.push(Client::new(truth, number, shards, manner, strict));
            self.wake(client, Duration::ZERO);
        }
    }

    fn install(
        &mut self,
        node: usize,
        plan: &JobPlan,
        (workers, quorum): (u8, u8),
        level: Level,
        members: Vec<Endpoint>,
    ) {
        let skip = plan.policy == Policy::BestEffort || plan.quorum() < plan.workers();
        for shard in &mut self.nodes[node].shards {
            for &Table { id, form, values, .. } in plan.tables.iter() {
                shard.install_table(id, Lookup { form, values }).unwrap();
            }
            shard.install_job(JobConfig { skip, workers, quorum, level, ..plan.config.clone() }).unwrap();
            for (worker, &at) in (0u8..).map(WorkerId).zip(&members) {
                shard.set_member(plan.config.job, worker, at).unwrap();
            }
        }
    }

    pub fn crash_at(&mut self, client: usize, at: Duration) {
        self.schedule(at, Event::Crash { client });
    }

    /// A node loses its slots, and hears nothing for the time of an outage.
    pub fn forget_at(&mut self, node: usize, at: Duration) {
        self.schedule(at, Event::Forget { node });
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
        // The clients before it have ended.
        let mut first = 0;
        while let Some((at, event)) = self.agenda.pop() {
            if end.is_some_and(|end| at > end) {
                return;
            }
            assert!(at <= limit, "not through after {limit:?}: {}", self.describe());
            self.now = at;
            self.handle(event);
            while self.clients.get(first).is_some_and(|c| c.crashed || c.ended.is_some()) {
                first += 1;
            }
            if first == self.clients.len() {
                end.get_or_insert(self.now + after);
            }
        }
        assert!(end.is_some(), "nothing moves any more: {}", self.describe());
    }

    fn describe(&self) -> String {
        let clients = self.clients.iter().map(|c| {
            let (job, worker) = (c.truth.plan.config.job, c.number);
            let (submitted, pending, stats) = (c.submitted, c.pending(), c.worker.stats());
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
            Event::Up { node, shard, from, packet } => self.arrive(node, shard, from, &packet),
            Event::Forget { node } => self.forget(node),
            Event::Crash { client } => self.clients[client].crashed = true,
        }
    }

    fn forget(&mut self, node: usize) {
        let Node { shards, deaf_until } = &mut self.nodes[node];
        shards.iter_mut().for_each(Aggregator::forget_slots);
        *deaf_until = (*deaf_until).max(self.now + self.restarts.outage);
    }

    fn arrive(&mut self, node: usize, shard: u8, from: Endpoint, packet: &[u8]) {
        let in_racks = self.nodes.len() > 1;
        let Node { shards, deaf_until } = &mut self.nodes[node];
        if self.now < *deaf_until {
            return;
        }
        let mut answers = Answers::default();
        match shards[usize::from(shard)].handle(from, packet, &mut answers) {
            Outcome::Dropped(DropReason::Round) => self.too_far += 1,
            Outcome::Dropped(DropReason::Mixed) => self.mixed += 1,
            Outcome::Dropped(reason) if in_racks => {
                panic!("node {node} drops {:?}: {reason:?}", Header::parse(packet))
            }
            _ => {}
        }
        // P16: one packet, to one receiver or to each member.
        assert!(answers.0.len() <= 1);
        for (receivers, answer) in answers.0 {
            let header = Header::parse(&answer).unwrap().0;
            let is_result = matches!(header.kind, Kind::Result | Kind::RawResult | Kind::NormResult);
            let result = is_result && node == 0;
            if result && self.same_copies {
                let class = u8::from(header.kind == Kind::NormResult);
                let key = (header.job.0, class, header.round.0, header.slot.0);
                let first = self.copies.entry(key).or_insert_with(|| Rc::clone(&answer));
                assert!(*first == answer, "copies of a result differ: {header:?}");
            }
            self.results += u64::from(result);
            let partial = result && self.restarts.at_result.contains(&self.results);
            for to in receivers {
                if partial && self.rng.chance(0.5) {
                    continue;
                }
                match self.places[&to] {
                    Place::Client(client) => self.send_down(client, &answer),
                    Place::Node(to) => self.send_between(node, to, &answer),
                }
            }
            if partial {
                self.forget(node);
            }
        }
    }

    /// Counts a packet on a worker's link. Returns whether it is one of those that are lost.
    fn is_lost(&mut self) -> bool {
        let number = self.packets;
        self.packets += 1;
        number < 64 && self.lost >> number & 1 == 1
    }

    fn send_up(&mut self, client: usize, shard: u8, packet: &Rc<[u8]>) {
        if self.is_lost() {
            return;
        }
        let this = &mut self.clients[client];
        let plan = &this.truth.plan;
        let node = if plan.racks.is_empty() { 0 } else { 1 + usize::from(plan.place(this.number).0) };
        let from = endpoint_of_worker(plan.config.job, this.number);
        this.up_free = this.up_free.max(self.now) + self.network.wire_time;
        let free = this.up_free;
        for (delay, packet) in self.network.travel(&mut self.rng, packet) {
            self.schedule(free + delay, Event::Up { node, shard, from, packet });
        }
    }

    fn send_down(&mut self, client: usize, packet: &Rc<[u8]>) {
        if self.is_lost() {
            return;
        }
        let this = &mut self.clients[client];
        this.down_free = this.down_free.max(self.now) + self.network.wire_time;
        let free = this.down_free;
        for (delay, packet) in self.network.travel(&mut self.rng, packet) {
            self.schedule(free + delay, Event::Down { client, packet });
        }
    }

    fn send_between(&mut self, from: usize, node: usize, packet: &Rc<[u8]>) {
        let from = endpoint_of_node(from);
        for (delay, packet) in self.network.travel(&mut self.rng, packet) {
            let at = self.now + self.network.wire_time + delay;
            self.schedule(at, Event::Up { node, shard: 0, from, packet });
        }
    }
}

fn part(of: Duration, rng: &mut Rng) -> Duration {
    Duration::from_nanos(rng.below(of.as_nanos() as u64 + 1))
}
