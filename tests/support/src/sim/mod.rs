//! A network in memory for tests. It is single-threaded and runs in virtual time, and draws its
//! faults from a seed, so that the same seed and the same calls always give the same run.
//!
//! ```
//! use std::time::Duration;
//! use thc_support::{SimConfig, SimNet};
//! use thc_transport::{PacketIo, Peer};
//!
//! let net = SimNet::new(SimConfig { seed: 7, loss: 0.1, ..SimConfig::default() });
//! let (a, b) = ("10.0.0.1:4000".parse::<Peer>()?, "10.0.0.2:4000".parse::<Peer>()?);
//! let (mut worker, mut server) = (net.endpoint(a), net.endpoint(b));
//! worker.send_run(b, &[1; 1000], 100)?;
//! let mut arrived = 0;
//! while net.advance_to_next().is_some() {
//!     arrived += server.recv_burst(&mut |origin, _| assert_eq!(origin.from, a))?;
//! }
//! assert_eq!(arrived as u64, 10 - net.stats().lost);
//! assert_eq!(net.now(), Duration::from_micros(10));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A datagram leaves its sender at the sender's bandwidth, crosses the link (latency, jitter,
//! faults), and enters its receiver at the receiver's bandwidth, where at most
//! [`SimConfig::queue_packets`] wait. So incast, many workers answering one server at once,
//! overflows a queue here as it does in a switch. Endpoints of one [host](SimNet::set_host) share its wires.

mod config;
mod endpoint;
mod net;
mod state;
mod stats;

pub use config::{LinkConfig, SimConfig};
pub use endpoint::SimIo;
pub use net::SimNet;
pub use stats::SimStats;

#[cfg(test)]
mod tests;
