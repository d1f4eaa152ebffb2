//! Everything that can go wrong, each one line.

use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, with the values needed to mend it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text cannot be read.
    #[error("cannot read the text {}: {source} (choose another file with --text)", path.display())]
    Text {
        /// The file asked for.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text has too few bytes to train on.
    #[error("the text {} has {length} bytes, at least {shortest} are needed (choose a longer file with --text)", path.display())]
    TextTooShort {
        /// The file asked for.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
        /// The least length accepted.
        shortest: usize,
    },
    /// The text repeats a single byte.
    #[error("the text {} repeats a single byte, there is nothing to learn (choose another file with --text)", path.display())]
    TextMonotone {
        /// The file asked for.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not a gradient that the demo wrote.
    #[error("{} is not a one-dimensional .npy file of f32", path.display())]
    NotAGradient {
        /// The file.
        path: PathBuf,
    },
    /// Arguments, or a file that they name, ask for what cannot be.
    #[error("{0}")]
    Usage(String),
    /// A measurement did not give what it should.
    #[error("{0}")]
    Measured(String),
    /// Servers beside one worker.
    #[error(
        "one worker has nobody to share a server with: use --workers 2 or more, or one server ({instead})"
    )]
    OneWorker {
        /// How to ask for that.
        instead: &'static str,
    },
    /// A worker's share of the server does not start.
    #[error("worker {worker}'s share of the server: {reason}")]
    Share {
        /// Which.
        worker: u8,
        /// Why.
        reason: String,
    },
    /// The shares cannot be combined with an option.
    #[error("--colocated does not go with {option}; leave one of them out")]
    ColocatedWith {
        /// The option.
        option: &'static str,
    },
    /// A file that says nothing usable about layers.
    #[error("{}: {reason}", path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A choice that is none.
    #[error(
        "--choices {choice:?} is no table: write bits of an index (1, 2, 3, 4 or 8) and of a sum, like 2/4, 3/8 or 8/16, or raw"
    )]
    UnknownChoice {
        /// As given.
        choice: String,
    },
    /// A default that is none of the choices.
    #[error("--default {default:?} is none of the choices {choices}: name one of them, or give --bound")]
    DefaultChoice {
        /// As given.
        default: String,
        /// Those that there are.
        choices: String,
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
    /// A table was asked for without saying which.
    #[error("give -g and -p for a certain table, or --workers to choose the best (see thc table --help)")]
    WhichTable,
    /// The codec refuses parameters.
    #[error(transparent)]
    Codec(#[from] thc_codec::CodecError),
    /// The aggregator model refuses a job.
    #[error(transparent)]
    Job(#[from] thc_protocol::aggregator::ConfigError),
    /// The wire carries at most 4 bits per coordinate.
    #[error("a bit budget of {bits} does not fit the wire's 4 bits per coordinate; choose -b 1 to 4")]
    TooManyBits {
        /// As asked.
        bits: u8,
    },
    /// The vectors given to an in-process all-reduce do not fit the job.
    #[error("{vectors} vectors for {workers} workers, or of different lengths")]
    Vectors {
        /// The job's workers.
        workers: u8,
        /// Vectors given.
        vectors: usize,
    },
    /// The aggregator model dropped a worker's packet.
    #[error("the aggregator model dropped a packet: {reason}")]
    ModelDropped {
        /// Its reason.
        reason: String,
    },
    /// The aggregator model did not answer with a result of all workers.
    #[error("the aggregator model answered {answer} where a result of all workers was due")]
    ModelAnswer {
        /// What it answered.
        answer: String,
    },
    /// The all-reduce failed.
    #[error(transparent)]
    Worker(Box<thc_worker::WorkerError>),
    /// BMv2 is not there.
    #[error(
        "simple_switch_grpc not found: install BMv2 (docs/switch.md says how), or name its folder in THC_BMV2"
    )]
    NoSwitch,
    /// The switch cannot be combined with an option.
    #[error("--switch does not go with {option}; leave one of them out")]
    SwitchWith {
        /// The option.
        option: &'static str,
    },
    /// There can be no hosts.
    #[error("no hosts for the workers: {reason} (network namespaces take root, iproute2 and ethtool)")]
    NoNetwork {
        /// What the system said.
        reason: String,
    },
    /// The parameter server ended without its totals.
    #[error("thc-ps ended without telling its totals (are all programs of the same build?)")]
    NoTotals,
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
    /// A program is not there.
    #[error("{} does not exist; build it with: cargo build --release -p {package}", program.display())]
    NoProgram {
        /// Where it should be.
        program: PathBuf,
        /// What makes it.
        package: &'static str,
    },
    /// A controller of a server without an address of this machine.
    #[error("--controller needs sockets of this machine: leave {option} out")]
    ControllerWith {
        /// What is in its way.
        option: &'static str,
    },
    /// DPDK was asked for and is not built in.
    #[error(
        "this program was built without DPDK; run `make demo IO=dpdk`, or build it with --features dpdk, which needs \
         libdpdk-dev and libclang-dev (see docs/dpdk.md)"
    )]
    NoDpdk,
    /// A program cannot be built.
    #[error("cannot build {package}: {complaint}")]
    Build {
        /// Which.
        package: &'static str,
        /// The compiler's first error.
        complaint: String,
    },
    /// A child ended with an error.
    #[error("{name} ended with {status}: {complaint}")]
    Child {
        /// Which child.
        name: String,
        /// Its exit status.
        status: String,
        /// The last line of its standard error.
        complaint: String,
    },
    /// A child ended early without an error.
    #[error("{name} ended before its work was done")]
    Silent {
        /// Which child.
        name: String,
    },
    /// A child has said that it is done and does not end.
    #[error("{name} is done but does not end")]
    Lingers {
        /// Which child.
        name: String,
    },
    /// Nothing happens.
    #[error("no process has made progress for {seconds} s")]
    Stalled {
        /// How long.
        seconds: u64,
    },
    /// Workers ended with different models.
    #[error("worker {worker} ended with the model {digest}, worker 0 with {first}: their averages differed")]
    Diverged {
        /// The first worker that differs from worker 0.
        worker: usize,
        /// Its model's digest.
        digest: String,
        /// Worker 0's.
        first: String,
    },
    /// Ctrl-C or a request to end.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// What another part says of a measurement.
    pub fn measurement(reason: impl std::fmt::Display) -> Self {
        Self::Measured(reason.to_string())
    }

    /// The exit status of a command that ends with this error: 2 if its arguments are wrong, 130 if it
    /// was interrupted, 1 otherwise.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::WhichTable
            | Self::Usage(_)
            | Self::OneWorker { .. }
            | Self::ColocatedWith { .. }
            | Self::NoDpdk
            | Self::SwitchWith { .. }
            | Self::ControllerWith { .. }
            | Self::UnknownChoice { .. }
            | Self::DefaultChoice { .. }
            | Self::Codec(_)
            | Self::Job(_)
            | Self::TooManyBits { .. } => 2,
            Self::Interrupted => 130,
            _ => 1,
        }
    }
}
