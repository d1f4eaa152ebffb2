//! A safe view of DPDK, as far as THC needs it.
//!
//! | noun | is |
//! |-|-|
//! | [`Eal`] | DPDK's environment: memory, drivers; once per process |
//! | [`Mempool`] | where packet buffers come from |
//! | [`Mbuf`] | one packet, owned |
//! | [`SharedMbuf`] | a payload that several packets end with |
//! | [`Batch`] | up to [`BURST`] packets on their way in or out |
//! | [`Port`] | a device, started, with its queues |
//! | [`RxQueue`], [`TxQueue`] | one queue, for one thread at a time |
//!
//! Everything owned is freed on drop. Queues, packets and pools may move to another thread; a queue is used by one at a
//! time because its methods take `&mut self`. Without the feature `dpdk` the crate is empty.
#![cfg(feature = "dpdk")]

mod batch;
mod device;
mod eal;
mod error;
mod mbuf;
mod memif;
mod pool;
mod port;
mod queue;
mod ring;
mod steering;
mod thread;

pub use batch::{BURST, Batch};
pub use eal::{Eal, EalConfig};
pub use error::DpdkError;
pub use mbuf::{Mbuf, SharedMbuf};
pub use pool::Mempool;
pub use port::{Port, PortConfig, PortInfo, PortStats};
pub use queue::{RxQueue, TxQueue};
pub use ring::RingPair;
pub use steering::Steering;
