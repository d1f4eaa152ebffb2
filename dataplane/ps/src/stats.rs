//! A server's counters, as it reports them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thc_protocol::aggregator::{DropReason, Event, JobCounters, WorkerCounters};
use thc_protocol::{JobId, MAX_WORKERS, WorkerId};

use crate::state::{ControlCounters, SessionView, ShardReport};
use thc_config::server::ServerConfig;

/// A job, as it is reported.
#[derive(Clone, Debug)]
pub struct JobSummary {
    /// Its number.
    pub job: JobId,
    /// n.
    pub workers: u8,
    /// Workers that complete a slot.
    pub quorum: u8,
    /// The index of its counters.
    pub index: u16,
    /// Its session.
    pub view: SessionView,
}

/// The first reasons of P7 drop packets before their job is known.
const GLOBAL_REASONS: usize = 4;

/// Counters of a whole server since its start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerStats {
    /// The address at which it listens.
    pub listen: SocketAddr,
    /// Its shards.
    pub shards: u8,
    /// Seconds since its start.
    pub seconds: f64,
    /// Its sockets.
    pub network: NetworkStats,
    /// Its control plane.
    pub control: ControlStats,
    /// Bytes that its jobs take in all shards together.
    pub memory: u64,
    /// Packets dropped that belong to no job, by reason (P7).
    pub drops: BTreeMap<String, u64>,
    /// Frames that were not datagrams for it, and datagrams that were not sent, by reason. Only DPDK
    /// has any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub frames: BTreeMap<String, u64>,
    /// Its jobs: in the order of their configuration, or those that a controller wrote, by number, followed
    /// by those that it has removed.
    pub jobs: Vec<JobStats>,
}

/// All sockets of a server together. Bytes are counted from the IPv4 header upwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkStats {
    /// Datagrams received.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Datagrams sent.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Datagrams refused by the network for a passing reason.
    pub send_errors: u64,
    /// Datagrams that could not be sent, for a reason that does not pass.
    pub send_failures: u64,
    /// The number of times that the kernel dropped a datagram, or a run of them, because a receive buffer was full.
    pub recv_overflows: u64,
}

/// The control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlStats {
    /// JOIN and LEAVE packets taken.
    pub packets: u64,
    /// Packets dropped because too many came at once.
    pub dropped: u64,
    /// Workers that were refused, counted by packet.
    pub refused: u64,
}

/// One job, all its sessions together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobStats {
    /// Its number.
    pub job: u16,
    /// n.
    pub workers: u8,
    /// Workers that complete a slot.
    pub quorum: u8,
    /// True if a session runs.
    pub running: bool,
    /// The workers that have joined it.
    pub joined: Vec<u8>,
    /// Sessions begun.
    pub sessions: u64,
    /// Slots completed.
    pub results: u64,
    /// RESULTs sent again to one worker.
    pub resent: u64,
    /// NUDGEs passed on.
    pub nudges: u64,
    /// The members by worker number, 0 to n − 1.
    pub members: Vec<WorkerStats>,
    /// Packets that named a worker that the job does not have.
    pub strangers: WorkerStats,
}

/// One worker of a job. Only packets that reached the job are counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Its number.
    pub worker: u8,
    /// Packets that named it.
    pub packets: u64,
    /// Their bytes, from the protocol's header upwards.
    pub bytes: u64,
    /// Packets that were let in, by event.
    pub events: BTreeMap<String, u64>,
    /// Packets dropped, by reason (P7, from the cookie on).
    pub drops: BTreeMap<String, u64>,
}

impl WorkerStats {
    fn new(worker: u8, counters: &WorkerCounters) -> WorkerStats {
        WorkerStats {
            worker,
            packets: counters.packets,
            bytes: counters.bytes,
            events: by_name(Event::ALL.iter().map(|event| event.name()).zip(counters.events)),
            drops: by_name(
                DropReason::ALL.iter().map(|reason| reason.name()).zip(counters.drops).skip(GLOBAL_REASONS),
            ),
        }
    }

    /// The number of its packets that were dropped.
    #[must_use]
    pub fn drop_count(&self) -> u64 {
        self.drops.values().sum()
    }

