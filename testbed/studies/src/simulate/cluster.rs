//! Actors in virtual time. Each has a core of its own and takes one turn after the other.

use std::collections::HashMap;
use std::time::Duration;

use thc_support::{Agenda, SimNet};
use thc_transport::Peer;

use super::actor::{Actor, Sent, Turn};
use crate::error::{Error, Result};

/// A virtual time that no job takes.
const PATIENCE: Duration = Duration::from_secs(3600);

struct Placed {
    actor: Actor,
    /// When its last turn ends.
    busy_until: Duration,
    /// When its next one is planned.
    planned: Option<Duration>,
}

/// All actors, and the network between them.
pub struct Cluster {
    net: SimNet,
    actors: Vec<Placed>,
    by_address: HashMap<Peer, usize>,
    turns: Agenda<usize>,
    departures: Agenda<(usize, Sent)>,
    /// The time from a packet's arrival until an actor that slept runs.
    wake: Duration,
}

impl Cluster {
    pub fn new(net: SimNet, wake: Duration) -> Self {
        net.take_arrivals(&mut Vec::new());
        Self {
            net,
            actors: Vec::new(),
            by_address: HashMap::new(),
            turns: Agenda::default(),
            departures: Agenda::default(),
            wake,
        }
    }

    pub fn add(&mut self, mut actor: Actor) {
        let number = self.actors.len();
        self.by_address.insert(actor.local(), number);
        self.actors.push(Placed { actor, busy_until: Duration::ZERO, planned: None });
        self.plan(number, Duration::ZERO);
    }

    pub fn actors(&self) -> impl Iterator<Item = &Actor> {
        self.actors.iter().map(|placed| &placed.actor)
    }

    /// Has an actor take a turn at `at`, unless it takes one before.
    fn plan(&mut self, number: usize, at: Duration) {
        let placed = &mut self.actors[number];
        let at = at.max(placed.busy_until);
        if placed.planned.is_none_or(|planned| planned > at) {
            placed.planned = Some(at);
            self.turns.add(at, number);
        }
    }

    /// Runs until all workers have done everything.
    ///
    /// # Errors
    /// A worker's failure, or that no event is left for workers that wait.
    pub fn run(&mut self) -> Result<()> {
        let mut arrivals = Vec::new();
        while !self.actors().all(Actor::is_done) {
            let departure = self.departures.next_at();
            let network = self.net.next_event();
            let now = [departure, network, self.turns.next_at()].into_iter().flatten().min();
            let Some(now) = now.filter(|now| *now < PATIENCE) else {
                return Err(Error::failure(
                    "the simulation stands still: workers wait for packets that do not come",
                ));
            };
            self.net.advance_to(now);
            if departure == Some(now) {
                if let Some((_, (number, sent))) = self.departures.pop() {
                    self.actors[number].actor.leave(&sent)?;
                }
            } else if network != Some(now)
                && let Some((_, number)) = self.turns.pop()
            {
                self.turn(number, now)?;
            }
            self.net.take_arrivals(&mut arrivals);
            for at in arrivals.drain(..) {
                if let Some(&number) = self.by_address.get(&at) {
                    // An actor that is at work looks again anyway; one that sleeps is woken.
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
        let Turn { took, sent, again, due } = placed.actor.turn(now)?;
        let until = now + took;
        placed.busy_until = until;
        for sent in sent {
            self.departures.add(now + sent.after, (number, sent));
        }
        if again {
            self.plan(number, until);
        } else if let Some(due) = due {
            // A worker that cannot do yet what is due waits for a packet.
            self.plan(number, due.max(until).max(now + Duration::from_nanos(1)));
        }
        Ok(())
    }
}
