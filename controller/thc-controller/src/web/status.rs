//! What the page shows, as JSON: nothing in it is secret.

use crate::desk::Desk;
use crate::rates::Rates;
use crate::section::JobSection;
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};
use thc_control_proto::v1;
use thc_control_proto::v1::finding::Severity;

/// Everything.
#[derive(Debug, Serialize)]
pub struct Status {
    version: &'static str,
    /// Seconds since 1970.
    now: u64,
    /// Why this controller only stands by; empty if it has the jobs.
    stands_by: String,
    targets: Vec<TargetStatus>,
    jobs: Vec<JobStatus>,
    /// What has happened of late, the newest first.
    events: Vec<v1::Event>,
}

/// Events that are shown.
const EVENTS: usize = 20;

#[derive(Debug, Serialize)]
struct TargetStatus {
    #[serde(flatten)]
    target: v1::Target,
    /// Packets of no job.
    drops: Vec<v1::Drop>,
}

#[derive(Debug, Serialize)]
struct JobStatus {
    name: String,
    number: u64,
    workers: u32,
    bits: u64,
    granularity: u64,
    fraction: String,
    policy: String,
    quorum: u32,
    slots: u64,
    places: Vec<PlaceStatus>,
    findings: Vec<FindingStatus>,
    /// Packets per second of all workers, once a second, the newest last.
    past: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct PlaceStatus {
    target: String,
    /// The target's role in the job: "share 1 of 2", "spare", "rack 1 below 10.0.0.1:9000"; empty if it has
    /// all of it.
    role: String,
    /// "running", "waiting" or "away".
    state: &'static str,
    joined: u32,
    /// Members of the session that runs; 0 if none does.
    members: u32,
    sessions: u32,
    results: u64,
    resent: u64,
    workers: Vec<WorkerStatus>,
}

#[derive(Debug, Serialize)]
struct WorkerStatus {
    worker: u32,
    address: String,
    packets: u64,
    bytes: u64,
    packets_per_second: Option<f64>,
    bytes_per_second: Option<f64>,
    in_sums: u64,
    duplicate: u64,
    late: u64,
    stale: u64,
    mismatch: u64,
    drops: Vec<v1::Drop>,
    silent: Option<f64>,
    round_trip_us: Option<u32>,
}

#[derive(Debug, Serialize)]
struct FindingStatus {
    /// "ok", "note" or "problem".
    severity: &'static str,
    what: String,
    mend: String,
    worker: Option<u32>,
    /// Seconds since 1970.
    since: u64,
}

/// As things are now.
pub fn read(desk: &Desk) -> Status {
    let counters = desk.counters("").unwrap_or_default();
    let drops = |name: &str| {
        let found = counters.targets.iter().find(|counted| counted.target == name);
        found.map(|counted| counted.drops.clone()).unwrap_or_default()
    };
    let targets = desk.targets().into_iter();
    // The book is free again before others ask for it.
    let stands_by = desk.state().book().may_change().err();
    let stands_by = stands_by.map(|error| error.to_string()).unwrap_or_default();
    Status {
        version: env!("CARGO_PKG_VERSION"),
        now: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        targets: targets.map(|target| TargetStatus { drops: drops(&target.name), target }).collect(),
        stands_by,
        events: desk.events(&v1::ListEventsRequest::default()).into_iter().rev().take(EVENTS).collect(),
        jobs: desk.jobs().into_iter().map(|job| job_status(desk, job, &counters)).collect(),
    }
}

fn job_status(desk: &Desk, job: v1::Job, counters: &v1::ReadCountersResponse) -> JobStatus {
    let section = JobSection::from_job(&job);
    let (name, options) = (section.name(), &section.options);
    // The job may have been deleted in between.
    let findings = desk.diagnose(name).map(|answer| answer.findings).unwrap_or_default();
    let rates = desk.state().rates();
    let roles: Vec<String> = job.places.iter().map(|place| role(&section, &place.target)).collect();
    let places = job.places.into_iter().zip(roles).map(|(place, role)| {
        let counted = counters.jobs.iter().find(|c| c.job == name && c.target == place.target);
        let workers = counted.map(|counted| counted.workers.as_slice()).unwrap_or_default();
        PlaceStatus {
            role,
            members: place.members,
            state: match (place.connected, place.running) {
                (false, _) => "away",
                (true, true) => "running",
                (true, false) => "waiting",
            },
            joined: place.joined.count_ones(),
            sessions: place.sessions,
            results: counted.map_or(0, |counted| counted.results),
            resent: counted.map_or(0, |counted| counted.resent),
            workers: workers.iter().map(|w| worker_status(w, name, &place.target, &rates)).collect(),
            target: place.target,
        }
    });
    JobStatus {
        number: options.job.unwrap_or_default(),
        workers: section.workers(),
        bits: options.bits.unwrap_or_default(),
        granularity: options.granularity.unwrap_or_default(),
        policy: section.policy().to_string(),
        quorum: section.quorum(),
        slots: options.data_slots.unwrap_or_default(),
        places: places.collect(),
        findings: findings.into_iter().map(finding_status).collect(),
        past: rates.past_rates(name),
        fraction: options.fraction.map(|fraction| fraction.to_string()).unwrap_or_default(),
        name: name.to_owned(),
    }
}

/// What a target is to a job.
fn role(section: &JobSection, target: &str) -> String {
    let place = |names: &[String]| names.iter().position(|name| name == target);
    if let (Some(rack), Some(root)) = (section.rack, &section.root) {
        return format!("rack {rack} below {root}");
    }
    match place(&section.servers) {
        Some(share) => format!("share {} of {}", share + 1, section.servers.len()),
        None => String::new(),
    }
}

fn worker_status(worker: &v1::WorkerCounters, job: &str, target: &str, rates: &Rates) -> WorkerStatus {
    let rate = rates.worker(job, target, worker.worker);
    WorkerStatus {
        worker: worker.worker,
        address: worker.address.clone(),
        packets: worker.packets,
        bytes: worker.bytes,
        packets_per_second: rate.map(|rate| rate.packets),
        bytes_per_second: rate.map(|rate| rate.bytes),
        in_sums: worker.opened + worker.added,
        duplicate: worker.duplicate,
        late: worker.late,
        stale: worker.stale,
        mismatch: worker.mismatch,
        drops: worker.drops.clone(),
        silent: worker.silent.filter(|_| worker.packets > 0),
        round_trip_us: worker.report.map(|report| report.round_trip_us).filter(|us| *us > 0),
    }
}

fn finding_status(finding: v1::Finding) -> FindingStatus {
    FindingStatus {
        severity: match finding.severity() {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Problem => "problem",
        },
        what: finding.what,
        mend: finding.mend,
        worker: finding.worker,
        since: finding.since,
    }
}
