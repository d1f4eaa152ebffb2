//! What can go wrong in a simulation, each one line.

use std::path::PathBuf;

use super::layout::Layout;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A file of settings cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of settings says something that is none.
    #[error("{}: {reason} (thc simulate --help names the keys)", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A value out of its range.
    #[error("{key} is {value}: {mend}")]
    Value {
        /// The key.
        key: &'static str,
        /// As given.
        value: String,
        /// What it may be.
        mend: &'static str,
    },
    /// More workers than an aggregator has room for.
    #[error("{workers} workers do not fit {layout}: an aggregator takes 2 to 64, racks more than fit one and at most 64 racks (--rack)", layout = layout.name())]
    TooMany {
        /// As asked.
        workers: u16,
        /// For what.
        layout: Layout,
    },
    /// The job that the settings make is none.
    #[error("no such job for {workers} workers: {reason}")]
    Job {
        /// n.
        workers: u16,
        /// What thc-ps says to it.
        reason: String,
    },
    /// A worker has failed.
    #[error(transparent)]
    Worker(Box<thc_worker::WorkerError>),
    /// The simulated network refused something.
    #[error("the simulated network: {0}")]
    Network(std::io::Error),
    /// Nothing goes on.
    #[error("the simulation stands still: {open} workers wait for packets that do not come")]
    Stalled {
        /// How many have not ended.
        open: usize,
    },
    /// Workers with different means.
    #[error("the simulated workers have different means: this is a fault of the program")]
    Different,
    /// Figures too far from what was measured.
    #[error("{count} of {all} simulated times are more than {percent} % from those measured")]
    Disagrees {
        /// How many.
        count: usize,
        /// How many there are.
        all: usize,
        /// The bound.
        percent: f64,
    },
}

impl SimulateError {
    /// What a worker says.
    pub fn worker(error: thc_worker::WorkerError) -> Self {
        Self::Worker(Box::new(error))
    }

    /// Whether the arguments are wrong, and not what came of them.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Settings { .. } | Self::Value { .. } | Self::TooMany { .. } | Self::Job { .. })
    }
}

impl From<SimulateError> for crate::error::Error {
    fn from(error: SimulateError) -> Self {
        let text = error.to_string();
        if error.is_usage() { Self::Usage(text) } else { Self::Failure(text) }
    }
}
