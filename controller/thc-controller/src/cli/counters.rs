//! `counters`: packets, bytes and drops of each worker.

use super::connection::Connection;
use super::grid::Grid;
use super::terminal::{Failure, print, print_json};
use bytesize::ByteSize;
use clap::Args;
use std::fmt::Write;
use std::time::Duration;
use thc_control_proto::v1::{Drop, JobCounters, ReadCountersRequest, ReadCountersResponse, TargetCounters};

const EXAMPLES: &str = "\
Examples:
  All jobs; one job each second:
    thc-controller counters
    watch -n 1 thc-controller counters train

Columns: IN SUMS packets that opened a slot or were added to one; TWICE packets that had arrived
already (their results were lost or late); LATE packets after the quorum; STALE packets of an
older round; SILENT time since the last packet; RTT round trip as the worker reports it. The
controller reads the targets once a second; rates are in its metrics.";

/// Flags of `counters`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CounterFlags {
    /// The job's name [default: all jobs]
    job: Option<String>,
}

/// Prints counters.
pub async fn run(flags: CounterFlags, connection: Connection, json: bool) -> Result<(), Failure> {
    let request = ReadCountersRequest { job: flags.job.unwrap_or_default() };
    let counters = connection.client().read_counters(request).await?.into_inner();
    if json { print_json(&counters) } else { print(&counters_text(&counters)) }
}

fn counters_text(counters: &ReadCountersResponse) -> String {
    let mut text = String::new();
    for job in &counters.jobs {
        let _ = writeln!(
            text,
            "job {} on {}: {} results, {} sent again, {} nudges\n{}",
            job.job,
            job.target,
            job.results,
            job.resent,
            job.nudges,
            workers(job)
        );
    }
    if counters.jobs.is_empty() {
        text += "no counters: there is no job yet, or no target of one has been reached (`target list`)\n";
    }
    for TargetCounters { target, drops } in counters.targets.iter().filter(|of| !of.drops.is_empty()) {
        let _ = writeln!(text, "target {target}, packets of no job that were dropped: {}", drop_text(drops));
    }
    text
}

fn workers(job: &JobCounters) -> Grid {
    let mut grid = Grid::new(&[
        "WORKER", "ADDRESS", ">PACKETS", ">BYTES", ">IN SUMS", ">TWICE", ">LATE", ">STALE", ">SILENT",
        ">RTT", "DROPPED",
    ]);
    for worker in &job.workers {
        let trip = Duration::from_micros(worker.report.unwrap_or_default().round_trip_us.into());
        let silent = worker.silent.filter(|_| worker.packets > 0);
        grid.row([
            worker.worker.to_string(),
            worker.address.clone(),
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
    }
    grid
}

fn drop_text(drops: &[Drop]) -> String {
    let drops: Vec<String> = drops.iter().map(|drop| format!("{} {}", drop.packets, drop.reason)).collect();
    drops.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use thc_control_proto::v1::WorkerCounters;

    #[test]
    fn a_worker_has_a_line() {
        let worker = WorkerCounters {
            worker: 1,
            packets: 5000,
            bytes: 5_000_000,
            opened: 2,
            added: 3,
            drops: vec![Drop { reason: "cookie".into(), packets: 7 }],
            silent: Some(0.25),
            ..WorkerCounters::default()
        };
        let job = JobCounters { job: "train".into(), workers: vec![worker], ..JobCounters::default() };
        let text = counters_text(&ReadCountersResponse { jobs: vec![job], targets: Vec::new() });
        assert!(text.contains("5000  5.0 MB") && text.contains("7 cookie"), "{text}");
    }
}
