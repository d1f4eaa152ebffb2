//! Finds in a job's counters why no traffic flows, and which worker is slow.

use crate::live::{CARRIER, JobReading, Reading, WorkerReading};
use crate::store::IN_SUMS;
use thc_control_proto::v1::finding::Severity;
use thc_control_proto::v1::{Finding, JobPlace, Target};
use thc_protocol::aggregator::{DropReason, Event};

/// Seconds of silence after which a worker counts as missing while others send.
const MISSED: f64 = 2.0;
/// Below this share of repeated packets nothing needs to be done.
const FEW_REPEATED: f64 = 0.02;

/// The facts that the findings follow from.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The number of the job's workers.
    pub workers: u32,
    /// Its places on its targets.
    pub places: &'a [JobPlace],
    /// Its counters, read some seconds apart, the latest last.
    pub readings: &'a [Reading],
    /// All targets.
    pub targets: &'a [Target],
    /// Targets that refuse rows of it, and why.
    pub refused: &'a [(String, String)],
    /// The number of packets by which a slow worker is behind the foremost.
    pub behind: u64,
}

/// The findings about a job.
pub fn findings(seen: &Seen<'_>) -> Vec<Finding> {
    let &Seen { workers, places, targets, refused, .. } = seen;
    let mut found = Vec::new();
    for (target, why) in refused {
        let what = format!("target {target} refuses rows of this job, which has nothing there: {why}");
        let mend = "make room there by deleting other jobs, or give the job another target; it is tried again when its workers join";
        found.push(problem(None, what, mend));
    }
    for place in places {
        let Some(target) = targets.iter().find(|target| target.name == place.target) else { continue };
        let name = &target.name;
        if !place.connected {
            let why = match target.error.as_str() {
                "" => format!("target {name} is not connected yet"),
                error => format!("target {name} is away: {error}"),
            };
            let mend = "start it, or check the network in between; the job's rows come back by themselves";
            found.push(problem(None, why, mend));
        }
    }
    let running: Vec<&JobPlace> = places.iter().filter(|place| place.running).collect();
    if running.is_empty() {
        let connected = places.iter().filter(|place| place.connected);
        found.extend(connected.filter_map(|place| before_session(place, workers)));
    }
    let (mut members, mut results) = (0, 0);
    for place in &running {
        let jobs = seen.readings.iter().flat_map(|all| &all.jobs);
        let readings: Vec<&JobReading> = jobs.filter(|job| job.target == place.target).collect();
        let (Some(first), Some(last)) = (readings.first(), readings.last()) else {
            let what = format!("no counters of target {} have been read yet", place.target);
            found.push(note(None, what, "ask again in a second"));
            continue;
        };
        let mut at_place = session_findings(first, last);
        if let Some(slow) = slowest_worker(&readings, seen.behind) {
            let text = format!("worker {slow} is slow: in all of the last readings the others waited for it");
            let mend = "its host or link does less than the others': look at what else runs there, and at its round trip";
            at_place.push(note(Some(slow), text, mend));
        }
        if places.len() > 1 {
            at_place.iter_mut().for_each(|finding| finding.what += &format!(" (at target {})", place.target));
        }
        found.append(&mut at_place);
        (members, results) = (members.max(last.workers.len()), results + last.answers[0]);
    }
    if let (Some(first), Some(last)) = (seen.readings.first(), seen.readings.last()) {
        for (target, now) in &last.carrier {
            let then = first.carrier.get(target).copied().unwrap_or_default();
            let names = CARRIER.iter().map(|(_, name)| *name);
            found.extend(recent_drops(names, &then, now).map(|(name, packets)| {
                let reason = reason(name);
                let text = format!(
                    "target {target}: {packets} packets of no job were dropped in the last seconds: {reason}"
                );
                note(None, text, mend_of(name))
            }));
        }
    }
    if !running.is_empty() && found.is_empty() {
        let what = format!("the session runs: {members} workers, {results} results");
        found.push(Finding { severity: Severity::Ok.into(), what, ..Finding::default() });
    }
    found
}

