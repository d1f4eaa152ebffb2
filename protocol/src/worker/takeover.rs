//! Where the packets of a slot go when one of several servers is gone (P21): each worker decides for itself
//! which share serves which slots. It hears answers, silence and others' NUDGEs here, and needs no socket.

use crate::SlotId;
use crate::aggregator::Shard;
use crate::wire::Welcome;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// A share that is silent for so long, even to packets that it must answer, loses its slots to the next one.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time after which a share that has lost its slots is asked whether it is back.
const ASK_AFTER: Duration = Duration::from_secs(2);

/// One of the servers that the slots are dealt to.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// When anything came from there last.
    heard: Duration,
    /// The share to which packets for its slots are sent: itself, or a later one that has taken them over.
    server: usize,
    /// When that share began to serve them.
    since: Duration,
    /// When it is to be asked whether it is back.
    ask: Option<Duration>,
}

/// From now on another share serves the slots that are at home at one, or that one does again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// The share where the slots are at home.
    pub home: usize,
    /// Its base port.
    pub home_at: SocketAddr,
    /// The share that serves them now: `home` if it is back.
    pub by: usize,
    /// Its base port.
    pub by_at: SocketAddr,
}

/// The ports of a parameter server, of all its shares together, and which share serves which slots (P21).
#[derive(Clone, Debug)]
pub struct SharePorts {
    /// Share by share.
    all: Vec<SocketAddr>,
    /// The place of each among those.
    places: HashMap<SocketAddr, usize>,
    shares: Vec<Share>,
    /// Ports of each, and how many ports have slots at home: not those of spares.
    shards: usize,
    homes: usize,
    /// Who was heard last: packets come in runs.
    last: usize,
    /// How often the server of a share has changed.
    changes: u32,
}

impl SharePorts {
    /// The ports of a server whose first share is at `ps`.
    #[must_use]
    pub fn new(ps: SocketAddr, welcome: &Welcome) -> SharePorts {
        let all = welcome.shares.ports(ps, welcome.shards);
        let share = |server| Share { heard: Duration::ZERO, server, since: Duration::ZERO, ask: None };
        let shares: Vec<_> = (0..usize::from(welcome.shares.servers())).map(share).collect();
        SharePorts {
            shards: all.len() / shares.len(),
            homes: usize::from(welcome.all_shards()),
            // Of an address that stands twice, the first place.
            places: all.iter().enumerate().rev().map(|(place, &at)| (at, place)).collect(),
            all,
            shares,
            last: 0,
            changes: 0,
        }
    }

    /// All of them, share by share.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.all
    }

    /// Where packets of a shard go.
    #[inline]
    #[must_use]
    pub fn address(&self, shard: u8) -> SocketAddr {
        let shard = usize::from(shard) % self.all.len();
        self.all[self.shares[shard / self.shards].server * self.shards + shard % self.shards]
    }

    /// Where a share has its control plane.
    #[must_use]
    pub fn base(&self, share: usize) -> SocketAddr {
        self.all[share * self.shards]
    }

    /// The port from which a packet with this source comes, if it is the parameter server's.
    #[inline]
    pub fn find(&mut self, from: SocketAddr) -> Option<usize> {
        if self.all[self.last] != from {
            self.last = *self.places.get(&from)?;
        }
        Some(self.last)
    }

    /// The share that has a port, and whether control packets come from there.
    #[inline]
    #[must_use]
    pub fn share(&self, port: usize) -> (usize, bool) {
        (port / self.shards, port.is_multiple_of(self.shards))
    }

    /// The share that serves a shard now; `None` of one server.
    #[inline]
    #[must_use]
    pub fn server(&self, shard: usize) -> Option<usize> {
        (self.shares.len() > 1).then(|| self.shares[shard / self.shards % self.shares.len()].server)
    }

    /// Whether a shard's slots are at this share now.
    #[inline]
    #[must_use]
    pub fn is_served_by(&self, shard: u8, share: usize) -> bool {
        self.shares[usize::from(shard) / self.shards % self.shares.len()].server == share
    }

    /// How many shares there are.
    #[must_use]
    pub fn shares(&self) -> usize {
        self.shares.len()
    }

    /// How often it has changed where slots are.
    #[must_use]
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// Something has come from a share.
    #[inline]
    pub fn note_heard(&mut self, now: Duration, share: usize) {
        let heard = &mut self.shares[share].heard;
        *heard = now.max(*heard);
    }

    /// Nothing answers for a shard: if the share that serves it has been silent for long enough, the next one
    /// serves it from now on (P21).
    pub fn take_over(&mut self, now: Duration, shard: u8, waited: Duration) -> Option<Takeover> {
        let home = usize::from(shard) / self.shards % self.shares.len();
        let Share { server, since, .. } = self.shares[home];
        let silent = now.saturating_sub(self.shares[server].heard.max(since)).min(waited);
        let loses = self.shares.len() > 1 && silent >= PATIENCE;
        loses.then(|| self.serve(now, home, (server + 1) % self.shares.len()))
    }

    /// A share has reported that a worker waits there for a slot, so that worker was not answered elsewhere
    /// (P21).
    pub fn follow(&mut self, now: Duration, slot: SlotId, share: usize) -> Option<Takeover> {
        let home = usize::from(Shard::index_of(slot, self.homes as u8)) / self.shards;
        (self.shares[home].server != share).then(|| self.serve(now, home, share))
    }

    fn serve(&mut self, now: Duration, home: usize, by: usize) -> Takeover {
        self.changes += 1;
        let ask = (by != home).then_some(now + ASK_AFTER);
        self.shares[home] = Share { server: by, since: now, ask, ..self.shares[home] };
        Takeover { home, home_at: self.base(home), by, by_at: self.base(by) }
    }

    /// A share has welcomed this worker: it is back.
    pub fn note_welcome(&mut self, now: Duration, share: usize) -> Option<Takeover> {
        (self.shares[share].server != share).then(|| self.serve(now, share, share))
    }

    /// A share that has lost its slots and is to be asked now whether it is back. It is asked until it
    /// answers.
    pub fn due_for_asking(&mut self, now: Duration) -> Option<usize> {
        let share = self.shares.iter().position(|share| share.ask.is_some_and(|at| at <= now))?;
        self.shares[share].ask = None;
        Some(share)
    }
}
