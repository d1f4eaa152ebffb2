//! All-reduce of gradients in compressed form: the worker's side.
//!
//! ```no_run
//! use thc_worker::{Group, GroupConfig, Seat};
//!
//! let seat = Seat { job: 1, worker: 0, cookie: 0x1234, ..Seat::default() };
//! let group = Group::join(GroupConfig { seat, ..GroupConfig::default() })?;
//! let mut gradient = vec![0.5_f32; 1 << 20];
//! group.allreduce(&mut gradient)?; // now the mean over all workers
//! # Ok::<(), thc_worker::WorkerError>(())
//! ```
//!
//! [`Group`] is what users call: [`Group::allreduce`] for the usual case, [`Group::call`] with a [`Call`] that says
//! how the coordinates travel, [`Group::start`] for several all-reduces at a time, [`Group::start_packed`] for tensors
//! that a GPU compresses. Underneath, [`Engine`] ties `thc-protocol`'s state machine, `thc-codec`'s
//! kernels and a [`thc_transport::PacketIo`] together without threads, so that the same code runs on
//! sockets and in a simulated network.
//!
//! Features: `controller`, groups that are joined by a name at a controller (`ControllerUrl`; it brings tonic and tokio); `cli`, the
//! program `thc-worker`; `dpdk`, devices beside kernel UDP. The library needs none of them.
#![forbid(unsafe_code)]

mod call;
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
mod rendezvous;
mod seat;
mod stats;

pub use call::{Call, Plan, Span};
pub use config::{GroupConfig, Rounding, Timeouts};
pub use controller::Controller;
#[cfg(feature = "controller")]
pub use controller::ControllerUrl;
pub use engine::{
    Borrowed, CallKeys, Collective, CollectiveCall, CollectiveConfig, Engine, EngineConfig, Estimate,
    Finished, Handle, KeptFeedback, Loan, Numbers, Packed, PackedLayout, PackedPart, PackedTensor, Piece,
    RestoredFeedback,
};
pub use error::{Silence, WorkerError};
pub use group::Group;
pub use io::AnyIo;
pub use probe::{Probe, ProbeAnswer, probe};
pub use seat::{Seat, server_address};
pub use stats::{Computed, METRICS, Metric, MetricKind, Quantity, Stats};
pub use thc_protocol::wire::{Choice, Mode};
