//! Workers in racks below a root: every packet on every level goes through the faulty network.

use crate::client::{Client, Manner, TxBatch};
use crate::plan::{JobPlan, Truth};
use crate::scene::{Answers, Network};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use thc_protocol::WorkerId;
use thc_protocol::aggregator::{Aggregator, DropReason, Endpoint, JobConfig, Level, Lookup, Outcome, Shard};
use thc_protocol::wire::{Header, Kind, Table};
use thc_support::Agenda;
use thc_support::random::Rng;

/// Who has lost all that it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    Root,
    Rack(usize),
}

#[derive(Clone, Debug)]
enum Event {
    /// To a rack, from a member or the root; to the root.
    At {
        node: Node,
        from: (u8, u16),
        packet: Rc<[u8]>,
    },
    Down {
        client: usize,
        packet: Rc<[u8]>,
    },
    Run {
        client: usize,
    },
    Forget {
        node: Node,
    },
}

/// Level (0 root, 1 racks, 2 workers) and number.
fn endpoint(level: u8, number: u16) -> Endpoint {
    let [high, low] = number.to_be_bytes();
    Endpoint::udp(SocketAddr::from((Ipv4Addr::new(10, level, high, low), 4000)))
}

pub struct Tree {
    pub rng: Rng,
    network: Network,
    pub clients: Vec<Client>,
    root: Aggregator,
    racks: Vec<Aggregator>,
    pub now: Duration,
    agenda: Agenda<Event>,
    /// What each node hears from when on.
    deaf: HashMap<Node, Duration>,
    outage: Duration,
    /// Every RESULT of the root so far, by kind, round and slot.
    copies: HashMap<(u8, u32, u16), Rc<[u8]>>,
    /// Packets dropped as further ahead than P9 allows, or as of another form than the slot's round.
    pub too_far: u64,
    pub mixed: u64,
    /// Packets on all links.
    pub packets: u64,
}

impl Tree {
    pub fn new(seed: u64, network: Network, plan: &JobPlan, manners: Vec<Manner>) -> Tree {
        let racks = *plan.config.level.racks().unwrap();
        let aggregator = |workers: u8, quorum: u8, level: Level, members: Vec<Endpoint>| {
            let mut it = Aggregator::new(Shard::WHOLE, 1 << 28);
            for &Table { id, form, values, .. } in plan.tables.iter() {
                it.install_table(id, Lookup { form, values }).unwrap();
            }
            let skip = plan.quorum() < plan.workers() || JobConfig::may_skip(plan.policy, 1, 1);
            it.install_job(JobConfig { skip, workers, quorum, level, ..plan.config.clone() }).unwrap();
            for (worker, at) in (0u8..).map(WorkerId).zip(members) {
                it.set_member(plan.config.job, worker, at).unwrap();
            }
            it
        };
        let members = (0..racks.count).map(|rack| endpoint(1, rack.into())).collect();
        let mut tree = Tree {
            rng: Rng::new(seed ^ 0x0072_EE00),
            network,
            clients: Vec::new(),
            root: aggregator(racks.count, racks.count, Level::Root(racks), members),
            racks: Vec::new(),
            now: Duration::ZERO,
            agenda: Agenda::default(),
            deaf: HashMap::new(),
            outage: Duration::ZERO,
            copies: HashMap::new(),
            too_far: 0,
            mixed: 0,
            packets: 0,
        };
        let mut first = 0;
        for (rack, &(size, quorum)) in (0u8..).zip(&plan.racks) {
            let root = endpoint(0, 0);
            let level = Level::Rack { racks, rack: WorkerId(rack), root, ports: 1 };
            let members = (first..first + u16::from(size)).map(|worker| endpoint(2, worker)).collect();
            tree.racks.push(aggregator(size, quorum, level, members));
            first += u16::from(size);
        }
        let truth = Rc::new(Truth::new(plan.clone()));
        for (number, manner) in (0u16..).zip(manners) {
            tree.clients.push(Client::new(Rc::clone(&truth), number, 1, manner, true));
            tree.wake(usize::from(number), Duration::ZERO);
        }
        tree
    }

    /// What one worker calls instead.
    pub fn differs(&mut self, client: usize, plan: &JobPlan, manner: Manner) {
        let truth = Rc::new(Truth::new(plan.clone()));
        self.clients[client] = Client::new(truth, client as u16, 1, manner, true);
        self.wake(client, Duration::ZERO);
    }

