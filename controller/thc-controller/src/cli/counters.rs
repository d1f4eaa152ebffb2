//! `counters`: packets, bytes and drops of each worker.

use super::connection::Connection;
use super::failure::Failure;
use super::grid::Grid;
use super::terminal::{print, print_json};
use super::watch::watch;
use bytesize::ByteSize;
use clap::Args;
use std::cell::RefCell;
use std::fmt::Write;
use std::time::{Duration, Instant};
use thc_control_proto::v1::{
    Drop, JobCounters, ReadCountersRequest, ReadCountersResponse, TargetCounters, WorkerCounters,
};

const EXAMPLES: &str = "\
Examples:
  All jobs once; one job each second, with rates; every 5 seconds, as lines of JSON:
    thc-controller counters
    thc-controller counters train --watch
    thc-controller counters train --watch 5 --json

Columns: IN SUMS packets that opened a slot or were added to one; TWICE packets that had arrived already
(their results were lost or late); LATE packets after the quorum; STALE packets of an older round; SILENT time
since the last packet; RTT round trip as the worker reports it. The controller reads the targets once a second.";

/// Flags of `counters`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CounterFlags {
    /// The job's name [default: all jobs]
    job: Option<String>,
    /// Print counters again each second, or every SECONDS, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = period)]
    watch: Option<Duration>,
}

fn period(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "give seconds, 0.1 to 86400".to_owned())
}

/// Prints counters, once or until Ctrl-C.
pub async fn run(flags: &CounterFlags, connection: Connection, json: bool) -> Result<(), Failure> {
    let job = flags.job.clone().unwrap_or_default();
    let read = || async {
        let request = ReadCountersRequest { job: job.clone() };
        Ok::<_, Failure>(connection.client().read_counters(request).await?.into_inner())
    };
    let Some(every) = flags.watch else {
        let now = read().await?;
        return if json { print_json(&now) } else { print(&counters_text(&now, None)) };
    };
    let before: RefCell<Option<(Instant, ReadCountersResponse)>> = RefCell::new(None);
    watch(every, || async {
        let now = read().await?;
        let at = Instant::now();
        let text = if json {
            serde_json::to_string(&now).map_err(Failure::error)? + "\n"
        } else {
            let before = before.borrow();
            let since = before.as_ref().map(|(then, old)| (old, at.duration_since(*then).as_secs_f64()));
            counters_text(&now, Some(since))
        };
        *before.borrow_mut() = Some((at, now));
        Ok(text)
    })
    .await
}

/// Counters, `seconds` ago.
type Before<'a> = Option<(&'a ReadCountersResponse, f64)>;

fn counters_text(now: &ReadCountersResponse, rates: Option<Before<'_>>) -> String {
    let mut text = String::new();
    for job in &now.jobs {
        let _ = writeln!(
            text,
            "job {} on {}: {} results, {} sent again, {} nudges",
            job.job, job.target, job.results, job.resent, job.nudges
        );
        let old = rates.map(|before| {
            before.and_then(|(old, seconds)| {
                let same = |old: &&JobCounters| old.job == job.job && old.target == job.target;
                Some((old.jobs.iter().find(same)?, seconds))
            })
        });
        let _ = writeln!(text, "{}", workers(job, old));
    }
    if now.jobs.is_empty() {
        text += "no counters: there is no job yet, or no target of one has been reached (`target list`)\n";
    }
    for target in now.targets.iter().filter(|target| !target.drops.is_empty()) {
        let TargetCounters { target, drops } = target;
        let _ = writeln!(text, "target {target}, packets of no job that were dropped: {}", drop_text(drops));
    }
    text
}

fn workers(job: &JobCounters, rates: Option<Option<(&JobCounters, f64)>>) -> Grid {
    let mut headings = vec!["WORKER", "ADDRESS"];
    if rates.is_some() {
        headings.extend([">PACKETS/S", ">MB/S"]);
    }
    headings.extend([
        ">PACKETS", ">BYTES", ">IN SUMS", ">TWICE", ">LATE", ">STALE", ">SILENT", ">RTT", "DROPPED",
    ]);
    let mut grid = Grid::new(&headings);
    for worker in &job.workers {
        let mut cells = vec![worker.worker.to_string(), worker.address.clone()];
        if let Some(before) = rates {
            cells.extend(rate(worker, before));
        }
        let report = worker.report.unwrap_or_default();
        let trip = Duration::from_micros(report.round_trip_us.into());
        let silent = worker.silent.filter(|_| worker.packets > 0);
        cells.extend([
            worker.packets.to_string(),
            ByteSize::b(worker.bytes).display().si().to_string(),
            (worker.opened + worker.added).to_string(),
            worker.duplicate.to_string(),
            worker.late.to_string(),
            worker.stale.to_string(),
            silent.map(|seconds| format!("{seconds:.1} s")).unwrap_or_default(),
            if trip.is_zero() { String::new() } else { format!("{trip:?}") },
            drop_text(&worker.drops),
        ]);
        grid.row(cells);
    }
    grid
}

/// Packets and megabytes a second, empty until there are two readings.
fn rate(now: &WorkerCounters, before: Option<(&JobCounters, f64)>) -> [String; 2] {
    let found = before.and_then(|(old, seconds)| {
        let old = old.workers.iter().find(|old| old.worker == now.worker)?;
        (seconds > 0.0).then_some((old, seconds))
    });
    let Some((old, seconds)) = found else { return [String::new(), String::new()] };
    // A target that was restarted counts from zero.
    let per_second = |now: u64, old: u64| now.saturating_sub(old) as f64 / seconds;
    [
        format!("{:.0}", per_second(now.packets, old.packets)),
        format!("{:.2}", per_second(now.bytes, old.bytes) / 1e6),
    ]
}

fn drop_text(drops: &[Drop]) -> String {
    let drops: Vec<String> = drops.iter().map(|drop| format!("{} {}", drop.packets, drop.reason)).collect();
    drops.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(packets: u64) -> ReadCountersResponse {
        let worker = WorkerCounters {
            worker: 1,
            packets,
            bytes: packets * 1000,
            opened: 2,
            added: 3,
            drops: vec![Drop { reason: "cookie".into(), packets: 7 }],
            silent: Some(0.25),
            ..WorkerCounters::default()
        };
        let job = JobCounters {
            job: "train".into(),
            target: "ps1".into(),
            workers: vec![worker],
            ..JobCounters::default()
        };
        ReadCountersResponse { jobs: vec![job], targets: Vec::new() }
    }

    #[test]
    fn rates_need_two_readings() {
        let (old, now) = (counters(1000), counters(5000));
        assert!(!counters_text(&now, None).contains("PACKETS/S"));
        let first = counters_text(&now, Some(None));
        assert!(first.contains("PACKETS/S") && !first.contains("2000"), "{first}");
        let second = counters_text(&now, Some(Some((&old, 2.0))));
        assert!(second.contains("2000  2.00"), "{second}");
        assert!(second.contains("7 cookie"), "{second}");
        let restarted = counters_text(&old, Some(Some((&now, 2.0))));
        assert!(restarted.contains("0  0.00"), "{restarted}");
    }

    #[test]
    fn periods_are_seconds() {
        assert_eq!(period("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["train", "0", "-1", "NaN", "1e9"] {
            assert!(period(wrong).is_err(), "{wrong}");
        }
    }
}
