//! The rate of packets over the last seconds, its course over the last minutes, and workers that are always
//! behind.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use thc_control_proto::v1::{ReadCountersResponse, WorkerCounters};
use tokio::time::Instant;

/// Between two samples: targets are read as often.
pub const PERIOD: Duration = Duration::from_secs(1);
/// Samples over which a rate is taken, so that a slightly late reading makes no gap.
const WINDOW: usize = 4;
/// How far back what is wrong counts, and how often it is noted.
const MINUTE: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(5);
/// Samples that are shown of the past: two minutes.
const HISTORY: usize = 120;

/// A worker: job, target, number.
type Key = (String, String, u32);

/// Per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throughput {
    /// Packets.
    pub packets: f64,
    /// Bytes of frames.
    pub bytes: f64,
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    workers: BTreeMap<Key, Counts>,
}

#[derive(Clone, Copy, Debug)]
struct Counts {
    packets: u64,
    bytes: u64,
    in_session: u64,
}

/// What is counted of a worker that should not be.
#[derive(Clone, Debug, Default)]
struct Troubles {
    packets: u64,
    duplicate: u64,
    mismatch: u64,
    drops: BTreeMap<String, u64>,
    /// Packets that it reports, and those of them that it sent again.
    reported: (u64, u64),
}

impl Troubles {
    fn new(worker: &WorkerCounters) -> Troubles {
        let report = worker.report.unwrap_or_default();
        Troubles {
            packets: worker.packets,
            duplicate: worker.duplicate,
            mismatch: worker.mismatch,
            drops: worker.drops.iter().map(|drop| (drop.reason.clone(), drop.packets)).collect(),
            reported: (report.packets, report.repeated_packets),
        }
    }
}

/// What was counted at a moment: of workers, and of no job by target and reason.
#[derive(Debug, Default)]
struct Counted {
    workers: BTreeMap<Key, Troubles>,
    targets: BTreeMap<(String, String), u64>,
    /// Targets that had been read.
    read: BTreeSet<String>,
}

impl Counted {
    fn new(counters: &ReadCountersResponse) -> Counted {
        let mut counted = Counted::default();
        for job in &counters.jobs {
            counted.read.insert(job.target.clone());
            for worker in &job.workers {
                let key = (job.job.clone(), job.target.clone(), worker.worker);
                counted.workers.insert(key, Troubles::new(worker));
            }
        }
        for target in &counters.targets {
            for drop in &target.drops {
                counted.targets.insert((target.target.clone(), drop.reason.clone()), drop.packets);
            }
        }
        counted
    }
}

/// The last samples, and the past of each job.
#[derive(Debug, Default)]
pub struct Rates {
    /// What was counted in the last minute, from the oldest on.
    minute: VecDeque<(Instant, Counted)>,
    samples: VecDeque<Sample>,
    past: BTreeMap<String, VecDeque<f64>>,
}

impl Rates {
    /// Takes counters that were read at a time.
    pub fn sample(&mut self, at: Instant, counters: &ReadCountersResponse) {
        while self.minute.front().is_some_and(|(then, _)| at.duration_since(*then) > MINUTE) {
            self.minute.pop_front();
        }
        let newest = self.minute.back();
        let known = |(_, newest): &(Instant, Counted)| {
            let mut jobs = counters.jobs.iter();
            jobs.all(|job| {
                job.workers.iter().all(|worker| {
                    newest.workers.contains_key(&(job.job.clone(), job.target.clone(), worker.worker))
                })
            })
        };
        if newest.is_none_or(|newest| at.duration_since(newest.0) >= EVERY || !known(newest)) {
            self.minute.push_back((at, Counted::new(counters)));
        }
        let mut workers = BTreeMap::new();
        for job in &counters.jobs {
            for worker in &job.workers {
                let key = (job.job.clone(), job.target.clone(), worker.worker);
                let (packets, bytes) = (worker.packets, worker.bytes);
                workers.insert(key, Counts { packets, bytes, in_session: worker.in_session });
            }
        }
        if self.samples.len() > WINDOW {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { at, workers });
        let mut sums: BTreeMap<String, f64> =
            counters.jobs.iter().map(|job| (job.job.clone(), 0.0)).collect();
        if let Some(newest) = self.samples.back() {
            for key in newest.workers.keys() {
                *sums.entry(key.0.clone()).or_default() += self.rate(key).unwrap_or_default().packets;
            }
        }
        self.past.retain(|job, _| sums.contains_key(job));
        for (job, sum) in sums {
            let past = self.past.entry(job).or_default();
            if past.len() == HISTORY {
                past.pop_front();
            }
            past.push_back(sum);
        }
    }

