//! How far the measurements are.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

use crate::error::Result;

/// A bar on a terminal, one line per figure elsewhere, on standard error.
pub struct Progress {
    quiet: bool,
}

impl Progress {
    /// `quiet` shows nothing.
    pub fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Does `jobs` jobs on all cores, and returns what they gave, in their order, or the first error.
    pub fn parallel<T: Send>(
        &self,
        name: &str,
        jobs: usize,
        job: impl Fn(usize) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let bar = self.bar(name, jobs);
        let next = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let done = Mutex::new(Vec::with_capacity(jobs));
        let work = || {
            while !failed.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= jobs {
                    break;
                }
                let result = job(number);
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                done.lock().expect("no job panics with the lock").push((number, result));
                bar.inc(1);
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs);
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        bar.finish_and_clear();
        let mut done = done.into_inner().expect("no job panics with the lock");
        done.sort_by_key(|(number, _)| *number);
        done.into_iter().map(|(_, result)| result).collect()
    }

    fn bar(&self, name: &str, jobs: usize) -> ProgressBar {
        if self.quiet {
            return ProgressBar::hidden();
        }
        if !std::io::stderr().is_terminal() {
            eprintln!("{name}");
            return ProgressBar::hidden();
        }
        let style =
            ProgressStyle::with_template("{prefix:>30} {bar:30} {pos:>4}/{len}  {elapsed}, {eta} to go");
        let bar = ProgressBar::new(jobs as u64).with_prefix(name.to_owned());
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn jobs_keep_their_order_and_errors_come_through() {
        let progress = Progress::new(true);
        let squares = progress.parallel("", 100, |i| Ok(i * i)).unwrap();
        assert_eq!(squares, (0..100).map(|i| i * i).collect::<Vec<_>>());
        assert!(progress.parallel("", 0, Ok).unwrap().is_empty());
        let failing = |i| if i == 7 { Err(Error::Interrupted) } else { Ok(i) };
        assert!(matches!(progress.parallel("", 100, failing), Err(Error::Interrupted)));
    }
}
