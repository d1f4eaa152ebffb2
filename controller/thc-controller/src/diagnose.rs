//! Says in words, from counters, why no traffic flows and which worker is slow.

use crate::section::JobSection;
use thc_control_proto::v1::finding::Severity;
use thc_control_proto::v1::{
    Finding, Job, JobCounters, JobPlace, ReadCountersResponse, Target, WorkerCounters,
};

/// Seconds of silence after which a worker counts as missing while others send.
const MISSED: f64 = 2.0;
/// Below this share of repeated packets nothing needs to be done.
const FEW_REPEATED: f64 = 0.02;
/// A round trip this many times that of the others' median is slow.
const SLOW: f64 = 3.0;
/// And by at least so many microseconds: smaller differences come from the scheduler.
const SLOW_BY: u32 = 1000;

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The job.
    pub job: &'a Job,
    /// All that was counted of it.
    pub counters: &'a ReadCountersResponse,
    /// What of that in the last seconds.
    pub recent: &'a ReadCountersResponse,
    /// All targets.
    pub targets: &'a [Target],
    /// Targets that refuse rows of it, and why.
    pub refused: &'a [(String, String)],
}

/// The findings about a job. `slow` names the worker for which the others wait on a target, if it is always
/// the same one.
#[must_use]
pub fn findings(seen: &Seen<'_>, slow: impl Fn(&str) -> Option<u32>) -> Vec<Finding> {
    let &Seen { job, counters, recent, targets, refused } = seen;
    let mut found = Vec::new();
    for (target, why) in refused {
        let what = format!("target {target} refuses rows of this job, which has nothing there: {why}");
        let mend = "make room there by deleting other jobs, or give the job another target; it is tried again when its workers join";
        found.push(problem(None, what, mend));
    }
    let section = JobSection::from_job(job);
    let workers = section.workers();
    for place in &job.places {
        if !place.connected {
            let target = targets.iter().find(|target| target.name == place.target);
            let error = target.map(|target| target.error.clone()).unwrap_or_default();
            let why = if error.is_empty() {
                format!("target {} is not connected yet", place.target)
            } else {
                format!("target {} is away: {error}", place.target)
            };
            found.push(problem(
                None,
                why,
                "start it, or check the network in between; the job's rows come back by themselves",
            ));
        }
    }
    for target in targets.iter().filter(|t| job.places.iter().any(|place| place.target == t.name)) {
        if !target.differences.is_empty() {
            let (name, rows) = (&target.name, target.differences.len());
            let what = format!("target {name}: somebody else has changed {rows} of its rows");
            let mend = format!(
                "see `thc-controller target diff {name}`; with --repair they become what was written"
            );
            found.push(problem(None, what, &mend));
        }
    }
    if !job.places.iter().any(|place| place.running) {
        for place in job.places.iter().filter(|place| place.connected) {
            found.extend(before_session(place, workers));
        }
        carrier_findings(recent, &mut found);
        return found;
    }
    let (mut members, mut results) = (0, 0);
    for place in job.places.iter().filter(|place| place.running) {
        let at = |of: &&JobCounters| of.target == place.target;
        let (Some(counted), Some(recent)) = (counters.jobs.iter().find(at), recent.jobs.iter().find(at))
        else {
            let what = format!("no counters of target {} have been read yet", place.target);
            found.push(note(None, what, "ask again in a second"));
            continue;
        };
        let mut of_place = Vec::new();
        session_findings(counted, recent, slow(&place.target), &mut of_place);
        if job.places.len() > 1 {
            of_place.iter_mut().for_each(|finding| finding.what += &format!(" (at target {})", place.target));
        }
        found.append(&mut of_place);
        (members, results) = (members.max(counted.workers.len()), results + counted.results);
    }
    carrier_findings(recent, &mut found);
    if found.iter().all(|finding| finding.severity() == Severity::Ok) {
        let what = format!("the session runs: {members} workers, {results} results");
        found.insert(0, Finding { severity: Severity::Ok.into(), what, ..Finding::default() });
    }
    found
}