    fn rate(&self, key: &Key) -> Option<Throughput> {
        let newest = self.samples.back()?;
        let now = newest.workers.get(key)?;
        // A job that is new was not there in older samples; one on a target that was restarted counts from zero.
        let there = self.samples.iter().filter_map(|sample| Some((sample.at, sample.workers.get(key)?)));
        let (since, old) =
            there.into_iter().find(|(_, old)| old.packets <= now.packets && old.bytes <= now.bytes)?;
        let seconds = newest.at.duration_since(since).as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let per_second = |now: u64, old: u64| (now - old) as f64 / seconds;
        Some(Throughput {
            packets: per_second(now.packets, old.packets),
            bytes: per_second(now.bytes, old.bytes),
        })
    }

    /// A worker's, if it was seen twice.
    #[must_use]
    pub fn worker(&self, job: &str, target: &str, worker: u32) -> Option<Throughput> {
        self.rate(&(job.to_owned(), target.to_owned(), worker))
    }

    /// The worker of a session of so many that was last, and at least this many packets behind the first, in
    /// each of the last samples while sums were made. Being last once means little, since some worker always
    /// is.
    #[must_use]
    pub fn slowest_worker(&self, job: &str, target: &str, members: u32, behind: u64) -> Option<u32> {
        if self.samples.len() <= WINDOW {
            return None;
        }
        let mut slow = None;
        let mut foremost_before = None;
        for sample in &self.samples {
            // Counters of an earlier session with more members may still be there.
            let is_member = |key: &Key| key.0 == job && key.1 == target && key.2 < members;
            let of_job = sample.workers.iter().filter(|(key, _)| is_member(key));
            let of_job: Vec<(u64, u32)> = of_job.map(|(key, counts)| (counts.in_session, key.2)).collect();
            let (&(least, last), &(most, _)) = (of_job.iter().min()?, of_job.iter().max()?);
            let moved = foremost_before.is_none_or(|before| most > before);
            if most - least < behind || !moved || slow.is_some_and(|slow| slow != last) {
                return None;
            }
            slow = Some(last);
            foremost_before = Some(most);
        }
        slow
    }

    /// The counts of the last minute, out of the present ones: packets that were dropped, came twice, or
    /// belonged to another call, and workers' reports. All else is unchanged. Nothing is known of counters
    /// that were read only once.
    #[must_use]
    pub fn recent(&self, now: &ReadCountersResponse) -> ReadCountersResponse {
        // A target that was restarted counts from zero.
        let since = |now: u64, then: u64| if now < then { now } else { now - then };
        let mut recent = now.clone();
        for job in &mut recent.jobs {
            for worker in &mut job.workers {
                let key = (job.job.clone(), job.target.clone(), worker.worker);
                let then = self.minute.iter().find_map(|(_, counted)| counted.workers.get(&key)).cloned();
                let then = then.unwrap_or_else(|| Troubles::new(worker));
                worker.packets = since(worker.packets, then.packets);
                worker.duplicate = since(worker.duplicate, then.duplicate);
                worker.mismatch = since(worker.mismatch, then.mismatch);
                for drop in &mut worker.drops {
                    drop.packets = since(drop.packets, then.drops.get(&drop.reason).copied().unwrap_or(0));
                }
                worker.drops.retain(|drop| drop.packets > 0);
                if let Some(report) = &mut worker.report {
                    report.packets = since(report.packets, then.reported.0);
                    report.repeated_packets = since(report.repeated_packets, then.reported.1);
                }
            }
        }
        for target in &mut recent.targets {
            let oldest = self.minute.iter().find(|(_, counted)| counted.read.contains(&target.target));
            for drop in &mut target.drops {
                let key = (target.target.clone(), drop.reason.clone());
                let then =
                    oldest.map_or(drop.packets, |(_, then)| then.targets.get(&key).copied().unwrap_or(0));
                drop.packets = since(drop.packets, then);
            }
            target.drops.retain(|drop| drop.packets > 0);
        }
        recent
    }

