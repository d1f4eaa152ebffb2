//! A job as it is kept: its sessions, its places on targets.

use crate::spec::JobSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use thc_config::job::credit::{Taken, fills};
use thc_protocol::aggregator::{DropReason, Event};
use thc_transport::frame::Mac;

/// A session's secret: shown to nobody.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hidden(pub u32);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

/// A member of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The address that it sends from.
    pub at: SocketAddr,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The port that it is behind; 0 is any.
    pub port: u16,
    /// Its incarnation's number.
    pub nonce: u64,
}

/// A session that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its cookie.
    pub cookie: Hidden,
    /// Cells of another epoch are empty.
    pub epoch: u32,
    /// The members by number.
    pub members: BTreeMap<u8, Member>,
    /// In a rack, the number of UDP ports of its root (P21).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub root_ports: u8,
    /// Packets in sums that the target had counted for each member before. `None`: not read yet, so none of
    /// its rows is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<BTreeMap<u8, u64>>,
    /// The bytes that its workers may have outstanding, as WELCOME gave them (P41); 0 for no bound.
    #[serde(default)]
    pub credit: u32,
}

fn is_zero(ports: &u8) -> bool {
    *ports == 0
}

/// The slots of a job on a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Selects its counters.
    pub index: u8,
    /// Its first data slot.
    pub data_base: u32,
    /// Its first norm slot.
    pub norm_base: u32,
    /// Its multicast group.
    pub group: u16,
    /// The target's counters at its index when the job was created, which are those of earlier jobs. `None`: not read
    /// yet.
    #[serde(default)]
    pub earlier: Option<JobCounted>,
    /// Sessions begun.
    pub sessions: u32,
    /// The one that runs.
    pub session: Option<Session>,
    /// The credit of each worker of the next session here (P41), once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit: Option<u32>,
}

/// A number that was given to a worker which had none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The incarnation of the worker.
    pub token: u64,
    /// When it asked last, in seconds since 1970.
    pub asked: u64,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its specification.
    pub spec: JobSpec,
    /// Tells jobs of one name or number apart that follow each other.
    pub serial: u64,
    /// Numbers of its lookup tables, in the order of the specification.
    pub tables: Vec<u8>,
    /// The job's places by target.
    pub places: BTreeMap<String, Placement>,
    /// Numbers given to workers, by number.
    pub given: BTreeMap<u8, Given>,
    /// The target that workers were sent to last.
    pub active: Option<String>,
    /// Seconds since 1970.
    pub created: u64,
}

impl Job {
    /// The credit of each worker of its next session, by its target with the least room; 0
    /// for no bound.
    pub fn credit(&self) -> u32 {
        self.places.values().filter_map(|place| place.credit).min().unwrap_or(0)
    }

    /// The part of a target's room that it takes: that of its session or that of the next one, whichever is more.
    pub(super) fn taken_room(&self, target: &str, shards: u8) -> Option<Taken> {
        let place = self.places.get(target)?;
        let (spec, config) = (&self.spec, self.spec.config());
        let taken = |workers: u8, credit: u32| {
            let credit = if credit == 0 { config.data_slots / 2 } else { credit };
            Taken { senders: spec.senders(workers), each: fills(credit, spec.ports(shards)) }
        };
        let to_come = place.credit.map(|credit| taken(config.workers, credit));
        let session = place.session.as_ref();
        let runs = session.map(|session| taken(session.members.len() as u8, session.credit));
        to_come.into_iter().chain(runs).max_by_key(|taken| taken.senders as usize * taken.each)
    }

    /// The running session, and its target: of several, the one on which it began.
    pub(crate) fn running_session(&self) -> Option<(&str, &Session)> {
        let mut running = self.spec.targets().iter().map(|target| (target.as_str(), self.places.get(target)));
        running.find_map(|(target, place)| Some((target, place?.session.as_ref()?)))
    }
}

/// Answers that are counted: results, resent, nudges, recirculations.
pub const ANSWERS: usize = 4;
/// The events of packets in sums.
pub const IN_SUMS: [Event; 2] = [Event::Opened, Event::Added];

/// Counted of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Packets.
    pub packets: u64,
    /// Bytes of frames.
    pub bytes: u64,
    /// Counts in the order of [`Event::ALL`].
    pub events: [u64; Event::ALL.len()],
    /// Counts in the order of [`DropReason::ALL`].
    pub drops: [u64; DropReason::ALL.len()],
}

/// Counted of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounted {
    /// See [`ANSWERS`].
    pub answers: [u64; ANSWERS],
    /// The workers by number.
    pub workers: Vec<Counted>,
}

impl JobCounted {
    /// The counts since `earlier`.
    pub fn difference(mut self, earlier: &JobCounted) -> JobCounted {
        fn subtract(now: &mut [u64], then: &[u64]) {
            now.iter_mut().zip(then).for_each(|(now, then)| *now = now.saturating_sub(*then));
        }
        subtract(&mut self.answers, &earlier.answers);
        for (now, then) in self.workers.iter_mut().zip(&earlier.workers) {
            now.packets = now.packets.saturating_sub(then.packets);
            now.bytes = now.bytes.saturating_sub(then.bytes);
            subtract(&mut now.events, &then.events);
            subtract(&mut now.drops, &then.drops);
        }
        self
    }

    /// Packets of a worker that are in sums.
    pub fn in_sums(&self, worker: u8) -> u64 {
        let events = |counted: &Counted| IN_SUMS.iter().map(|&event| counted.events[event as usize]).sum();
        self.workers.get(usize::from(worker)).map_or(0, events)
    }
}