/// Says which workers are missing.
fn before_session(place: &JobPlace, workers: u32) -> Option<Finding> {
    let joined = place.joined.count_ones();
    if joined == 0 {
        let what = format!("no worker has joined at target {}", place.target);
        let mend =
            "start the workers; if they run, see what they say: a wrong cookie or job is refused at once";
        return Some(note(None, what, mend));
    }
    let missing = (0..workers).filter(|worker| place.joined >> worker & 1 == 0);
    let missing: Vec<String> = missing.map(|worker| worker.to_string()).collect();
    (!missing.is_empty()).then(|| {
        let what = format!("waiting for worker {} of {workers}", missing.join(", "));
        problem(None, what, "start them; the session begins when all have joined")
    })
}

/// What is wrong with a session, by all counts and by those of the last seconds: problems that ended long ago
/// are not reported.
fn session_findings(
    counted: &JobCounters,
    recent: &JobCounters,
    slow: Option<u32>,
    found: &mut Vec<Finding>,
) {
    let silent = |worker: &WorkerCounters| worker.silent.unwrap_or(f64::INFINITY);
    let liveliest = counted.workers.iter().map(silent).fold(f64::INFINITY, f64::min);
    let idle = liveliest > MISSED;
    if counted.workers.iter().all(|worker| worker.packets == 0) {
        let mend = "workers joined but send nothing: are they computing? Is UDP from them to the aggregator's port let through?";
        found.push(problem(None, "no packet of any worker has come".to_owned(), mend));
    } else if idle {
        let text = format!("nobody has sent for {liveliest:.0} s");
        found.push(note(
            None,
            text,
            "if training should be going on, look at the workers: all wait for something else",
        ));
    }
    for worker in &counted.workers {
        let number = worker.worker;
        if !idle && silent(worker) > MISSED {
            let since = match worker.silent {
                Some(seconds) => format!("its last packet came {seconds:.0} s ago"),
                None => "no packet of it has come".to_owned(),
            };
            let mend = "the others wait for it: look at its process and its link";
            found.push(problem(Some(number), format!("worker {number} is silent: {since}"), mend));
        }
    }
    for worker in &recent.workers {
        let number = worker.worker;
        for drop in &worker.drops {
            let text = format!(
                "{} packets of worker {number} were dropped in the last seconds: {}",
                drop.packets,
                reason(&drop.reason)
            );
            found.push(problem(Some(number), text, mend_of(&drop.reason)));
        }
        let arrived = worker.packets.max(1) as f64;
        let repeated = worker.duplicate as f64 / arrived;
        if repeated > FEW_REPEATED {
            let text = format!(
                "{:.0} % of worker {number}'s packets of the last seconds came twice",
                repeated * 100.0
            );
            let mend = "results are lost on the way to it, or come late: look for drops on its receiving side, or raise its receive buffer";
            found.push(note(Some(number), text, mend));
        }
        if worker.mismatch > 0 {
            let text = format!(
                "{} packets of worker {number} in the last seconds belonged to another all-reduce than the others'",
                worker.mismatch
            );
            found.push(problem(
                Some(number),
                text,
                "all workers must call in the same order with the same lengths",
            ));
        }
        if let Some(report) = &worker.report {
            let resent = report.repeated_packets as f64 / report.packets.max(1) as f64;
            if resent > FEW_REPEATED {
                let share = resent * 100.0;
                let text =
                    format!("worker {number} sent {share:.0} % of its packets of the last seconds again");
                found.push(note(
                    Some(number),
                    text,
                    "packets to or from it are lost: look at its link and at socket buffers",
                ));
            }
        }
    }
    let mut trips: Vec<(u32, u32)> = counted
        .workers
        .iter()
        .filter_map(|w| Some((w.report?.round_trip_us, w.worker)))
        .filter(|(us, _)| *us > 0)
        .collect();
    trips.sort_unstable();
    if let (Some(&(median, _)), Some(&(longest, worker))) =
        (trips.get(trips.len().saturating_sub(1) / 2), trips.last())
        && trips.len() > 1
        && f64::from(longest) > SLOW * f64::from(median)
        && longest - median > SLOW_BY
    {
        let text = format!("worker {worker} has a round trip of {longest} µs, the median is {median} µs");
        found.push(note(Some(worker), text, "its link or its host is slower than the others'"));
    }
    if let Some(slow) = slow {
        let text = format!("worker {slow} is slow: in all of the last readings the others waited for it");
        let mend = "its host or link does less than the others': look at what else runs there, and at its round trip";
        found.push(note(Some(slow), text, mend));
    }
}

