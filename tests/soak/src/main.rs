//! `thc-soak`: traces until so many all-reduces have been checked.

mod summary;

use clap::Parser;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use summary::{Total, resident};

/// How often it is said how far things are.
const TELL: Duration = Duration::from_secs(10);

/// Simulates jobs in which everything goes wrong, and checks every all-reduce.
#[derive(Parser, Debug)]
#[command(name = "thc-soak", version)]
struct Flags {
    /// All-reduces to check
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    count: u64,
    /// Seed of the first trace [default: a new one]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// All-reduces of one trace
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    trace: u64,
    /// Traces that run at the same time [default: one for each core]
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<usize>,
    /// MiB that the process may take for each trace that runs
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    memory: u64,
    /// Seconds that one trace may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    longest: u64,
    /// Print the summary as JSON on standard output, and all else on standard error
    #[arg(long)]
    json: bool,
}

impl Flags {
    /// How one trace is run alone.
    fn command_line(&self, seed: u64) -> String {
        format!("thc-soak --seed {seed} --trace {} --count 1 --jobs 1", self.trace)
    }
}

/// A line for whoever watches.
fn say(json: bool, line: &str) {
    if json { eprintln!("soak: {line}") } else { println!("soak: {line}") }
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = flags.jobs.unwrap_or(cores).max(1);
    let first = flags.seed.unwrap_or_else(|| fastrand::u64(..1 << 40));
    let started = Instant::now();
    say(
        flags.json,
        &format!(
            "{} all-reduces in traces of {}, {jobs} at a time, from seed {first} on",
            flags.count, flags.trace
        ),
    );
    let next = AtomicU64::new(first);
    let stop = AtomicBool::new(false);
    let total = Mutex::new((Total::new(resident().0), Duration::ZERO));
    // What each thread runs, and since when.
    let under_way: Vec<Mutex<Option<(u64, Instant)>>> = (0..jobs).map(|_| Mutex::new(None)).collect();
    let run = |place: usize| {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            *under_way[place].lock().unwrap_or_else(PoisonError::into_inner) = Some((seed, Instant::now()));
            let report = std::panic::catch_unwind(|| thc_soak::run(seed, flags.trace));
            *under_way[place].lock().unwrap_or_else(PoisonError::into_inner) = None;
            let Ok(report) = report else {
                stop.store(true, Ordering::Relaxed);
                return Some(seed);
            };
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            let (total, told) = &mut *total;
            if report.recovery.2 > total.report.recovery.2 {
                let waited = report.recovery.2.as_secs_f64();
                say(flags.json, &format!("longest wait so far {waited:.1} s, in the trace of seed {seed}"));
            }
            total.add(&report);
            let elapsed = started.elapsed();
            let enough = total.report.complete >= flags.count;
            if elapsed - *told >= TELL || enough {
                *told = elapsed;
                say(flags.json, &total.progress(elapsed, flags.count));
            }
            if enough {
                stop.store(true, Ordering::Relaxed);
            }
        }
        None
    };
    let failed: Vec<u64> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..jobs).map(|place| scope.spawn(move || run(place))).collect();
        // A trace has bounds of its own, but for what spins within a step.
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            for place in &under_way {
                let at = *place.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((seed, since)) = at
                    && since.elapsed() > Duration::from_secs(flags.longest)
                {
                    eprintln!(
                        "soak: the trace of seed {seed} has not ended for {} s; again: {}",
                        flags.longest,
                        flags.command_line(seed)
                    );
                    std::process::exit(1);
                }
            }
        }
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    });
    for &seed in &failed {
        eprintln!("soak: the trace of seed {seed} failed; again: {}", flags.command_line(seed));
    }
    let (total, _) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    let elapsed = started.elapsed();
    total.lines(first, elapsed, failed.is_empty()).iter().for_each(|line| say(flags.json, line));
    if flags.json {
        println!("{}", total.json(first, jobs, elapsed, &failed));
    }
    let bound = flags.memory * jobs as u64;
    let too_much = total.peak_mib() > bound as f64;
    if too_much {
        eprintln!(
            "soak: {:.0} MiB of memory at most, which is more than {bound} (--memory)",
            total.peak_mib()
        );
    }
    if failed.is_empty() && !too_much { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
