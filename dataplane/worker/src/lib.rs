//! All-reduce of gradients in compressed form: the worker's side.
//!
//! ```no_run
//! use thc_worker::{Group, GroupConfig};
//!
//! let config = GroupConfig { worker: 0, job: 1, cookie: 0x1234, ..GroupConfig::default() };
//! let group = Group::join(config)?;
//! let mut gradient = vec![0.5_f32; 1 << 20];
//! group.allreduce(&mut gradient)?; // now the mean over all workers
//! # Ok::<(), thc_worker::WorkerError>(())
//! ```
//!
//! [`Group`] is what users call. Underneath, [`Engine`] ties `thc-protocol`'s state machine, `thc-codec`'s
//! kernels and a [`thc_transport::PacketIo`] together without threads, so that the same code runs on
//! sockets and in a simulated network.
//!
//! Features: `controller`, groups that are joined by a name at a controller (`ControllerUrl`; it brings tonic and tokio); `cli`, the
//! program `thc-worker`; `dpdk`, devices beside kernel UDP. The library needs none of them.
#![forbid(unsafe_code)]

mod config;
#[cfg(feature = "controller")]
mod controller;
#[cfg(not(feature = "controller"))]
#[path = "no_controller.rs"]
mod controller;
mod driver;
mod engine;
mod error;
mod group;
mod io;
mod probe;
mod random;
mod seat;
mod stats;

pub use config::GroupConfig;
pub use controller::Controller;
#[cfg(feature = "controller")]
pub use controller::ControllerUrl;
pub use engine::{
    Borrowed, CallKeys, Collective, CollectiveCall, CollectiveConfig, Engine, EngineConfig, Estimate,
    Finished, KeptFeedback, Loan, Membership, Numbers, Packed, PackedCall, PackedLayout, PackedPart, Piece,
    RestoredFeedback,
};
pub use error::WorkerError;
pub use group::{Group, Handle};
pub use io::AnyIo;
pub use probe::{Probe, ProbeAnswer, probe};
pub use stats::{Computed, METRICS, Metric, MetricKind, Quantity, Stats};
pub use thc_protocol::wire::{Choice, Mode};

/// A piece of a tensor, and how it travels: as indices of one of the job's tables, or RAW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Coordinates, at least 1.
    pub length: usize,
    /// How they travel.
    pub choice: Choice,
}

/// How one all-reduce is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// Compressed (the default) or as 32-bit integers.
    pub mode: Mode,
    /// Error feedback is kept under this key between calls (Algorithm 3); `None`: none is. All workers
    /// must give the same key for the same tensor; it is checked. Only for compressed calls.
    pub feedback: Option<u64>,
}