    /// The number of its packets that ended in `event`.
    #[must_use]
    pub fn count(&self, event: Event) -> u64 {
        self.events.get(event.name()).copied().unwrap_or(0)
    }
}

fn by_name(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    counts.map(|(name, count)| (name.to_owned(), count)).collect()
}

impl ServerStats {
    pub(crate) fn gather(
        config: &ServerConfig,
        listen: SocketAddr,
        elapsed: Duration,
        shards: &[ShardReport],
        summaries: &[JobSummary],
        control: &ControlCounters,
    ) -> ServerStats {
        let mut network = NetworkStats::default();
        let mut drops = [0; GLOBAL_REASONS];
        let mut frames = BTreeMap::new();
        for shard in shards {
            network.add(shard);
            drops.iter_mut().zip(shard.globals.drops).for_each(|(sum, count)| *sum += count);
            for (reason, count) in shard.frames.by_name().into_iter().filter(|(_, count)| *count > 0) {
                *frames.entry(reason.to_owned()).or_default() += count;
            }
        }
        let jobs = summaries.iter().map(|job| {
            let merged = merge_job(shards, job.index);
            JobStats::gather(job.workers, job.quorum, job.job, job.view, merged.as_ref())
        });
        ServerStats {
            listen,
            shards: config.shards,
            seconds: elapsed.as_secs_f64(),
            network,
            control: ControlStats {
                packets: control.packets.load(Ordering::Relaxed),
                dropped: shards.iter().map(|shard| shard.control_dropped).sum(),
                refused: control.refused.load(Ordering::Relaxed),
            },
            memory: shards.iter().map(|shard| shard.memory as u64).sum(),
            drops: by_name(DropReason::ALL.iter().map(|reason| reason.name()).zip(drops)),
            frames,
            jobs: jobs.collect(),
        }
    }

    /// One job's counters.
    #[must_use]
    pub fn job(&self, job: u16) -> Option<&JobStats> {
        self.jobs.iter().find(|stats| stats.job == job)
    }
}

/// The sum of all shards' counters under an index.
pub fn merge_job(shards: &[ShardReport], index: u16) -> Option<JobCounters> {
    let mut merged: Option<JobCounters> = None;
    for counters in shards.iter().filter_map(|shard| shard.jobs.get(&index)) {
        match &mut merged {
            Some(sum) => sum.merge(counters),
            None => merged = Some(counters.clone()),
        }
    }
    merged
}

impl NetworkStats {
    fn add(&mut self, shard: &ShardReport) {
        self.packets_in += shard.io.packets_in;
        self.bytes_in += shard.io.bytes_in;
        self.packets_out += shard.io.packets_out;
        self.bytes_out += shard.io.bytes_out;
        self.send_errors += shard.io.send_errors;
        self.send_failures += shard.send_failures;
        self.recv_overflows += shard.recv_overflows;
    }
}

impl JobStats {
    fn gather(
        workers: u8,
        quorum: u8,
        job: JobId,
        view: SessionView,
        counters: Option<&JobCounters>,
    ) -> JobStats {
        let none = WorkerCounters::default();
        let worker = |number: u8| counters.map_or(none, |counters| *counters.worker(WorkerId(number)));
        let mut strangers = WorkerCounters::default();
        for number in workers..=MAX_WORKERS as u8 {
            let stranger = worker(number);
            strangers.packets += stranger.packets;
            strangers.bytes += stranger.bytes;
            strangers.drops.iter_mut().zip(stranger.drops).for_each(|(sum, count)| *sum += count);
        }
        JobStats {
            job: job.0,
            workers,
            quorum,
            running: view.running,
            joined: (0..workers).filter(|&number| view.joined & WorkerId(number).bit() != 0).collect(),
            sessions: view.begun,
            results: counters.map_or(0, |counters| counters.results),
            resent: counters.map_or(0, |counters| counters.resent),
            nudges: counters.map_or(0, |counters| counters.nudges),
            members: (0..workers).map(|number| WorkerStats::new(number, &worker(number))).collect(),
            strangers: WorkerStats::new(WorkerId::NONE.0, &strangers),
        }
    }
}
