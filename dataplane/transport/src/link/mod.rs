//! Ethernet for backends that make frames themselves: frames as bytes, and the addresses of hosts
//! on the link.

#[cfg(any(feature = "dpdk", test))]
pub mod arp;
mod counts;
pub mod flows;
pub mod frame;
mod mac;
pub mod neighbours;

pub use counts::FrameCounts;
pub use mac::{MacAddr, MacSyntax};
