//! Everything that can go wrong in the testbed, each one line.

use std::path::PathBuf;

/// The result of testbed functions.
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
    /// A file is not a gradient that the testbed wrote.
    #[error("{} is not a one-dimensional .npy file of f32", path.display())]
    NotAGradient {
        /// The file.
        path: PathBuf,
    },
    /// A saved gradient has no direction.
    #[error("the gradient {} is zero everywhere or not finite", path.display())]
    DegenerateGradient {
        /// The file.
        path: PathBuf,
    },
    /// A measurement did not give what it should.
    #[error("{0}")]
    Measured(String),
    /// A process of a measurement has ended.
    #[error("{name}: {reason}")]
    Part {
        /// What it was.
        name: String,
        /// What it said last.
        reason: String,
    },
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
    /// Racks without workers.
    #[error("{workers} workers are fewer than {racks} racks: use --racks {workers} or fewer")]
    FewWorkers {
        /// Workers.
        workers: u8,
        /// Racks.
        racks: u8,
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
    /// A folder has no gradients that the demo saved.
    #[error("{} has no saved gradients; make some with: thc demo --save-gradients {}", path.display(), path.display())]
    NoGradients {
        /// The folder.
        path: PathBuf,
    },
    /// Saved gradients of different models are in one folder.
    #[error("the gradients in {} have different lengths; keep those of one training in a folder", path.display())]
    MixedGradients {
        /// The folder.
        path: PathBuf,
    },
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
    /// The model server or its client failed.
    #[error(transparent)]
    ModelServer(#[from] thc_model::ModelError),
    /// Asynchronous training failed in another way.
    #[error("{0}")]
    Async(String),
    /// The digits are not there.
    #[error("no digits: {reason} (install scikit-learn: apt-get install python3-sklearn)")]
    NoDigits {
        /// What Python said.
        reason: String,
    },
    /// A bound on delays that so many workers cannot keep.
    #[error("--delay must be at least {least} with {workers} workers, which compute at the same time")]
    Delay {
        /// The least that is possible.
        least: u32,
        /// As asked.
        workers: u8,
    },
    /// A simulation.
    #[error(transparent)]
    Simulate(#[from] crate::simulate::SimulateError),
    /// Ctrl-C or a request to end.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// The exit status of a command that ends with this error: 2 if its arguments are wrong, 130 if it
    /// was interrupted, 1 otherwise.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::WhichTable
            | Self::OneWorker { .. }
            | Self::ColocatedWith { .. }
            | Self::FewWorkers { .. }
            | Self::NoDpdk
            | Self::SwitchWith { .. }
            | Self::ControllerWith { .. }
            | Self::UnknownChoice { .. }
            | Self::DefaultChoice { .. }
            | Self::Codec(_)
            | Self::Delay { .. }
            | Self::Job(_)
            | Self::TooManyBits { .. } => 2,
            Self::Simulate(error) if error.is_usage() => 2,
            Self::Interrupted => 130,
            _ => 1,
        }
    }
}
