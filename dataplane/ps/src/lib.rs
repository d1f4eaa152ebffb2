//! THC software parameter server: the aggregator of `thc-protocol` behind UDP ports.
//!
//! ```no_run
//! use thc_ps::{JobOptions, Server, ServerOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let job = JobOptions {
//!     job: Some(1),
//!     workers: Some(4),
//!     cookie: Some(0x1234_abcd.into()),
//!     ..JobOptions::default()
//! };
//! let options = ServerOptions { job: vec![job], ..ServerOptions::default() };
//! let server = Server::start(options.validate()?)?;
//! println!("workers join at {}", server.local());
//! let totals = server.shutdown();
//! println!("{} results", totals.job(1).map_or(0, |job| job.results));
//! # Ok(())
//! # }
//! ```
//!
//! One thread per shard owns a UDP port and its part of every job's slots (P21); it receives a
//! burst, lets the aggregator handle each packet, and sends the answers in runs. A control thread takes JOIN
//! and LEAVE, and installs each job's session in the shards (P22–P25).
#![forbid(unsafe_code)]

mod control;
mod control_port;
mod error;
mod exchange;
mod forwarding;
#[doc(hidden)]
pub mod fuzz;
mod kernels;
mod kinds;
mod liveness;
mod p4runtime;
mod ports;
pub mod report;
mod rows;
mod server;
mod shard;
mod shards;
mod state;
mod stats;
mod tx_batch;

pub use error::PsError;
pub use exchange::{Exchange, PacketHandler};
pub use kernels::Simd;
pub use ports::Reserved;
pub use server::Server;
pub use stats::{ControlStats, JobStats, NetworkStats, ServerStats, WorkerStats};
pub use thc_config::job::{
    ConfigError, JobOptions, JobSetup, Keyword, KeywordKind, Method, MethodValues, PolicyName, RackSize,
    Section, TableOptions, cookie, merge, set,
};
pub use thc_config::server::{
    CertificateFiles, DEFAULT_LISTEN, P4RuntimeConfig, P4RuntimeOptions, ServerConfig, ServerOptions,
    TlsOptions,
};
pub use thc_config::values::{Fraction, Interval, Secret, Size};
pub use tx_batch::{SendFailure, TxBatch};
