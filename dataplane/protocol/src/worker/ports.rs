//! The ports of a parameter server, of all its shares together (P21 shards and shares).

use crate::wire::Welcome;
use std::collections::HashMap;
use std::net::SocketAddr;

/// The ports of a parameter server, of all its shares together (P21 shards and shares).
#[derive(Clone, Debug)]
pub struct SharePorts {
    /// Share by share.
    all: Vec<SocketAddr>,
    /// The place of each among those.
    places: HashMap<SocketAddr, usize>,
    /// Ports of each share.
    shards: usize,
    /// The port that was heard last: packets come in runs.
    last: usize,
}

impl SharePorts {
    /// The ports of a server whose first share is at `ps`.
    pub fn new(ps: SocketAddr, welcome: &Welcome) -> SharePorts {
        let all = welcome.shares.ports(ps, welcome.shards);
        SharePorts {
            shards: usize::from(welcome.shards.max(1)),
            // An address that stands twice has its first place.
            places: all.iter().enumerate().rev().map(|(place, &at)| (at, place)).collect(),
            all,
            last: 0,
        }
    }

    /// Returns where packets of a shard go.
    #[inline]
    pub fn address(&self, shard: u8) -> SocketAddr {
        self.all[usize::from(shard) % self.all.len()]
    }

    /// Returns where a share has its control plane.
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

    /// As [`SharePorts::find`], apart from the hot path.
    pub fn position(&self, of: SocketAddr) -> Option<usize> {
        self.places.get(&of).copied()
    }

    /// The share that has a port, and whether control packets come from there.
    #[inline]
    #[must_use]
    pub fn share(&self, port: usize) -> (usize, bool) {
        (port / self.shards, port.is_multiple_of(self.shards))
    }

    /// The share that has a shard's slots.
    #[inline]
    pub fn share_of(&self, shard: u8) -> usize {
        usize::from(shard) % self.all.len() / self.shards
    }

    /// Returns how many shares there are.
    pub fn shares(&self) -> usize {
        self.all.len() / self.shards
    }
}
