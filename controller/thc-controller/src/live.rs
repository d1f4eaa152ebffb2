//! The last observations of a target: connection, members, counters.

use crate::capacity::{Forms, WORKER_BITS};
use crate::error::ControllerError;
use crate::store::{ANSWERS, Counted, IN_SUMS, JobCounted, Placement};
use crate::switch::Target;
use std::collections::BTreeMap;
use std::time::Instant;
use thc_control_proto::v1::WorkerReport;
use thc_protocol::aggregator::DropReason;

/// Cells of a worker in `events`.
const EVENTS: u32 = 8;
/// The first reason that is counted by job and worker; those before are counted for all jobs together.
const FIRST_OF_WORKER: usize = DropReason::Cookie as usize;
/// Indices of the counter `carrier`, and what they count.
pub const CARRIER: [(u32, &str); 7] =
    [(0, "short"), (1, "version"), (2, "kind"), (3, "job"), (13, "carrier"), (14, "pass"), (15, "rate")];

/// Heard of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// Its packets when they changed last.
    pub packets: u64,
    /// When that was.
    pub at: Instant,
    /// When they were read before: the last of them came after that.
    pub since: Instant,
}

/// A target.
#[derive(Clone, Debug, Default)]
pub struct TargetView {
    /// `true` if the target answers and this controller is its primary one.
    pub connected: bool,
    /// The packets that it does, as it has said.
    pub forms: Option<Forms>,
    /// The last error, without the target's name.
    pub error: String,
    /// Jobs of which it refuses rows, and why.
    pub refused: BTreeMap<String, String>,
    /// Lookup tables that it refuses, and why.
    pub refused_tables: BTreeMap<u8, String>,
    /// Workers that are here, by the job's name.
    pub joined: BTreeMap<String, u64>,
    /// Counts by the job's name.
    pub jobs: BTreeMap<String, JobCounted>,
    /// Counts in the order of [`CARRIER`].
    pub carrier: [u64; CARRIER.len()],
    /// When workers were heard, by the job's name and worker.
    pub heard: BTreeMap<(String, u8), Heard>,
    /// When its rows were compared with what was written last.
    pub compared: Option<Instant>,
    /// The number of times that differences were repaired.
    pub repairs: u64,
}

/// Counters of all targets at one moment.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Those of jobs.
    pub jobs: Vec<JobReading>,
    /// Packets of no job that were dropped, by target and in the order of [`CARRIER`].
    pub carrier: BTreeMap<String, [u64; CARRIER.len()]>,
}

/// The counters of a job on one target.
#[derive(Clone, Debug, Default)]
pub struct JobReading {
    /// The job.
    pub job: String,
    /// The target.
    pub target: String,
    /// See [`ANSWERS`].
    pub answers: [u64; ANSWERS],
    /// The workers, in the order of their numbers.
    pub workers: Vec<WorkerReading>,
}

/// A worker of a job on one target.
#[derive(Clone, Debug, Default)]
pub struct WorkerReading {
    /// Its number.
    pub worker: u8,
    /// Its counters.
    pub counted: Counted,
    /// Packets in sums of the running session by which it is behind the foremost member. `None` if sums do not need all
    /// workers, or if it is no member.
    pub behind: Option<u64>,
    /// Seconds since one of its packets was counted last, if one was.
    pub silent: Option<f64>,
    /// Its own report.
    pub report: Option<WorkerReport>,
}

/// Reads the packets and bytes of jobs' workers: of each placement and number of workers.
pub async fn read_packets(
    target: &mut Target,
    jobs: &[(&Placement, u8)],
) -> Result<Vec<Vec<(u64, u64)>>, ControllerError> {
    let cells: Vec<u32> = jobs.iter().flat_map(|&(place, workers)| cells_of(place, workers)).collect();
    let mut counted = target.counters("packets", &cells).await?.into_iter();
    Ok(jobs.iter().map(|&(_, workers)| counted.by_ref().take(workers.into()).collect()).collect())
}

