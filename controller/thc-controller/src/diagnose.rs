//! Why no traffic flows, and which worker is slow: from counters to words.

use thc_control_proto::v1::finding::Severity;
use thc_control_proto::v1::{Finding, Job, JobCounters, ReadCountersResponse, Target, WorkerCounters};

/// A worker that is silent for longer than this while others send is missed, in seconds.
const MISSED: f64 = 2.0;
/// Below this share of repeated packets nothing needs to be done.
const FEW_REPEATED: f64 = 0.02;
/// A round trip this many times that of the others' median is slow.
const SLOW: f64 = 3.0;
/// And by at least so many microseconds: less comes and goes with the scheduler.
const SLOW_BY: u32 = 1000;

/// What there is to say of a job. `slow` tells the worker that the others wait for on a target, if it is always the
/// same one.
#[must_use]
pub fn findings(
    job: &Job,
    counters: &ReadCountersResponse,
    targets: &[Target],
    slow: impl Fn(&str) -> Option<u32>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    let workers = job.spec.as_ref().map_or(0, |spec| spec.workers);
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
                "start it, or see to the network between; the job's rows come back by themselves",
            ));
        }
    }
    let sessions = job.places.iter().find(|place| place.running);
    let Some(place) = sessions else {
        for place in job.places.iter().filter(|place| place.connected) {
            let missing: Vec<String> = (0..workers)
                .filter(|worker| place.joined >> worker & 1 == 0)
                .map(|w| w.to_string())
                .collect();
            if missing.len() == workers as usize {
                let what = format!("no worker has joined at target {}", place.target);
                found.push(note(None, what, "start the workers; if they run, see what they say: a wrong cookie or job is refused at once"));
            } else if !missing.is_empty() {
                let what = format!("waiting for worker {} of {workers}", missing.join(", "));
                found.push(problem(None, what, "start them; the session begins when all have joined"));
            }
        }
        of_nobody(counters, &mut found);
        return found;
    };
    let Some(counted) = counters.jobs.iter().find(|counted| counted.target == place.target) else {
        found.push(note(None, "no counters have been read yet".to_owned(), "ask again in a second"));
        return found;
    };
    of_session(counted, slow(&place.target), &mut found);
    of_nobody(counters, &mut found);
    if found.iter().all(|finding| finding.severity() == Severity::Ok) {
        let text =
            format!("the session runs: {} workers, {} results", counted.workers.len(), counted.results);
        found.insert(
            0,
            Finding { severity: Severity::Ok.into(), what: text, mend: String::new(), worker: None },
        );
    }
    found
}

fn of_session(counted: &JobCounters, slow: Option<u32>, found: &mut Vec<Finding>) {
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
        for drop in &worker.drops {
            let text =
                format!("{} packets of worker {number} were dropped: {}", drop.packets, reason(&drop.reason));
            found.push(problem(Some(number), text, mend_of(&drop.reason)));
        }
        let arrived = worker.packets.max(1) as f64;
        let repeated = worker.duplicate as f64 / arrived;
        if repeated > FEW_REPEATED {
            let text = format!("{:.0} % of worker {number}'s packets came twice", repeated * 100.0);
            let mend = "results are lost on the way to it, or come late: look for drops on its receiving side, or raise its receive buffer";
            found.push(note(Some(number), text, mend));
        }
        if worker.mismatch > 0 {
            let text = format!(
                "{} packets of worker {number} belonged to another all-reduce than the others'",
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
                let text = format!("worker {number} sent {:.0} % of its packets again", resent * 100.0);
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
fn of_nobody(counters: &ReadCountersResponse, found: &mut Vec<Finding>) {
    for target in &counters.targets {
        for drop in &target.drops {
            let text = format!(
                "target {}: {} packets of no job were dropped: {}",
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
        "length" | "slot" | "table" | "workers" => "that worker believes in other parameters: restart it",
        "round" => {
            "a few after the aggregator was restarted heal by themselves; otherwise somebody changes or forges packets"
        }
        "mixed" => {
            "no worker of ours sends such: packets were changed under way (are UDP checksums on?) or forged"
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
    use thc_control_proto::v1::{Drop, JobPlace, JobSpec};

    fn job(joined: u64, running: bool) -> Job {
        let spec = JobSpec { name: "j".into(), workers: 2, ..JobSpec::default() };
        let place = JobPlace { target: "s".into(), connected: true, joined, running, ..JobPlace::default() };
        Job { spec: Some(spec), places: vec![place], ..Job::default() }
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

    fn said(findings: &[Finding]) -> String {
        findings.iter().map(|finding| format!("{} | {}\n", finding.what, finding.mend)).collect()
    }

    #[test]
    fn nobody_or_some_have_joined() {
        assert!(
            said(&findings(&job(0, false), &counters(vec![]), &[], |_| None))
                .contains("no worker has joined")
        );
        assert!(
            said(&findings(&job(1, false), &counters(vec![]), &[], |_| None))
                .contains("waiting for worker 1 of 2")
        );
    }

    #[test]
    fn a_session_that_runs_is_fine() {
        let found = findings(&job(3, true), &counters(vec![worker(0, 0.1), worker(1, 0.1)]), &[], |_| None);
        assert_eq!(found.len(), 1, "{}", said(&found));
        assert_eq!(found[0].severity(), Severity::Ok);
    }

    #[test]
    fn the_silent_and_the_dropped_are_named() {
        let mut second = worker(1, 60.0);
        second.drops = vec![Drop { reason: "source".into(), packets: 7 }];
        let text = said(&findings(&job(3, true), &counters(vec![worker(0, 0.1), second]), &[], |_| None));
        assert!(text.contains("worker 1 is silent") && text.contains("60 s ago"), "{text}");
        assert!(text.contains("7 packets of worker 1 were dropped: from another address"), "{text}");
        assert!(!text.contains("worker 0"), "{text}");
    }

    #[test]
    fn the_slow_one_is_named() {
        let both = counters(vec![worker(0, 0.1), worker(1, 0.1)]);
        let found = findings(&job(3, true), &both, &[], |target| (target == "s").then_some(1));
        assert_eq!((found.len(), found[0].worker), (1, Some(1)), "{}", said(&found));
        assert!(said(&found).contains("worker 1 is slow"));
    }

    #[test]
    fn a_target_that_is_away_says_why() {
        let mut job = job(3, false);
        job.places[0].connected = false;
        let target = Target { name: "s".into(), error: "cannot connect".into(), ..Target::default() };
        assert!(said(&findings(&job, &counters(vec![]), &[target], |_| None)).contains("cannot connect"));
    }
}
