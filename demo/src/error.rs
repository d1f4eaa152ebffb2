//! Everything that can go wrong, each one line.

use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, with the values needed to mend it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Arguments, or a file that they name, ask for what cannot be.
    #[error("{0}")]
    Usage(String),
    /// Something did not work, in one line that names it and the way out.
    #[error("{0}")]
    Failure(String),
    /// A file that says nothing usable about layers.
    #[error("{}: {reason}", path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Layers' measurements that no choice fits.
    #[error(transparent)]
    Adapt(#[from] thc_adapt::AdaptError),
    /// The plot cannot be drawn.
    #[error("cannot draw the plot {}: {reason}", path.display())]
    Plot {
        /// The file asked for.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The codec refuses parameters.
    #[error(transparent)]
    Codec(#[from] thc_codec::CodecError),
    /// The aggregator model refuses a job.
    #[error(transparent)]
    Job(#[from] thc_protocol::aggregator::JobConfigError),
    /// The all-reduce failed.
    #[error(transparent)]
    Worker(Box<thc_worker::WorkerError>),
    /// There can be no hosts.
    #[error("no hosts for the workers: {reason} (network namespaces take root, iproute2 and ethtool)")]
    NoNetwork {
        /// What the system said.
        reason: String,
    },
    /// A line between processes is not an event.
    #[error(
        "a child process and the demo do not understand each other: {0} (are all programs of the same build?)"
    )]
    Event(serde_json::Error),
    /// Standard output is closed.
    #[error("cannot write to standard output: {0}")]
    Output(std::io::Error),
    /// The system refused something about processes, signals or sockets.
    #[error("the system refused: {0}")]
    Process(std::io::Error),
    /// The parent is gone before the child began.
    #[error("this subcommand belongs to `thc demo` and ends with it; run `thc demo`")]
    Orphaned,
    /// Built without what `--controller` needs.
    #[error(
        "this build knows no controller: run make demo ARGS=--controller, or build thc-demo with its default features"
    )]
    NoController,
    /// A program cannot be started.
    #[error("cannot start {name}: {source}")]
    Start {
        /// What it is.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A child ended early without an error.
    #[error("{name} ended before its work was done")]
    Silent {
        /// Which child.
        name: String,
    },
    /// Nothing happens.
    #[error("no process has made progress for {seconds} s")]
    Stalled {
        /// How long.
        seconds: u64,
    },
    /// Ctrl-C or a request to end.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// What another part reports.
    pub fn failure(reason: impl std::fmt::Display) -> Self {
        Self::Failure(reason.to_string())
    }

    /// One worker cannot have servers beside workers; `instead` says how to ask for one server.
    pub fn one_worker(instead: &str) -> Self {
        Self::Usage(format!(
            "one worker has nobody to share a server with: use --workers 2 or more, or one server ({instead})"
        ))
    }

    /// The exit status of a command that ends with this error: 2 if its arguments are wrong, 130 if it
    /// was interrupted, 1 otherwise.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Codec(_) | Self::Job(_) => 2,
            Self::Interrupted => 130,
            _ => 1,
        }
    }
}
