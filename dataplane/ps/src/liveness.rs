//! Which workers still send: published by the shards, read by the control thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thc_protocol::aggregator::WorkerCounters;
use thc_protocol::{JobId, MAX_WORKERS, WorkerId};

/// The interval at which shards publish their counts.
pub const PUBLISH: Duration = Duration::from_millis(50);

/// The number of packets of each worker that a shard has let in. Each shard writes its own counts from time to time;
/// the control thread checks whether they have changed.
#[derive(Debug)]
pub struct Liveness {
    jobs: Vec<JobId>,
    /// Counts by shard, then by job and worker. One allocation for each shard, so that shards share no cache line.
    shards: Vec<Vec<AtomicU64>>,
}

impl Liveness {
    /// The counts of these jobs, at most [`MAX_WORKERS`] workers each.
    #[must_use]
    pub fn new(jobs: Vec<JobId>, shards: usize) -> Liveness {
        let cells = || (0..jobs.len() * MAX_WORKERS).map(|_| AtomicU64::new(0)).collect();
        let shards = (0..shards).map(|_| cells()).collect();
        Liveness { jobs, shards }
    }

    /// The watched jobs, in the order in which [`Self::publish`] takes them.
    #[must_use]
    pub fn jobs(&self) -> &[JobId] {
        &self.jobs
    }

    /// Says that `shard` has let in `packets` of the worker so far.
    pub fn publish(&self, shard: usize, job: usize, worker: WorkerId, packets: u64) {
        if let Some(cell) = self.shards[shard].get(job * MAX_WORKERS + usize::from(worker.0)) {
            // Only the number itself matters, no memory behind it.
            cell.store(packets, Ordering::Relaxed);
        }
    }

    fn total(&self, cell: usize) -> u64 {
        self.shards.iter().map(|shard| shard[cell].load(Ordering::Relaxed)).sum()
    }
}

/// Packets of a worker that were let in: only these prove that it is alive, since anybody can send
/// packets that name it.
#[must_use]
pub fn count_admitted(counters: &WorkerCounters) -> u64 {
    counters.events.iter().sum()
}

/// When each worker's count was last seen to change.
#[derive(Debug)]
pub struct Watch {
    seen: Vec<(u64, Option<Duration>)>,
    /// When it was looked before.
    looked: Duration,
}

impl Watch {
    /// No worker was heard yet.
    #[must_use]
    pub fn new(liveness: &Liveness) -> Watch {
        Watch { seen: vec![(0, None); liveness.jobs.len() * MAX_WORKERS], looked: Duration::ZERO }
    }

    /// Reads the counts at the time `now`.
    pub fn refresh(&mut self, liveness: &Liveness, now: Duration) {
        // The packets came since the look before, and were published up to so long after. What is not sure does not
        // count: a worker that was killed must not seem to have sent after it was asked whether it runs (P24).
        let since = self.looked.saturating_sub(PUBLISH);
        for (cell, (count, heard)) in self.seen.iter_mut().enumerate() {
            let total = liveness.total(cell);
            if total != *count {
                (*count, *heard) = (total, Some(since));
            }
        }
        self.looked = now;
    }

    /// At most how long ago a worker was last heard; `None` if never.
    #[must_use]
    pub fn silence(
        &self,
        liveness: &Liveness,
        job: JobId,
        worker: WorkerId,
        now: Duration,
    ) -> Option<Duration> {
        let job = liveness.jobs.iter().position(|&known| known == job)?;
        let worker = Some(usize::from(worker.0)).filter(|&worker| worker < MAX_WORKERS)?;
        let (_, heard) = self.seen.get(job * MAX_WORKERS + worker)?;
        heard.map(|heard| now.saturating_sub(heard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_shard_shows_that_a_worker_lives() {
        let liveness = Liveness::new(vec![JobId(7), JobId(9)], 2);
        let mut watch = Watch::new(&liveness);
        let seconds = Duration::from_secs;
        watch.refresh(&liveness, seconds(1));
        assert_eq!(watch.silence(&liveness, JobId(9), WorkerId(3), seconds(2)), None);
        liveness.publish(1, 1, WorkerId(3), 5);
        watch.refresh(&liveness, seconds(3));
        watch.refresh(&liveness, seconds(4));
        // After the look at 1 s, less the time that it may have taken to be published.
        assert_eq!(watch.silence(&liveness, JobId(9), WorkerId(3), seconds(5)), Some(seconds(4) + PUBLISH));
        liveness.publish(0, 1, WorkerId(3), 1);
        watch.refresh(&liveness, seconds(6));
        assert_eq!(watch.silence(&liveness, JobId(9), WorkerId(3), seconds(6)), Some(seconds(2) + PUBLISH));
        assert_eq!(watch.silence(&liveness, JobId(7), WorkerId(3), seconds(6)), None);
        assert_eq!(watch.silence(&liveness, JobId(8), WorkerId(3), seconds(6)), None);
        assert_eq!(watch.silence(&liveness, JobId(9), WorkerId(200), seconds(6)), None);
    }
}