    /// A node loses its slots, and hears nothing for a while.
    pub fn restart(&mut self, node: Node, at: Duration, outage: Duration) {
        self.outage = outage;
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

    /// Runs until every worker is through or has failed.
    ///
    /// # Panics
    /// If that takes longer than `limit`: somebody waits for ever.
    pub fn run(&mut self, limit: Duration) {
        let mut left = self.clients.iter().filter(|client| client.ended.is_none()).count();
        while left > 0 {
            let Some((at, event)) = self.agenda.pop() else { panic!("nothing moves any more") };
            assert!(at <= limit, "not through after {limit:?}: {}", self.describe());
            self.now = at;
            if self.handle(event) {
                left -= 1;
            }
        }
    }

    fn describe(&self) -> String {
        let waiting = self.clients.iter().filter(|client| client.ended.is_none());
        let rows = waiting.map(|c| {
            format!(
                "worker {}: {} submitted, {} pending, {:?}",
                c.number,
                c.submitted,
                c.worker.pending_calls(),
                c.worker.stats()
            )
        });
        let plan = &self.clients[0].truth.plan;
        let calls: Vec<&[u32]> = plan.calls.iter().map(|call| &call.packets[..]).collect();
        let head = format!("{:?}, {:?}, racks {:?}, calls {calls:?}", self.network, plan.config, plan.racks);
        [head].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
    }

    /// Whether a worker has ended by this.
    fn handle(&mut self, event: Event) -> bool {
        match event {
            Event::Run { client } => {
                let this = &mut self.clients[client];
                if this.wake != Some(self.now) {
                    return false;
                }
                this.wake = None;
                let before = this.ended;
                let mut out = TxBatch { memory: std::mem::take(&mut this.memory), ..TxBatch::default() };
                let next = this.run(self.now, &mut out);
                this.memory = out.memory;
                let ended = before.is_none() && this.ended.is_some();
                let rack = usize::from(this.truth.plan.place(this.number).0);
                for (_, packet) in out.sent {
                    let from = (2, client as u16);
                    self.send(&packet, |packet| Event::At { node: Node::Rack(rack), from, packet });
                }
                if let Some(next) = next {
                    self.wake(client, next);
                }
                ended
            }
            Event::Down { client, packet } => {
                let this = &mut self.clients[client];
                if self.now >= this.manner.start {
                    this.inbox.push_back(packet);
                    let at = self.now + this.manner.latency;
                    self.wake(client, at);
                }
                false
            }
            Event::At { node, from, packet } => {
                self.arrive(node, endpoint(from.0, from.1), &packet);
                false
            }
            Event::Forget { node } => {
                match node {
                    Node::Root => self.root.forget_slots(),
                    Node::Rack(rack) => self.racks[rack].forget_slots(),
                }
                self.deaf.insert(node, self.now + self.outage);
                false
            }
        }
    }

    fn arrive(&mut self, node: Node, from: Endpoint, packet: &[u8]) {
        if self.deaf.get(&node).is_some_and(|until| self.now < *until) {
            return;
        }
        let mut answers = Answers::default();
        let (aggregator, own) = match node {
            Node::Root => (&mut self.root, (0, 0)),
            Node::Rack(rack) => (&mut self.racks[rack], (1, rack as u16)),
        };
        match aggregator.handle(from, packet, &mut answers) {
            Outcome::Dropped(DropReason::Round) => self.too_far += 1,
            Outcome::Dropped(DropReason::Mixed) => self.mixed += 1,
            Outcome::Dropped(reason) => panic!("{node:?} drops {:?}: {reason:?}", Header::parse(packet)),
            Outcome::Handled(_) | Outcome::Passed => {}
        }
        // P16: one packet, to one receiver or to each member.
        assert!(answers.0.len() <= 1);
        for (receivers, answer) in answers.0 {
            let header = Header::parse(&answer).unwrap().0;
            let result = matches!(header.kind, Kind::Result | Kind::RawResult | Kind::NormResult);
            let full = self.clients[0].truth.plan.quorum() == self.clients[0].truth.plan.workers();
            if result && node == Node::Root && full {
                let class = u8::from(header.kind == Kind::NormResult);
                let key = (class, header.round.0, header.slot.0);
                let first = self.copies.entry(key).or_insert_with(|| Rc::clone(&answer));
                assert!(*first == answer, "copies of a result differ: {header:?}");
            }
            for to in receivers {
                let [_, level, high, low] = octets(to.addr);
                let number = u16::from_be_bytes([high, low]);
                self.send(&answer, |packet| match level {
                    0 => Event::At { node: Node::Root, from: own, packet },
                    1 => Event::At { node: Node::Rack(number.into()), from: own, packet },
                    _ => Event::Down { client: number.into(), packet },
                });
            }
        }
    }

    fn send(&mut self, packet: &Rc<[u8]>, event: impl Fn(Rc<[u8]>) -> Event) {
        self.packets += 1;
        for (delay, packet) in self.network.travel(&mut self.rng, packet) {
            self.schedule(self.now + self.network.wire_time + delay, event(packet));
        }
    }
}

/// The bytes of an IPv4 address.
fn octets(at: SocketAddr) -> [u8; 4] {
    let std::net::IpAddr::V4(ip) = at.ip() else { panic!("{at}") };
    ip.octets()
}