/// Cells of a job's workers.
fn cells_of(place: &Placement, workers: u8) -> impl Iterator<Item = u32> {
    let index = u32::from(place.index);
    (0..workers).map(move |worker| index << WORKER_BITS | u32::from(worker))
}

/// Reads all other counters of these jobs, in addition to those that [`read_packets`] has read.
pub async fn read_jobs(
    target: &mut Target,
    jobs: &[(&Placement, u8)],
    packets: Vec<Vec<(u64, u64)>>,
) -> Result<Vec<JobCounted>, ControllerError> {
    let cells: Vec<u32> = jobs.iter().flat_map(|&(place, workers)| cells_of(place, workers)).collect();
    let events = cells.iter().flat_map(|cell| (0..EVENTS).map(move |event| cell << 3 | event));
    let events = target.counters("events", &events.collect::<Vec<_>>()).await?;
    let reasons = FIRST_OF_WORKER..DropReason::ALL.len();
    let drops = cells.iter().flat_map(|cell| reasons.clone().map(move |reason| cell << 4 | reason as u32));
    let drops = target.counters("drops", &drops.collect::<Vec<_>>()).await?;
    let indices = jobs.iter().map(|(place, _)| u32::from(place.index));
    let answers = indices.flat_map(|index| (0..ANSWERS as u32).map(move |answer| index << 2 | answer));
    let answers = target.counters("answers", &answers.collect::<Vec<_>>()).await?;
    let (mut events, mut drops) = (events.into_iter(), drops.into_iter());
    let mut all = Vec::with_capacity(jobs.len());
    for (packets, answers) in packets.into_iter().zip(answers.chunks(ANSWERS)) {
        let mut counted = JobCounted::default();
        for (cell, &(value, _)) in counted.answers.iter_mut().zip(answers) {
            *cell = value;
        }
        for (packets, bytes) in packets {
            let mut worker = Counted { packets, bytes, ..Counted::default() };
            for (cell, (value, _)) in worker.events.iter_mut().zip(events.by_ref()) {
                *cell = value;
            }
            // If a program counts drops in front of its cells, two of these are events.
            let seen_by_cells: Vec<u64> = events.by_ref().take(2).map(|(value, _)| value).collect();
            for (cell, (value, _)) in worker.drops[FIRST_OF_WORKER..].iter_mut().zip(drops.by_ref()) {
                *cell = value;
            }
            for (reason, value) in [DropReason::Round, DropReason::Mixed].into_iter().zip(seen_by_cells) {
                worker.drops[reason as usize] += value;
            }
            counted.workers.push(worker);
        }
        all.push(counted);
    }
    Ok(all)
}

/// Reads all counters of one job.
pub async fn read_job(
    target: &mut Target,
    place: &Placement,
    workers: u8,
) -> Result<JobCounted, ControllerError> {
    let jobs = [(place, workers)];
    let packets = read_packets(target, &jobs).await?;
    Ok(read_jobs(target, &jobs, packets).await?.into_iter().next().unwrap_or_default())
}

/// Reads how many packets of these workers are in sums, of all sessions of the job's index.
pub async fn read_in_sums(
    target: &mut Target,
    place: &Placement,
    workers: &[u8],
) -> Result<BTreeMap<u8, u64>, ControllerError> {
    let cells = workers.iter().flat_map(|&worker| {
        let cell = u32::from(place.index) << WORKER_BITS | u32::from(worker);
        IN_SUMS.map(|event| cell << 3 | event as u32)
    });
    let events = target.counters("events", &cells.collect::<Vec<_>>()).await?;
    let sums = events.chunks(IN_SUMS.len()).map(|cells| cells.iter().map(|(packets, _)| packets).sum());
    Ok(workers.iter().copied().zip(sums).collect())
}

/// Reads what is counted for no job.
pub async fn read_carrier(target: &mut Target) -> Result<[u64; CARRIER.len()], ControllerError> {
    let cells: Vec<u32> = CARRIER.iter().map(|(index, _)| *index).collect();
    let mut counted = [0; CARRIER.len()];
    for (cell, (value, _)) in counted.iter_mut().zip(target.counters("carrier", &cells).await?) {
        *cell = value;
    }
    Ok(counted)
}
