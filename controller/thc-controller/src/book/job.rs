//! A job as it is kept: its sessions, its places on targets.

use crate::counted::JobCounted;
use crate::spec::{Hidden, JobSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use thc_job::credit::{Taken, fills};
use thc_transport::frame::Mac;

/// A member of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where it sends from.
    pub at: SocketAddr,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The port that it is behind; 0 is any.
    pub port: u16,
    /// Its incarnation's number.
    pub nonce: u64,
    /// Its number in the job, if members come and go and it differs from the number in the session (P42).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<u8>,
}

/// A session that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its cookie.
    pub cookie: Hidden<u32>,
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
    /// How much its workers may have outstanding, as they were told (P41); 0 for no bound.
    #[serde(default)]
    pub credit: u32,
    /// The session's number in the job, modulo 2^16, if members come and go (P42).
    #[serde(default)]
    pub count: u16,
}

impl Session {
    /// n: that of the job, unless members come and go.
    #[must_use]
    pub fn workers(&self, job: &Job) -> u8 {
        if job.spec.members.is_some() { self.members.len() as u8 } else { job.spec.workers }
    }

    /// The numbers in the job of its workers, in the order of their numbers in the session.
    pub fn seats(&self) -> impl Iterator<Item = u8> {
        self.members.iter().map(|(&number, member)| member.seat.unwrap_or(number))
    }
}

fn is_zero(ports: &u8) -> bool {
    *ports == 0
}

/// Where a job lies on a target.
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
    /// What the target had counted at its index for earlier jobs when the job was created. `None`: not read
    /// yet.
    #[serde(default)]
    pub earlier: Option<JobCounted>,
    /// Sessions begun.
    pub sessions: u32,
    /// The one that runs.
    pub session: Option<Session>,
    /// How much each worker of the next session may have outstanding here (P41), once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit: Option<u32>,
}

/// A number that was given to a worker which had none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Who has it.
    pub token: u64,
    /// When it asked last, in seconds since 1970.
    pub asked: u64,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What it is.
    pub spec: JobSpec,
    /// Tells jobs of one name or number apart that follow each other.
    pub serial: u64,
    /// Its first lookup table.
    pub table: u8,
    /// The tables beside it, in the order of the specification.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<u8>,
    /// If members come and go, the first table of sessions of each size, from the fewest workers on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<u8>,
    /// What it becomes when its next session begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Box<Next>>,
    /// Goes up with each change of what it is.
    #[serde(default)]
    pub version: u64,
    /// Its targets, the first preferred.
    pub targets: Vec<String>,
    /// The job's places by target.
    pub places: BTreeMap<String, Placement>,
    /// Numbers given to workers, by number.
    pub given: BTreeMap<u8, Given>,
    /// Tokens of workers that an operator has sent away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<u64>,
    /// Who declared it, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Declared>,
    /// What becomes of it when its session is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Box<Pending>>,
    /// The target that workers were sent to last.
    pub active: Option<String>,
    /// Seconds since 1970.
    pub created: u64,
}

/// Who declared what a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Declared {
    /// The controller's configuration.
    File,
    /// `thc-controller apply`.
    Apply,
}

impl Declared {
    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Declared::File => "file",
            Declared::Apply => "apply",
        }
    }
}

/// What becomes of a job when its session is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pending {
    /// It becomes this.
    Change {
        /// What it is then.
        spec: Box<JobSpec>,
        /// Where.
        targets: Vec<String>,
    },
    /// It goes.
    Delete,
}

impl Pending {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Pending::Change { .. } => "change",
            Pending::Delete => "delete",
        }
    }
}

/// What a job becomes when its next session begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Next {
    /// What it is then.
    pub spec: JobSpec,
    pub(super) tables: TableIds,
    pub(super) targets: Vec<String>,
    /// The target whose session says when that is.
    pub by: String,
}

impl Next {
    /// Where it is then.
    #[must_use]
    pub fn targets(&self) -> &[String] {
        &self.targets
    }

    /// Whether it has a place on this target.
    #[must_use]
    pub(crate) fn is_on(&self, target: &str) -> bool {
        self.targets.iter().any(|name| name == target)
    }

    /// Its lookup tables, for so many workers.
    pub(crate) fn tables_of(&self, workers: u8) -> impl Iterator<Item = u8> {
        self.tables.ids_for(&self.spec, workers)
    }
}

/// Numbers of a job's lookup tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TableIds {
    pub(super) first: u8,
    pub(super) more: Vec<u8>,
    pub(super) sizes: Vec<u8>,
}

impl TableIds {
    pub(super) fn ids(&self) -> impl Iterator<Item = u8> {
        [self.first].into_iter().chain(self.more.iter().copied()).chain(self.sizes.iter().copied())
    }

    pub(super) fn ids_for(&self, spec: &JobSpec, workers: u8) -> impl Iterator<Item = u8> {
        ids_for_size(spec, self.first, &self.more, &self.sizes, workers)
    }
}

fn ids_for_size<'a>(
    spec: &JobSpec,
    first: u8,
    more: &'a [u8],
    sizes: &[u8],
    workers: u8,
) -> impl Iterator<Item = u8> + use<'a> {
    let least = spec.members.map_or(0, |members| members.least);
    let first = sizes.get(usize::from(workers.saturating_sub(least))).copied().unwrap_or(first);
    [first].into_iter().chain(more.iter().copied())
}

impl Job {
    /// All its lookup tables, the first first.
    pub fn tables(&self) -> impl Iterator<Item = u8> {
        let next = self.next.iter().flat_map(|next| next.tables.ids());
        [self.table]
            .into_iter()
            .chain(self.more.iter().copied())
            .chain(self.sizes.iter().copied())
            .chain(next)
    }

    /// The tables of a session of so many workers: the job's tables if sizes do not differ.
    pub(crate) fn tables_of(&self, workers: u8) -> impl Iterator<Item = u8> {
        ids_for_size(&self.spec, self.table, &self.more, &self.sizes, workers)
    }

    /// How much each worker of its next session may have outstanding, by its target with the least room; 0
    /// for no bound.
    #[must_use]
    pub fn credit(&self) -> u32 {
        self.places.values().filter_map(|place| place.credit).min().unwrap_or(0)
    }

    /// How much of a target's room it takes: that of its session or that of the next one, whichever is more.
    pub(super) fn taken_room(&self, target: &str, shards: u8) -> Option<Taken> {
        let place = self.places.get(target)?;
        let taken = |spec: &JobSpec, workers: u8, credit: u32| {
            let credit = if credit == 0 { spec.data_slots / 2 } else { credit };
            Taken { senders: spec.senders(workers), each: fills(credit, spec.ports(shards)) }
        };
        let next = self.next.as_ref().map_or(&self.spec, |next| &next.spec);
        let to_come = place.credit.map(|credit| taken(next, next.workers, credit));
        let session = place.session.as_ref();
        let runs = session.map(|session| taken(&self.spec, session.members.len() as u8, session.credit));
        to_come.into_iter().chain(runs).max_by_key(|taken| taken.senders as usize * taken.each)
    }

    /// The running session, and its target: of several, the one on which it began.
    #[must_use]
    pub(crate) fn running_session(&self) -> Option<(&str, &Session)> {
        let mut running = self.targets.iter().map(|target| (target.as_str(), self.places.get(target)));
        running.find_map(|(target, place)| Some((target, place?.session.as_ref()?)))
    }
}
