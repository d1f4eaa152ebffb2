//! What all benchmarks do, in the form that docs/measuring.md describes.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Whether this run measures (`cargo bench` says so by `--bench`); otherwise a few turns show that the benchmark works.
#[must_use]
pub fn is_measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Seconds that `work` takes.
pub fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Processor time of this thread so far: what else runs on the machine does not count.
#[must_use]
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The median; of an even number of values the upper one of the two in the middle, and 0 of none.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Writes results to `bench/TOPIC.json` in the target directory, and says where. `tmpdir` is `env!("CARGO_TARGET_TMPDIR")`, which only
/// a benchmark itself knows.
///
/// # Errors
/// If the file cannot be written.
pub fn write(tmpdir: &str, topic: &str, results: &impl Serialize) -> io::Result<()> {
    let folder = Path::new(tmpdir).with_file_name("bench");
    std::fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{topic}.json"));
    std::fs::write(&file, serde_json::to_string_pretty(results)? + "\n")?;
    println!("written to {}", file.display());
    Ok(())
}