/// Packets that belong to no job: often the wrong job number.
fn carrier_findings(counters: &ReadCountersResponse, found: &mut Vec<Finding>) {
    for target in &counters.targets {
        for drop in &target.drops {
            let text = format!(
                "target {}: {} packets of no job were dropped in the last seconds: {}",
                target.target,
                drop.packets,
                reason(&drop.reason)
            );
            found.push(note(None, text, mend_of(&drop.reason)));
        }
    }
}

fn reason(name: &str) -> &str {
    match name {
        "short" => "shorter than a header",
        "version" => "another protocol version",
        "kind" => "not a kind that an aggregator takes",
        "job" => "no such job, or its session is over",
        "cookie" => "not the session's cookie",
        "member" => "no such worker",
        "source" => "from another address than the member's",
        "workers" => "another number of workers",
        "length" => "wrong payload length",
        "slot" => "no such slot",
        "table" => "a lookup table that the job does not have",
        "round" => "rounds ahead of what the others are at",
        "mixed" => "of another kind or lookup table than the others'",
        "carrier" => "IP options, fragments, wrong lengths or checksums, or made to look like a switch's own",
        "pass" => "the job was taken away while they were under way",
        "rate" => "more for the controller than a port may send (control_rate)",
        other => other,
    }
}

fn mend_of(name: &str) -> &'static str {
    match name {
        "cookie" | "job" | "pass" => {
            "packets of a session that is over: normal for a moment after one ended; otherwise restart that worker"
        }
        "source" | "member" => {
            "its address changed (NAT, another interface) or somebody uses its number: restart that worker, it joins from its address"
        }
        "version" => "bring all parts to one version",
        "carrier" => "lower the path's MTU use or turn off what fragments; check offloads on virtual links",
        "length" | "slot" | "table" | "workers" => {
            "that worker has other parameters than the job: restart it"
        }
        "round" => {
            "a few after a restart of the aggregator do no harm; otherwise somebody changes or forges packets"
        }
        "mixed" => {
            "no thc-worker sends these: packets were changed on the way (are UDP checksums on?) or forged"
        }
        "rate" => {
            "find who keeps joining behind the switch; if all of them are yours, raise the target's control_rate"
        }
        _ => "somebody else sends to the aggregator's port",
    }
}

fn problem(worker: Option<u32>, what: String, mend: &str) -> Finding {
    Finding { severity: Severity::Problem.into(), what, mend: mend.to_owned(), worker }
}

