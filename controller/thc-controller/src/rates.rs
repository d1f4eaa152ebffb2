//! Readings of a job's counters, one after the other: what has changed between them, and which worker is
//! behind in all of them.

use thc_control_proto::v1::{JobCounters, ReadCountersResponse};

/// The worker of a running session of `members` that was last, and at least `behind` packets behind the
/// first, in each of these readings while sums were made. Being last once means little, since some worker
/// always is.
#[must_use]
pub fn slowest_worker(
    readings: &[ReadCountersResponse],
    target: &str,
    members: u32,
    behind: u64,
) -> Option<u32> {
    let mut slow = None;
    let mut foremost_before = None;
    for reading in readings {
        let job = reading.jobs.iter().find(|job| job.target == target)?;
        let members = job.workers.iter().filter(|worker| worker.worker < members);
        let counts: Vec<(u64, u32)> = members.map(|worker| (worker.in_session, worker.worker)).collect();
        let (&(least, last), &(most, _)) = (counts.iter().min()?, counts.iter().max()?);
        let moved = foremost_before.is_none_or(|before| most > before);
        if most - least < behind || !moved || slow.is_some_and(|slow| slow != last) {
            return None;
        }
        slow = Some(last);
        foremost_before = Some(most);
    }
    slow.filter(|_| readings.len() > 1)
}

/// A target that was restarted counts from zero.
fn since(now: u64, then: u64) -> u64 {
    if now < then { now } else { now - then }
}

/// The counts since an earlier reading, out of those of `now`: packets that were dropped, came twice, or
/// belonged to another call, and workers' reports. All else is unchanged.
#[must_use]
pub fn recent(then: &ReadCountersResponse, now: &ReadCountersResponse) -> ReadCountersResponse {
    let mut recent = now.clone();
    let before = |job: &JobCounters| then.jobs.iter().find(|of| of.job == job.job && of.target == job.target);
    for job in &mut recent.jobs {
        let Some(then) = before(job).cloned() else { continue };
        for worker in &mut job.workers {
            let Some(then) = then.workers.iter().find(|then| then.worker == worker.worker) else { continue };
            worker.packets = since(worker.packets, then.packets);
            worker.duplicate = since(worker.duplicate, then.duplicate);
            worker.mismatch = since(worker.mismatch, then.mismatch);
            for drop in &mut worker.drops {
                let then = then.drops.iter().find(|then| then.reason == drop.reason);
                drop.packets = since(drop.packets, then.map_or(0, |then| then.packets));
            }
            worker.drops.retain(|drop| drop.packets > 0);
            if let (Some(report), Some(then)) = (&mut worker.report, &then.report) {
                report.packets = since(report.packets, then.packets);
                report.repeated_packets = since(report.repeated_packets, then.repeated_packets);
            }
        }
    }
    for target in &mut recent.targets {
        let then = then.targets.iter().find(|then| then.target == target.target);
        for drop in &mut target.drops {
            let then = then.and_then(|then| then.drops.iter().find(|then| then.reason == drop.reason));
            drop.packets = since(drop.packets, then.map_or(0, |then| then.packets));
        }
        target.drops.retain(|drop| drop.packets > 0);
    }
    recent
}

#[cfg(test)]
mod tests {
    use super::*;
    use thc_control_proto::v1::{Drop, WorkerCounters};

    fn counters(packets: &[u64]) -> ReadCountersResponse {
        let workers = (0..).zip(packets).map(|(worker, &packets)| WorkerCounters {
            worker,
            packets,
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
    fn the_slow_one_is_behind_all_the_time() {
        let slow = |counts: &dyn Fn(u64) -> [u64; 3]| {
            let readings: Vec<_> = (0..4).map(|reading| counters(&counts(reading))).collect();
            slowest_worker(&readings, "t", 2, 64)
        };
        assert_eq!(slow(&|at| [1000 * at + 128, 1000 * at, 0]), Some(1), "worker 2 is no member");
        assert_eq!(slow(&|at| [1000 * at + 20, 1000 * at, 0]), None, "a little");
        assert_eq!(slow(&|at| [1000 * at + 128 * (at % 2), 1000 * at + 64, 0]), None, "in turn");
        assert_eq!(slow(&|_| [500, 0, 0]), None, "nothing moves");
        assert_eq!(slowest_worker(&[counters(&[500, 0])], "t", 2, 64), None, "one reading");
    }

    #[test]
    fn what_was_counted_before_is_not_recent() {
        let dropped = |packets| {
            let mut all = counters(&[1000]);
            let worker = &mut all.jobs[0].workers[0];
            (worker.drops, worker.duplicate) = (vec![Drop { reason: "source".to_owned(), packets }], packets);
            all
        };
        let drops = |then, now| {
            let recent = recent(&dropped(then), &dropped(now));
            let worker = &recent.jobs[0].workers[0];
            let drops: u64 = worker.drops.iter().map(|drop| drop.packets).sum();
            assert_eq!(worker.duplicate, drops);
            drops
        };
        assert_eq!((drops(7, 7), drops(7, 12), drops(7, 3)), (0, 5, 3), "the last after a restart");
    }
}
