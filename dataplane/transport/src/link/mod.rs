//! What the backends share that make Ethernet frames themselves: frames as bytes, hosts on the link and where they are.

#[cfg(any(feature = "dpdk", test))]
pub mod arp;
mod counts;
pub mod flows;
pub mod frame;
mod mac;
pub mod neighbours;

pub use counts::FrameCounts;
pub use mac::{MacAddr, MacSyntax};