/// Says which workers are missing.
fn before_session(place: &JobPlace, workers: u32) -> Option<Finding> {
    if place.joined == 0 {
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

/// The problems of a session. Packets that were dropped, came twice or belonged to another call count only if they came
/// between the two readings: problems that ended long ago are not reported.
fn session_findings(first: &JobReading, last: &JobReading) -> Vec<Finding> {
    let mut found = Vec::new();
    let silent = |worker: &WorkerReading| worker.silent.unwrap_or(f64::INFINITY);
    let liveliest = last.workers.iter().map(silent).fold(f64::INFINITY, f64::min);
    let idle = liveliest > MISSED;
    if last.workers.iter().all(|worker| worker.counted.packets == 0) {
        let mend = "workers joined but send nothing: are they computing? Is UDP from them to the aggregator's port let through?";
        found.push(problem(None, "no packet of any worker has come".to_owned(), mend));
    } else if idle {
        let mend = "if training should be going on, look at the workers: all wait for something else";
        found.push(note(None, format!("nobody has sent for {liveliest:.0} s"), mend));
    }
    let none = WorkerReading::default();
    let is_missed = |silent: Option<f64>| silent.is_none_or(|seconds| seconds > MISSED);
    let some_missed = last.workers.iter().any(|worker| is_missed(worker.silent));
    for WorkerReading { worker, counted: now, silent: since_last, .. } in &last.workers {
        let number = u32::from(*worker);
        let then = first.workers.iter().find(|then| then.worker == *worker).unwrap_or(&none).counted;
        let events = |event: Event| since(now.events[event as usize], then.events[event as usize]);
        if !idle && is_missed(*since_last) {
            let since = match since_last {
                Some(seconds) => format!("its last packet came {seconds:.0} s ago"),
                None => "no packet of it has come".to_owned(),
            };
            let mend = "the others wait for it: look at its process and its link";
            found.push(problem(Some(number), format!("worker {number} is silent: {since}"), mend));
        }
        for (name, packets) in recent_drops(DropReason::ALL.map(DropReason::name), &then.drops, &now.drops) {
            let reason = reason(name);
            let text =
                format!("{packets} packets of worker {number} were dropped in the last seconds: {reason}");
            found.push(problem(Some(number), text, mend_of(name)));
        }
        let arrived = since(now.packets, then.packets).max(1) as f64;
        let repeated = events(Event::Duplicate) as f64 / arrived;
        // Workers that wait for a silent one send again what has arrived.
        if repeated > FEW_REPEATED && !some_missed {
            let percent = repeated * 100.0;
            let text = format!("{percent:.0} % of worker {number}'s packets of the last seconds came twice");
            let mend = "results are lost on the way to it, or come late: look for drops on its receiving side, or raise its receive buffer";
            found.push(note(Some(number), text, mend));
        }
        let mismatch = events(Event::Mismatch);
        if mismatch > 0 {
            let text = format!(
                "{mismatch} packets of worker {number} in the last seconds belonged to another all-reduce than the others'"
            );
            let mend = "all workers must call in the same order with the same lengths";
            found.push(problem(Some(number), text, mend));
        }
    }
    found
}

/// The worker that was last, and at least `behind` packets behind the foremost, in each of these readings while
/// sums were made. Being last once means little, since some worker always is.
fn slowest_worker(readings: &[&JobReading], behind: u64) -> Option<u32> {
    let mut slow = None;
    let mut most_before = None;
    for reading in readings {
        let all = reading.workers.iter().filter_map(|worker| Some((worker.behind?, worker.worker)));
        let (most_behind, last) = all.max_by_key(|&(behind, worker)| (behind, std::cmp::Reverse(worker)))?;
        let sums = |worker: &WorkerReading| {
            IN_SUMS.iter().map(|&event| worker.counted.events[event as usize]).sum::<u64>()
        };
        let most = reading.workers.iter().map(sums).max();
        if most_behind < behind || most <= most_before || slow.is_some_and(|slow| slow != last) {
            return None;
        }
        (slow, most_before) = (Some(last), most);
    }
    slow.filter(|_| readings.len() > 1).map(u32::from)
}

/// The count between two readings. A target that was restarted counts from zero.
fn since(now: u64, then: u64) -> u64 {
    if now < then { now } else { now - then }
}

/// The reasons for which packets were dropped between two readings, and how many packets.
fn recent_drops(
    names: impl IntoIterator<Item = &'static str>,
    then: &[u64],
    now: &[u64],
) -> impl Iterator<Item = (&'static str, u64)> {
    let drops = names.into_iter().zip(then.iter().zip(now));
    drops.map(|(name, (then, now))| (name, since(*now, *then))).filter(|(_, packets)| *packets > 0)
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

    fn place(joined: u64, running: bool) -> JobPlace {
        JobPlace { target: "s".into(), connected: true, joined, running, ..JobPlace::default() }
    }

    fn reading(workers: Vec<WorkerReading>) -> Reading {
        let job = JobReading { target: "s".into(), workers, answers: [5, 0, 0, 0], ..JobReading::default() };
        Reading { jobs: vec![job], ..Reading::default() }
    }

    fn worker(worker: u8, silent: f64) -> WorkerReading {
        let mut reading = WorkerReading { worker, silent: Some(silent), ..WorkerReading::default() };
        reading.counted.packets = 100;
        reading.counted.events = [50, 50, 0, 0, 0, 0];
        reading
    }

    /// The worker with packets dropped for this reason.
    fn with_drops(mut worker: WorkerReading, reason: DropReason, packets: u64) -> WorkerReading {
        worker.counted.drops[reason as usize] = packets;
        worker
    }

    fn lines(findings: &[Finding]) -> String {
        findings.iter().map(|finding| format!("{} | {}\n", finding.what, finding.mend)).collect()
    }

    fn find(places: &[JobPlace], readings: &[Reading], targets: &[Target]) -> Vec<Finding> {
        findings(&Seen { workers: 2, places, readings, targets, refused: &[], behind: 64 })
    }

    /// The increase of these counters in the last seconds.
    fn find_now(places: &[JobPlace], workers: Vec<WorkerReading>) -> Vec<Finding> {
        let now = reading(workers);
        let mut then = now.clone();
        for worker in then.jobs.iter_mut().flat_map(|job| &mut job.workers) {
            *worker = WorkerReading { worker: worker.worker, ..WorkerReading::default() };
        }
        find(places, &[then, now], &[])
    }

    #[test]
    fn nobody_or_some_have_joined() {
        assert!(lines(&find_now(&[place(0, false)], vec![])).contains("no worker has joined"));
        assert!(lines(&find_now(&[place(1, false)], vec![])).contains("waiting for worker 1 of 2"));
    }

    #[test]
    fn a_session_that_runs_is_fine() {
        let found = find_now(&[place(3, true)], vec![worker(0, 0.1), worker(1, 0.1)]);
        assert_eq!((found.len(), found[0].severity()), (1, Severity::Ok), "{}", lines(&found));
        assert_eq!(found[0].what, "the session runs: 2 workers, 5 results");
    }

    /// Packets dropped long ago are no problem any more, and a counter that a target began anew is recent.
    #[test]
    fn what_is_past_is_no_problem() {
        let dropped = |packets| {
            let mut first = with_drops(worker(0, 0.1), DropReason::Cookie, packets);
            first.counted.events[Event::Duplicate as usize] = packets;
            reading(vec![first, worker(1, 0.1)])
        };
        let said = |then, now| lines(&find(&[place(3, true)], &[dropped(then), dropped(now)], &[]));
        assert!(said(50, 50).starts_with("the session runs"), "{}", said(50, 50));
        for (then, now, packets) in [(7, 12, 5), (7, 3, 3)] {
            let said = said(then, now);
            assert!(said.contains(&format!("{packets} packets of worker 0 were dropped")), "{said}");
            assert!(said.contains("00 % of worker 0's packets"), "{said}");
        }
    }

    /// Each server of a job is looked at.
    #[test]
    fn each_server_is_looked_at() {
        let places = [place(3, true), JobPlace { target: "other".into(), ..place(3, true) }];
        let mut then = reading(vec![worker(0, 0.1), worker(1, 0.1)]);
        then.jobs.push(JobReading { target: "other".into(), ..then.jobs[0].clone() });
        let mut now = then.clone();
        now.jobs[1].workers[1] = with_drops(worker(1, 0.1), DropReason::Source, 7);
        let text = lines(&find(&places, &[then, now], &[]));
        assert!(text.contains("7 packets of worker 1 were dropped in the last seconds"), "{text}");
        assert!(text.contains("(at target other)") && !text.contains("(at target s)"), "{text}");
    }

    #[test]
    fn the_silent_and_the_dropped_are_named() {
        let second = with_drops(worker(1, 60.0), DropReason::Source, 7);
        let mut first = worker(0, 0.1);
        first.counted.events[Event::Duplicate as usize] = 100;
        let text = lines(&find_now(&[place(3, true)], vec![first, second]));
        assert!(text.contains("worker 1 is silent") && text.contains("60 s ago"), "{text}");
        let dropped = "7 packets of worker 1 were dropped in the last seconds: from another address";
        assert!(text.contains(dropped), "{text}");
        assert!(!text.contains("worker 0"), "{text}");
    }

    #[test]
    fn the_slow_one_is_behind_all_the_time() {
        let slow = |readings: u64, counts: &dyn Fn(u64) -> (u64, [Option<u64>; 3])| {
            let reading_at = |at| {
                let (added, behind) = counts(at);
                let worker = |(number, behind)| {
                    let mut worker = WorkerReading { behind, ..worker(number, 0.1) };
                    worker.counted.events[Event::Added as usize] = added;
                    worker
                };
                reading((0..).zip(behind).map(worker).collect())
            };
            let readings: Vec<_> = (0..readings).map(reading_at).collect();
            let found = find(&[place(7, true)], &readings, &[]);
            found.into_iter().find_map(|finding| finding.worker)
        };
        let moves = |at| 1000 * at;
        assert_eq!(slow(4, &|at| (moves(at), [Some(0), Some(128), None])), Some(1), "worker 2 is no member");
        assert_eq!(slow(4, &|at| (moves(at), [Some(0), Some(20), None])), None, "a little");
        let in_turn = |at: u64| {
            if at.is_multiple_of(2) { [Some(0), Some(128), None] } else { [Some(128), Some(0), None] }
        };
        assert_eq!(slow(4, &|at| (moves(at), in_turn(at))), None, "in turn");
        assert_eq!(slow(4, &|_| (500, [Some(0), Some(500), None])), None, "nothing moves");
        assert_eq!(slow(1, &|_| (500, [Some(0), Some(500), None])), None, "one reading");
        assert_eq!(slow(4, &|at| (moves(at), [None; 3])), None, "sums do not wait for all");
    }

    #[test]
    fn a_target_that_is_away_says_why() {
        let away = JobPlace { connected: false, ..place(3, false) };
        let target = Target { name: "s".into(), error: "cannot connect".into(), ..Target::default() };
        assert!(lines(&find(&[away], &[], &[target])).contains("cannot connect"));
    }
}
