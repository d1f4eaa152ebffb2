//! `thc-soak`: traces until so many all-reduces have been checked.

use clap::{Parser, ValueEnum};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thc_soak::Report;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Jobs {
    /// A job of one number of workers: every even trace
    Fixed,
    /// Two to sixteen jobs on one link whose members come and go, with a spare server: every odd trace
    Changing,
    /// Both in turns
    Both,
}

/// Simulates jobs in which everything goes wrong, and checks every all-reduce.
#[derive(Parser, Debug)]
#[command(name = "thc-soak", version)]
struct Flags {
    /// All-reduces to check
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    count: u64,
    /// The first trace's seed [default: a new one]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// All-reduces of one trace
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    trace: u64,
    /// What jobs
    #[arg(long, value_name = "JOBS", default_value = "both")]
    of: Jobs,
    /// Traces at a time [default: one for each core]
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<usize>,
}

#[derive(Default)]
struct Total {
    report: Report,
    traces: u64,
}

impl Total {
    fn add(&mut self, one: &Report) {
        let all = &mut self.report;
        all.complete += one.complete;
        all.results += one.results;
        all.failed += one.failed;
        all.happenings += one.happenings;
        all.sieges += one.sieges;
        all.survived += one.survived;
        all.jobs += one.jobs;
        all.falls += one.falls;
        all.ended += one.ended;
        all.sessions += one.sessions;
        all.packets += one.packets;
        all.time += one.time;
        all.recovery.0 += one.recovery.0;
        all.recovery.1 += one.recovery.1;
        all.recovery.2 = all.recovery.2.max(one.recovery.2);
        self.traces += 1;
    }
}

/// MiB of memory that this process has in use.
fn memory() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<f64>().ok());
    resident.unwrap_or(0.0) * 4096.0 / f64::from(1 << 20)
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = flags.jobs.unwrap_or(cores).max(1);
    let first = flags.seed.unwrap_or_else(|| fastrand::u64(..1 << 40));
    let started = Instant::now();
    println!("soak: {} all-reduces in traces of {}, from seed {first} on", flags.count, flags.trace);
    let next = AtomicU64::new(first);
    let stop = AtomicBool::new(false);
    let total = Mutex::new((Total::default(), Duration::ZERO, Vec::new()));
    let before = memory();
    let failed: Vec<u64> = std::thread::scope(|scope| {
        let run = || {
            while !stop.load(Ordering::Relaxed) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                let trace = flags.trace;
                let changing = match flags.of {
                    Jobs::Fixed => false,
                    Jobs::Changing => true,
                    Jobs::Both => !seed.is_multiple_of(2),
                };
                let run = if changing { thc_soak::run_changing } else { thc_soak::run };
                let Ok(report) = std::panic::catch_unwind(|| run(seed, trace)) else {
                    stop.store(true, Ordering::Relaxed);
                    return Some(seed);
                };
                let Ok(mut total) = total.lock() else { return None };
                let (total, told, memories) = &mut *total;
                total.add(&report);
                let elapsed = started.elapsed();
                let done = total.report.complete;
                memories.push(memory());
                if elapsed - *told >= Duration::from_secs(10) || done >= flags.count {
                    *told = elapsed;
                    let speed = done as f64 / elapsed.as_secs_f64();
                    println!(
                        "soak: {done} all-reduces in {} traces, {speed:.0} a second, {:.0} MiB",
                        total.traces,
                        memory()
                    );
                }
                if done >= flags.count {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            None
        };
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(run)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    });
    for seed in &failed {
        eprintln!(
            "soak: the trace of seed {seed} failed; again: thc-soak --of {} --seed {seed} --trace {} --count 1 --jobs 1",
            flags.of.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default(),
            flags.trace
        );
    }
    let Ok(total) = total.into_inner() else { return ExitCode::FAILURE };
    let (Total { report, traces }, _, memories) = total;
    println!(
        "soak: {} all-reduces right on all workers ({} results compared bit for bit), {} failed on all as they had to",
        report.complete, report.results, report.failed
    );
    println!(
        "soak: {traces} traces from seed {first} on, {} happenings, {} sieges, {} restarts survived, {} sessions, {} packets, {:.0} s of virtual time in {:.0} s",
        report.happenings,
        report.sieges,
        report.survived,
        report.sessions,
        report.packets,
        report.time.as_secs_f64(),
        started.elapsed().as_secs_f64()
    );
    if flags.of != Jobs::Fixed {
        println!(
            "soak: where members come and go: {} jobs, their server or its spare died {} times, sessions ended by an error on {} workers",
            report.jobs, report.falls, report.ended
        );
    }
    let (sum, count, longest) = report.recovery;
    println!(
        "soak: after {count} storms all-reduces went on within {:.0} ms on average, {:.1} s at most",
        sum.as_secs_f64() * 1e3 / count.max(1) as f64,
        longest.as_secs_f64()
    );
    // Worlds differ in size; what is not given back shows over many of them.
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
    let half = memories.len() / 2;
    println!(
        "soak: memory {before:.0} MiB before, {:.0} on average in the first half, {:.0} in the second, {:.0} in the end",
        mean(&memories[..half]),
        mean(&memories[half..]),
        memory()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
