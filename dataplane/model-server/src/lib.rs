//! Asynchronous training with double quantization: a server that holds the model, and its client.
//!
//! Workers pull the model and push gradients in low precision, and do not wait for each other (Yu, Wu, Huang: Double
//! Quantization for Communication-Efficient Distributed Optimization; "the paper" here). `docs/asynchronous.md`
//! describes the method and the programs. The crate has these parts:
//!
//! - [`Spec`] describes a model and the rule of its steps;
//! - [`codec`] has the paper's quantizers, and [`payload`] encodes vectors with them;
//! - [`shard`] has a range of coordinates with its clock, and carries out pulls and pushes without I/O;
//! - [`ModelServer`] serves shards over QUIC, and keeps them in files;
//! - [`Client`] is a worker's connection, which pulls, pushes, reads snapshots, and reconnects after a server's death.
//!
//! ```no_run
//! use thc_model::{Client, ClientConfig, Pull, Push, Spec};
//!
//! let config = ClientConfig {
//!     server: "127.0.0.1:9100".to_owned(),
//!     secret: "sixteen letters or more".into(),
//!     ..ClientConfig::default()
//! };
//! let mut client = Client::open(config, "weights", Spec::sgd(1000, 0.1))?;
//! client.initialise(&[0.0; 1000])?;
//! let mut x = vec![0.0; 1000];
//! client.pull(&mut x, Pull::default())?;
//! let gradient = x.clone(); // of ½‖x‖²
//! let pushed = client.push(&gradient, Push::bits(8))?;
//! assert!(pushed.refused.is_empty());
//! # Ok::<(), thc_model::ModelError>(())
//! ```
#![deny(unsafe_code)]

mod admin;
mod client;
pub mod codec;
mod config;
mod counters;
mod error;
#[cfg(test)]
mod hostile_tests;
mod job;
mod model;
pub mod payload;
mod proof;
mod registry;
mod server;
mod session;
pub mod shard;
mod spec;
pub mod step;
mod store;
mod tensors;
mod transport;
mod wire;

pub use admin::Admin;
pub use client::{Client, ClientConfig, ClientStats, Pull, Pulled, Push, Pushed, ShardState};
pub use config::{ModelJobConfig, ModelServerConfig};
pub use counters::{ModelJobStats, ModelServerStats, ModelStats, Reason, Refusals, ShardStats};
pub use error::ModelError;
pub use server::ModelServer;
pub use spec::{ModelBits, Spec, default_shard};
pub use step::{Optimizer, Prox};
pub use tensors::{BLOCK, EXACT, Tensor, TensorBlock};
pub use thc_config::values::{Interval, Secret, Size};

/// Waits for a lock, even one whose holder has panicked: what these locks hold is valid at every moment.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
