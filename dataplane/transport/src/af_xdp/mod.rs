//! The backend over AF_XDP: frames go between an interface of the kernel and the process, bypassing most of
//! the kernel. The kernel keeps the interface; a small program in it hands over the datagrams for our ports,
//! and nothing else.

mod bpf;
mod channels;
mod config;
mod io;
mod netlink;
mod open;
#[cfg(feature = "options")]
mod options;
mod program;
mod queue;
mod ring_page;
mod shared;

use crate::error::XdpError;

pub use config::XdpConfig;
pub use io::XdpIo;
pub use open::Xdp;
#[cfg(feature = "options")]
pub use options::XdpOptions;
