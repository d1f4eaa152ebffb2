//! SIGINT and SIGTERM: the first makes the worker leave its session, so that the others need not wait for it, and a second
//! one ends the process at once.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use thc_worker::WorkerError;

/// The signals of this process.
#[derive(Debug, Default)]
pub struct Signals {
    /// Set by the first.
    pub stop: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
}

/// The error of a run that a signal has ended.
#[derive(Debug)]
pub struct Stopped {
    signal: u8,
    progress: String,
}

impl Signals {
    /// Handles the signals from now on.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn handle() -> io::Result<Signals> {
        let signals = Signals::default();
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&signals.stop))?;
            flag::register_usize(signal, Arc::clone(&signals.number), signal as usize)?;
            flag::register(signal, Arc::clone(&signals.stop))?;
        }
        Ok(signals)
    }

    /// The error of a run that fails with `error`: [`Stopped`] if a signal has caused that.
    pub fn explain(&self, error: anyhow::Error, progress: impl FnOnce() -> String) -> anyhow::Error {
        match error.downcast_ref() {
            Some(WorkerError::GivenUp) if self.stop.load(Ordering::SeqCst) => {
                let signal = self.number.load(Ordering::SeqCst) as u8;
                Stopped { signal, progress: progress() }.into()
            }
            _ => error,
        }
    }
}

impl Stopped {
    /// The exit status, as shells have it for a program that a signal ends.
    pub fn status(&self) -> u8 {
        128 + self.signal
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = low_level::signal_name(self.signal.into()).unwrap_or("a signal");
        write!(f, "{name} {}", self.progress)
    }
}

impl std::error::Error for Stopped {}
