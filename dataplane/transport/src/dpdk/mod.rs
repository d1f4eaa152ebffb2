//! The backend over DPDK: frames go between the process and a device without the kernel.
//!
//! Built in with the feature `dpdk`, which needs libdpdk; without it the types exist and opening
//! says what is missing.

#[cfg(not(feature = "dpdk"))]
mod absent;
#[cfg(not(feature = "dpdk"))]
mod absent_tx;
mod answers;
mod config;
#[cfg(feature = "dpdk")]
mod endpoint;
#[cfg(feature = "dpdk")]
mod heads;
#[cfg(feature = "dpdk")]
mod io;
#[cfg(feature = "dpdk")]
mod kept;
#[cfg(feature = "dpdk")]
mod open;
mod report;
#[cfg(feature = "dpdk")]
mod sender;

pub use answers::Answers;
pub use config::{DpdkConfig, Idle};
pub use report::DeviceInfo;
#[cfg(not(feature = "dpdk"))]
pub use {absent::DpdkIo, absent_tx::DpdkTx};
#[cfg(feature = "dpdk")]
pub use {io::DpdkIo, sender::DpdkTx};