    /// Packets per second of all workers of a job, the newest last.
    #[must_use]
    pub fn past_rates(&self, job: &str) -> Vec<f64> {
        self.past.get(job).map(|past| past.iter().copied().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thc_control_proto::v1::{Drop, JobCounters};

    fn counters(packets: &[u64]) -> ReadCountersResponse {
        let workers = (0..).zip(packets).map(|(worker, &packets)| WorkerCounters {
            worker,
            packets,
            bytes: 10 * packets,
            in_session: packets,
            ..WorkerCounters::default()
        });
        let job = JobCounters {
            job: "j".into(),
            target: "t".into(),
            workers: workers.collect(),
            ..JobCounters::default()
        };
        ReadCountersResponse { jobs: vec![job], targets: Vec::new() }
    }

    #[test]
    fn rates_are_over_the_last_samples() {
        let (mut rates, start) = (Rates::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        rates.sample(at(0), &counters(&[0, 0]));
        assert_eq!(rates.worker("j", "t", 0), None);
        for second in 1..10 {
            rates.sample(at(second), &counters(&[100 * second, 300 * second]));
            assert_eq!(rates.worker("j", "t", 0), Some(Throughput { packets: 100.0, bytes: 1000.0 }));
        }
        assert_eq!(rates.past_rates("j").last(), Some(&400.0));
        // It stands still, and after the window nothing is left of what was before.
        for second in 10..20 {
            rates.sample(at(second), &counters(&[900, 2700]));
        }
        assert_eq!(rates.worker("j", "t", 1), Some(Throughput::default()));
        // The target was restarted.
        rates.sample(at(20), &counters(&[50, 50]));
        assert_eq!(rates.worker("j", "t", 0), None);
        rates.sample(at(21), &counters(&[80, 50]));
        assert_eq!(rates.worker("j", "t", 0), Some(Throughput { packets: 30.0, bytes: 300.0 }));
        rates.sample(at(22), &ReadCountersResponse::default());
        assert_eq!((rates.worker("j", "t", 0), rates.past_rates("j").len()), (None, 0));
    }

    #[test]
    fn the_slow_one_is_behind_all_the_time() {
        let start = Instant::now();
        let slow = |seconds: &dyn Fn(u64) -> [u64; 2]| {
            let mut rates = Rates::default();
            for second in 0..6 {
                rates.sample(start + Duration::from_secs(second), &counters(&seconds(second)));
            }
            rates.slowest_worker("j", "t", 2, 64)
        };
        assert_eq!(slow(&|second| [1000 * second + 128, 1000 * second]), Some(1));
        assert_eq!(slow(&|second| [1000 * second + 20, 1000 * second]), None, "a little");
        assert_eq!(slow(&|second| [1000 * second + 128 * (second % 2), 1000 * second + 64]), None, "in turn");
        assert_eq!(slow(&|_| [500, 0]), None, "nothing moves");
    }

    /// A job of up to four workers, of whom two are there: the other numbers are nobody's.
    #[test]
    fn nobody_is_slow_who_is_not_there() {
        let (mut rates, start) = (Rates::default(), Instant::now());
        for second in 0..6 {
            let all = counters(&[1000 * second + 20, 1000 * second, 0, 0]);
            rates.sample(start + Duration::from_secs(second), &all);
        }
        assert_eq!(rates.slowest_worker("j", "t", 2, 64), None);
    }

    /// What was wrong more than a minute ago, or before this controller looked, is no more said to be.
    #[test]
    fn what_is_long_past_is_forgotten() {
        let (mut rates, start) = (Rates::default(), Instant::now());
        let dropped = |packets| {
            let mut all = counters(&[1000]);
            let worker = &mut all.jobs[0].workers[0];
            (worker.drops, worker.duplicate) = (vec![Drop { reason: "source".to_owned(), packets }], packets);
            all
        };
        let recent = |rates: &Rates, packets| {
            let recent = rates.recent(&dropped(packets));
            let worker = &recent.jobs[0].workers[0];
            let drops: u64 = worker.drops.iter().map(|drop| drop.packets).sum();
            assert_eq!(worker.duplicate, drops);
            drops
        };
        assert_eq!(recent(&rates, 7), 0, "counted before this controller was there");
        for second in 0..200 {
            let packets = if second < 30 { 7 } else { 12 };
            rates.sample(start + Duration::from_secs(second), &dropped(packets));
            let wanted = if (30..=84).contains(&second) { 5 } else { 0 };
            if !(84..=92).contains(&second) {
                assert_eq!(recent(&rates, packets), wanted, "{second}");
            }
        }
        assert_eq!(recent(&rates, 3), 3, "the target was restarted");
        assert!(rates.minute.len() <= 14, "{}", rates.minute.len());
    }

    #[test]
    fn the_past_is_bounded() {
        let (mut rates, start) = (Rates::default(), Instant::now());
        for second in 0..1000 {
            rates.sample(start + Duration::from_secs(second), &counters(&[second]));
        }
        assert_eq!((rates.past_rates("j").len(), rates.samples.len()), (HISTORY, WINDOW + 1));
    }
}
