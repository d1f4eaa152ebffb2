//! Errors between THC and a network.

use std::io;

use crate::{MAX_DATAGRAM, Peer};

/// An error of a packet I/O backend. Methods of [`PacketIo`](crate::PacketIo) return it inside an
/// [`io::Error`] of the fitting kind.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name them")]
pub enum TransportError {
    #[error("address {addr} is in use: stop the other process or choose another port")]
    AddressInUse { addr: Peer },
    #[error(
        "{} is not an address of this host: use one that `ip addr` lists, or {} for all",
        addr.ip(), if addr.is_ipv4() { "0.0.0.0" } else { "[::]" }
    )]
    AddressNotAvailable { addr: Peer },
    #[error("not permitted to use {addr}: choose a port above 1023, or run with CAP_NET_BIND_SERVICE")]
    BindNotPermitted { addr: Peer },
    #[error("cannot open a UDP socket on {addr}: {cause}")]
    Bind { addr: Peer, cause: io::Error },
    /// The option has its name in socket(7) or udp(7).
    #[error("cannot set {option} to {value}: {cause}")]
    SocketOption { option: &'static str, value: usize, cause: io::Error },
    #[error("datagrams of {segment} bytes cannot be sent: the length must be 1 to {max}", max = MAX_DATAGRAM)]
    SegmentLength { segment: usize },
    /// The interface towards the receiver cannot carry a datagram of `len` payload bytes in one piece, and THC's datagrams
    /// are never fragmented.
    #[error(
        "a datagram of {len} bytes to {to} exceeds the MTU on the way: raise the interface's MTU to at least {need}",
        need = len + crate::datagram::header_len(*to)
    )]
    DatagramTooLarge { to: Peer, len: usize },
    #[error("cannot send to {to}: {cause}")]
    Send { to: Peer, cause: io::Error },
    #[error("cannot receive on {local}: {cause}")]
    Receive { local: Peer, cause: io::Error },
    #[error(
        "this program was built without DPDK: build it with `--features dpdk`, which needs DPDK's headers and \
         libraries (on Debian: apt-get install libdpdk-dev libclang-dev)"
    )]
    NoDpdk,
    #[error("{backend}: {key} is {value}: {mend}")]
    Setting { backend: &'static str, key: &'static str, value: String, mend: &'static str },
    #[error("dpdk: {cause}")]
    Dpdk { cause: String },
    #[error("{name} is {value}: it is a probability, so give a number from 0 to 1")]
    Probability { name: &'static str, value: f64 },
    #[error(
        "cannot read `{part}`: write faults like `loss=0.01,duplicate=0.001,reorder=0.01`, or one number for loss alone"
    )]
    FaultSyntax { part: String },
}

impl TransportError {
    /// The kind that describes this error to callers that only see [`io::Error`].
    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::AddressInUse { .. } => io::ErrorKind::AddrInUse,
            Self::AddressNotAvailable { .. } => io::ErrorKind::AddrNotAvailable,
            Self::BindNotPermitted { .. } => io::ErrorKind::PermissionDenied,
            Self::NoDpdk => io::ErrorKind::Unsupported,
            Self::Dpdk { .. } => io::ErrorKind::Other,
            Self::SegmentLength { .. }
            | Self::Setting { .. }
            | Self::DatagramTooLarge { .. }
            | Self::Probability { .. }
            | Self::FaultSyntax { .. } => io::ErrorKind::InvalidInput,
            Self::Bind { cause, .. }
            | Self::SocketOption { cause, .. }
            | Self::Send { cause, .. }
            | Self::Receive { cause, .. } => cause.kind(),
        }
    }
}

impl From<TransportError> for io::Error {
    fn from(error: TransportError) -> Self {
        Self::new(error.kind(), error)
    }
}
