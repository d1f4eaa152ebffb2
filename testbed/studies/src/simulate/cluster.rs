//! A job in virtual time: hosts with links and cores, on them workers and aggregators.
//!
//! Three things make time pass: packets on links, computing, and waiting. Each actor takes its turns on a core of its host, one
//! after the other; what it sends leaves when that much of its turn is over.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use thc_support::{Agenda, SimNet};

use thc_transport::Peer;

use super::actor::{Outgoing, Packets, Party, SimAggregator, Turn};
use super::cores::Cores;
use super::error::network_error;
use crate::error::{Error, Result};

/// Time that no job takes: nothing goes on any more.
const PATIENCE: Duration = Duration::from_secs(3600);

enum Actor {
    Party(Box<Party>),
    Aggregator(Box<SimAggregator>),
}

struct Placed {
    actor: Actor,
    /// The host on whose cores it takes its turns.
    cores: usize,
    /// When its last turn ends.
    busy_until: Duration,
    /// When its next one is planned.
    planned: Option<Duration>,
}

/// All hosts with their actors, and the network between them.
pub struct Cluster {
    net: SimNet,
    cores: Vec<Cores>,
    actors: Vec<Placed>,
    by_address: HashMap<Peer, usize>,
    wakes: Agenda<usize>,
    departures: Agenda<(usize, Packets)>,
    /// How long after a packet came somebody who waited for it runs.
    wake: Duration,
    events: u64,
    open: usize,
}

impl Cluster {
    /// Nobody, on this network.
    pub fn new(net: SimNet, wake: Duration) -> Self {
        net.take_arrivals(&mut Vec::new());
        Self {
            net,
            cores: Vec::new(),
            actors: Vec::new(),
            by_address: HashMap::new(),
            wakes: Agenda::default(),
            departures: Agenda::default(),
            wake,
            events: 0,
            open: 0,
        }
    }

    /// A link of so many bits a second each way; all endpoints at this address share it.
    pub fn host(&self, address: Ipv4Addr, rate: Option<u64>) {
        self.net.set_host(address, rate);
    }

    /// So many cores, for the actors that are given their number.
    pub fn cores(&mut self, count: usize) -> usize {
        self.cores.push(Cores::new(count));
        self.cores.len() - 1
    }

    /// A worker, which begins at once.
    pub fn add_party(&mut self, mut party: Party, cores: usize) {
        let at = party.local();
        self.open += 1;
        self.add(&[at], Actor::Party(Box::new(party)), cores);
    }

    /// A shard.
    pub fn add_aggregator(&mut self, aggregator: SimAggregator, cores: usize) {
        let at: Vec<Peer> = aggregator.locals().collect();
        self.add(&at, Actor::Aggregator(Box::new(aggregator)), cores);
    }

    fn add(&mut self, at: &[Peer], actor: Actor, cores: usize) {
        let number = self.actors.len();
        self.by_address.extend(at.iter().map(|at| (*at, number)));
        self.actors.push(Placed { actor, cores, busy_until: Duration::ZERO, planned: None });
        self.plan(number, Duration::ZERO);
    }

    /// The workers, in the order in which they came.
    pub fn parties(&self) -> impl Iterator<Item = &Party> {
        self.actors.iter().filter_map(|placed| match &placed.actor {
            Actor::Party(party) => Some(&**party),
            Actor::Aggregator(_) => None,
        })
    }

    /// Packets that aggregators dropped.
    pub fn dropped_packets(&self) -> u64 {
        let of = |placed: &Placed| match &placed.actor {
            Actor::Party(_) => 0,
            Actor::Aggregator(aggregator) => aggregator.dropped,
        };
        self.actors.iter().map(of).sum()
    }

    /// Packets on the network and turns so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Packets that were sent.
    pub fn packets(&self) -> u64 {
        self.net.stats().sent
    }

    /// Packets that the network lost, on the way or for want of room.
    pub fn lost_packets(&self) -> u64 {
        let stats = self.net.stats();
        stats.lost + stats.overflowed
    }

    /// Has an actor take a turn at `at`, unless it takes one before.
    fn plan(&mut self, number: usize, at: Duration) {
        let placed = &mut self.actors[number];
        let at = at.max(placed.busy_until);
        if placed.planned.is_some_and(|planned| planned <= at) {
            return;
        }
        placed.planned = Some(at);
        self.wakes.add(at, number);
    }

    /// Until all workers have done everything.
    ///
    /// # Errors
    /// A worker's failure, or nothing goes on any more.
    pub fn run(&mut self) -> Result<()> {
        let mut arrivals = Vec::new();
        while self.open > 0 {
            self.events += 1;
            let departure = self.departures.next_at();
            let network = self.net.next_event();
            let wake = self.wakes.next_at();
            let now = [departure, network, wake].into_iter().flatten().min();
            let Some(now) = now.filter(|now| *now < PATIENCE) else {
                return Err(Error::Failure(format!(
                    "the simulation stands still: {} workers wait for packets that do not come",
                    self.open
                )));
            };
            if departure == Some(now) {
                self.net.advance_to(now);
                if let Some((_, (number, packets))) = self.departures.pop() {
                    let sent = match &mut self.actors[number].actor {
                        Actor::Party(party) => party.leave(&packets),
                        Actor::Aggregator(aggregator) => aggregator.leave(&packets),
                    };
                    sent.map_err(network_error)?;
                }
            } else if network == Some(now) {
                self.net.advance_to(now);
            } else if let Some((_, number)) = self.wakes.pop() {
                self.net.advance_to(now);
                self.turn(number, now)?;
            }
            self.net.take_arrivals(&mut arrivals);
            for at in arrivals.drain(..) {
                if let Some(&number) = self.by_address.get(&at) {
                    // Whoever is at work looks again anyway; who sleeps is woken.
                    let asleep = self.actors[number].busy_until < now;
                    self.plan(number, if asleep { now + self.wake } else { now });
                }
            }
        }
        Ok(())
    }

    fn turn(&mut self, number: usize, now: Duration) -> Result<()> {
        let placed = &mut self.actors[number];
        if placed.planned != Some(now) {
            return Ok(());
        }
        placed.planned = None;
        let (free, core) = self.cores[placed.cores].next(now);
        if free > now {
            self.plan(number, free);
            return Ok(());
        }
        let (turn, done) = match &mut placed.actor {
            Actor::Aggregator(aggregator) => (aggregator.turn().map_err(network_error)?, false),
            Actor::Party(party) => {
                let before = party.is_done();
                (party.turn(now)?, party.is_done() && !before)
            }
        };
        let Turn { took, leaving, again, due } = turn;
        let until = now + took;
        placed.busy_until = until;
        let cores = placed.cores;
        self.open -= usize::from(done);
        self.cores[cores].occupy(core, until);
        for Outgoing { after, what } in leaving {
            self.departures.add(now + after, (number, what));
        }
        if again {
            self.plan(number, until);
        } else if let Some(due) = due {
            // What is due at once and cannot be done yet waits for something to come.
            self.plan(number, due.max(until).max(now + Duration::from_nanos(1)));
        }
        Ok(())
    }
}