fn note(worker: Option<u32>, what: String, mend: &str) -> Finding {
    Finding { severity: Severity::Note.into(), what, mend: mend.to_owned(), worker }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_control_proto::v1::Drop;

    fn job(joined: u64, running: bool) -> Job {
        let place = JobPlace { target: "s".into(), connected: true, joined, running, ..JobPlace::default() };
        Job { section: "name = \"j\"\nworkers = 2".into(), places: vec![place], ..Job::default() }
    }

    fn counters(workers: Vec<WorkerCounters>) -> ReadCountersResponse {
        let job = JobCounters {
            job: "j".into(),
            target: "s".into(),
            workers,
            results: 5,
            ..JobCounters::default()
        };
        ReadCountersResponse { jobs: vec![job], targets: Vec::new() }
    }

    fn worker(worker: u32, silent: f64) -> WorkerCounters {
        WorkerCounters {
            worker,
            packets: 100,
            opened: 50,
            added: 50,
            silent: Some(silent),
            ..WorkerCounters::default()
        }
    }

    fn lines(findings: &[Finding]) -> String {
        findings.iter().map(|finding| format!("{} | {}\n", finding.what, finding.mend)).collect()
    }

    /// Of these counters, all of the last seconds.
    fn find(job: &Job, counters: &ReadCountersResponse) -> Vec<Finding> {
        findings(&Seen { job, counters, recent: counters, targets: &[], refused: &[] }, |_| None)
    }

    #[test]
    fn nobody_or_some_have_joined() {
        assert!(lines(&find(&job(0, false), &counters(vec![]))).contains("no worker has joined"));
        assert!(lines(&find(&job(1, false), &counters(vec![]))).contains("waiting for worker 1 of 2"));
    }

    #[test]
    fn a_session_that_runs_is_fine() {
        let found = find(&job(3, true), &counters(vec![worker(0, 0.1), worker(1, 0.1)]));
        assert_eq!(found.len(), 1, "{}", lines(&found));
        assert_eq!(found[0].severity(), Severity::Ok);
    }

    /// What was dropped long ago is no problem any more.
    #[test]
    fn what_is_past_is_no_problem() {
        let mut first = worker(0, 0.1);
        first.drops = vec![Drop { reason: "cookie".into(), packets: 7 }];
        (first.duplicate, first.mismatch) = (50, 1);
        let (all, recent) =
            (counters(vec![first, worker(1, 0.1)]), counters(vec![worker(0, 0.1), worker(1, 0.1)]));
        let job = job(3, true);
        let seen = Seen { job: &job, counters: &all, recent: &recent, targets: &[], refused: &[] };
        let found = findings(&seen, |_| None);
        assert_eq!((found.len(), found[0].severity()), (1, Severity::Ok), "{}", lines(&found));
    }

    /// Each server of a job is looked at.
    #[test]
    fn each_server_is_looked_at() {
        let mut job = job(3, true);
        job.places.push(JobPlace { target: "other".into(), ..job.places[0].clone() });
        let mut all = counters(vec![worker(0, 0.1), worker(1, 0.1)]);
        let mut second = all.jobs[0].clone();
        second.target = "other".into();
        second.workers[1].drops = vec![Drop { reason: "source".into(), packets: 7 }];
        all.jobs.push(second);
        let text = lines(&find(&job, &all));
        assert!(text.contains("7 packets of worker 1 were dropped in the last seconds"), "{text}");
        assert!(text.contains("(at target other)") && !text.contains("(at target s)"), "{text}");
    }

    #[test]
    fn the_silent_and_the_dropped_are_named() {
        let mut second = worker(1, 60.0);
        second.drops = vec![Drop { reason: "source".into(), packets: 7 }];
        let text = lines(&find(&job(3, true), &counters(vec![worker(0, 0.1), second])));
        assert!(text.contains("worker 1 is silent") && text.contains("60 s ago"), "{text}");
        let dropped = "7 packets of worker 1 were dropped in the last seconds: from another address";
        assert!(text.contains(dropped), "{text}");
        assert!(!text.contains("worker 0"), "{text}");
    }

    #[test]
    fn the_slow_one_is_named() {
        let (job, both) = (job(3, true), counters(vec![worker(0, 0.1), worker(1, 0.1)]));
        let seen = Seen { job: &job, counters: &both, recent: &both, targets: &[], refused: &[] };
        let found = findings(&seen, |target| (target == "s").then_some(1));
        assert_eq!((found.len(), found[0].worker), (1, Some(1)), "{}", lines(&found));
        assert!(lines(&found).contains("worker 1 is slow"));
    }

    #[test]
    fn a_target_that_is_away_says_why() {
        let mut job = job(3, false);
        job.places[0].connected = false;
        let target = Target { name: "s".into(), error: "cannot connect".into(), ..Target::default() };
        let none = counters(vec![]);
        let seen = Seen { job: &job, counters: &none, recent: &none, targets: &[target], refused: &[] };
        assert!(lines(&findings(&seen, |_| None)).contains("cannot connect"));
    }
}
