//! A safe interface to the part of DPDK that THC needs.
//!
//! | type | what it is |
//! |-|-|
//! | [`Eal`] | DPDK's environment, with its memory and drivers; a process starts it once |
//! | [`Mempool`] | a pool of packet buffers |
//! | [`Mbuf`] | an owned packet |
//! | [`SharedMbuf`] | a payload with which several packets end |
//! | [`Batch`] | up to [`BURST`] packets that go to or come from a device |
//! | [`Port`] | a started device with its queues |
//! | [`RxQueue`], [`TxQueue`] | one queue, for one thread at a time |
//!
//! All of these free what they own when they are dropped. Queues, packets and pools may move to another thread. One
//! thread at a time uses a queue, because its methods take `&mut self`. Without the feature `dpdk` the crate is empty.
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
