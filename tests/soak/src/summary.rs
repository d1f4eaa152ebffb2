//! What came of all traces together.

use serde_json::{Value, json};
use std::time::Duration;
use thc_soak::Report;

/// Traces between two looks at the memory, at first.
const EVERY: u64 = 8;
/// Looks that are kept; when there are more, every second one goes.
const LOOKS: usize = 16;

/// All traces so far.
pub struct Total {
    pub report: Report,
    pub traces: u64,
    /// MiB before the first.
    before: f64,
    /// Traces, and MiB in use and at most up to then.
    looks: Vec<(u64, f64, f64)>,
    every: u64,
}

/// MiB of memory that this process has in use, and the most that it has had.
pub fn resident() -> (f64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
    };
    (of("VmRSS:"), of("VmHWM:"))
}

impl Total {
    pub fn new(before: f64) -> Total {
        Total { report: Report::default(), traces: 0, before, looks: Vec::new(), every: EVERY }
    }

    pub fn add(&mut self, one: &Report) {
        let all = &mut self.report;
        all.complete += one.complete;
        all.results += one.results;
        all.failed += one.failed;
        all.happenings += one.happenings;
        all.sieges += one.sieges;
        all.survived += one.survived;
        all.sessions += one.sessions;
        all.packets += one.packets;
        all.repeated += one.repeated;
        all.time += one.time;
        all.steps += one.steps;
        all.held = all.held.max(one.held);
        all.recovery.0 += one.recovery.0;
        all.recovery.1 += one.recovery.1;
        all.recovery.2 = all.recovery.2.max(one.recovery.2);
        self.traces += 1;
        if self.traces.is_multiple_of(self.every) {
            let (now, most) = resident();
            self.looks.push((self.traces, now, most));
            if self.looks.len() > LOOKS {
                self.every *= 2;
                let every = self.every;
                self.looks.retain(|(traces, ..)| traces.is_multiple_of(every));
            }
        }
    }

    /// The most memory that the process has had.
    pub fn peak_mib(&self) -> f64 {
        resident().1
    }

    pub fn progress(&self, elapsed: Duration, goal: u64) -> String {
        let done = self.report.complete;
        let speed = done as f64 / elapsed.as_secs_f64();
        let left = goal.saturating_sub(done) as f64 / speed;
        let (now, most) = resident();
        format!(
            "{done} all-reduces in {} traces, {speed:.0} a second, {left:.0} s left, {now:.0} MiB, {most:.0} at most",
            self.traces
        )
    }

    pub fn lines(&self, first: u64, elapsed: Duration, well: bool) -> Vec<String> {
        let Total { report, traces, before, looks, .. } = self;
        let mut lines = vec![
            format!(
                "{} all-reduces right on all workers ({} results compared bit for bit), {} failed on all as they had to{}",
                report.complete,
                report.results,
                report.failed,
                if well { ", none wrong" } else { "" }
            ),
            format!(
                "{traces} traces from seed {first} on, {} happenings, {} sieges, {} restarts survived, {} sessions, {} packets, {} of them sent again, {:.0} s of virtual time in {:.0} s",
                report.happenings,
                report.sieges,
                report.survived,
                report.sessions,
                report.packets,
                report.repeated,
                report.time.as_secs_f64(),
                elapsed.as_secs_f64()
            ),
        ];
        let (sum, count, longest) = report.recovery;
        lines.push(format!(
            "after {count} storms all-reduces went on within {:.0} ms on average, {:.1} s at most",
            sum.as_secs_f64() * 1e3 / count.max(1) as f64,
            longest.as_secs_f64()
        ));
        lines.push(format!(
            "memory: {:.1} MiB held by one trace at most, nothing left of any; {before:.0} MiB before, {:.0} at most",
            report.held as f64 / f64::from(1 << 20),
            self.peak_mib()
        ));
        let looks: Vec<String> =
            looks.iter().map(|(traces, now, most)| format!("{traces}: {now:.0}, {most:.0}")).collect();
        if !looks.is_empty() {
            lines.push(format!("traces: MiB then, at most: {}", looks.join("; ")));
        }
        lines
    }

    pub fn json(&self, first: u64, jobs: usize, elapsed: Duration, failed: &[u64]) -> Value {
        let Total { report, traces, before, looks, .. } = self;
        let (sum, count, longest) = report.recovery;
        let looks: Vec<Value> = looks
            .iter()
            .map(|(traces, now, most)| json!({"traces": traces, "mib": now, "peak_mib": most}))
            .collect();
        json!({
            "first_seed": first,
            "at_a_time": jobs,
            "all_reduces": report.complete,
            "results_compared": report.results,
            "failed_as_they_had_to": report.failed,
            "wrong_sums": failed.is_empty().then_some(0),
            "failed_traces": failed,
            "traces": traces,
            "sessions": report.sessions,
            "happenings": report.happenings,
            "restarts_survived": report.survived,
            "packets": report.packets,
            "repeated_packets": report.repeated,
            "virtual_seconds": report.time.as_secs_f64(),
            "steps": report.steps,
            "storms": count,
            "recovery_mean_seconds": sum.as_secs_f64() / count.max(1) as f64,
            "recovery_longest_seconds": longest.as_secs_f64(),
            "mib_before": before,
            "peak_mib": self.peak_mib(),
            "peak_held_by_one_trace_bytes": report.held,
            "memory": looks,
            "seconds": elapsed.as_secs_f64(),
        })
    }
}
