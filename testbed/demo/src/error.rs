//! The errors of `thc`, each of which prints as one line.

use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error, with the values that are needed to resolve it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The arguments, or a file that they name, ask for something impossible.
    #[error("{0}")]
    Usage(String),
    /// A failure, as one line that names its cause and what to do.
    #[error("{0}")]
    Failure(String),
    /// The codec refuses parameters.
    #[error(transparent)]
    Codec(#[from] thc_codec::CodecError),
    /// The all-reduce failed.
    #[error(transparent)]
    Worker(Box<thc_worker::WorkerError>),
    /// Virtual hosts cannot be created.
    #[error(
        "no hosts for the workers: {reason} (network namespaces need root, iproute2 and ethtool: apt-get install iproute2 ethtool)"
    )]
    NoNetwork {
        /// The system's error.
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
    /// A system call for processes, signals or sockets failed.
    #[error("a system call failed: {0}")]
    Process(std::io::Error),
    /// A program cannot be started.
    #[error("cannot start {name}: {source}")]
    Start {
        /// The program's name.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The user interrupted the program, or a signal asked it to end.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An error that another module reports.
    pub fn failure(reason: impl std::fmt::Display) -> Self {
        Self::Failure(reason.to_string())
    }

    /// A child process runs without its parent.
    pub fn orphaned() -> Self {
        Self::failure("this subcommand belongs to `thc demo` and ends with it; run `thc demo`")
    }

    /// The program was built without the feature that `--aggregator controller` needs.
    pub fn no_controller() -> Self {
        Self::failure(
            "this build has no controller: run make demo AGGREGATOR=controller, or build thc-demo with its default features",
        )
    }

    /// One worker alone cannot share a server with others. `instead` says how to ask for one server.
    pub fn one_worker(instead: &str) -> Self {
        Self::Usage(format!(
            "one worker has no other worker to share a server with: use --workers 2 or more, or one server ({instead})"
        ))
    }

    /// The exit status of a command that ends with this error: 2 for wrong arguments, 130 for an
    /// interruption, 0 if the reader of its output has gone, as `head` does, 1 otherwise.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Codec(_) => 2,
            Self::Interrupted => 130,
            Self::Output(cause) if cause.kind() == std::io::ErrorKind::BrokenPipe => 0,
            _ => 1,
        }
    }
}
