//! Workers' reservations of versions, which decide for whom a push must wait so that delays stay within the bound τ.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A worker's hold on a version, from its pull to its push.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    version: u64,
    worker: u16,
    until: Instant,
}

/// All of a shard, in the order of version and worker.
#[derive(Debug)]
pub(super) struct Reservations {
    list: Vec<Reservation>,
    /// Workers whose lease ran out and whose pushes have not been taken since: they are waited for no more.
    silent: BTreeSet<u16>,
    /// How long one lasts.
    lease: Duration,
    /// How many ran out.
    pub expired: u64,
}

impl Reservations {
    pub fn new(lease: Duration) -> Self {
        Self { list: Vec::new(), silent: BTreeSet::new(), lease, expired: 0 }
    }

    /// Ends those whose time is over.
    pub fn expire(&mut self, now: Instant) {
        let before = self.list.len();
        let silent = &mut self.silent;
        self.list.retain(|one| {
            let valid = one.until > now;
            if !valid {
                silent.insert(one.worker);
            }
            valid
        });
        self.expired += (before - self.list.len()) as u64;
    }

    /// A worker has pulled a version, and gives up the one that it had.
    pub fn add(&mut self, worker: u16, version: u64, now: Instant) {
        if self.silent.contains(&worker) {
            return;
        }
        self.release(worker);
        let place = self.list.partition_point(|one| (one.version, one.worker) < (version, worker));
        self.list.insert(place, Reservation { version, worker, until: now + self.lease });
    }

    /// Until when a push, which makes version `next` of one that had `version`, must wait so that older reservations, and
    /// equally old ones of workers before this one, keep a delay of at most `limit`.
    pub fn wait(&mut self, worker: u16, version: u64, next: u64, limit: u64) -> Option<Instant> {
        let own = (version, worker);
        let older = self.list.iter().take_while(|one| (one.version, one.worker) < own);
        let mut late = older.enumerate().filter(|(i, one)| next + *i as u64 - one.version > limit);
        let until = late.next()?.1.until;
        // Its own does not run out meanwhile: it is not silent, its push is here.
        for one in self.list.iter_mut().filter(|one| one.worker == worker) {
            one.until = one.until.max(until + self.lease);
        }
        Some(until)
    }

    /// A push at this version was taken. A newer version that the worker has pulled meanwhile stays its own.
    pub fn redeem(&mut self, worker: u16, version: u64) {
        self.list.retain(|one| one.worker != worker || one.version > version);
        self.silent.remove(&worker);
    }

    /// A worker has gone.
    pub fn release(&mut self, worker: u16) {
        self.list.retain(|one| one.worker != worker);
    }

    pub fn clear(&mut self) {
        self.list.clear();
    }

    #[cfg(test)]
    pub fn has(&self, worker: u16) -> bool {
        self.list.iter().any(|one| one.worker == worker)
    }
}
