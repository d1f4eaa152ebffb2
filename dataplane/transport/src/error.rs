//! What can go wrong between THC and a network.

use std::io;

use crate::{MAX_DATAGRAM, Peer};

/// An error of a packet I/O backend. Methods of [`PacketIo`](crate::PacketIo) return it inside an
/// [`io::Error`] of the fitting kind.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Another socket has the address and port.
    #[error("address {addr} is in use: stop the other process or choose another port")]
    AddressInUse {
        /// The address asked for.
        addr: Peer,
    },
    /// No interface of this host has the address.
    #[error(
        "{} is not an address of this host: use one that `ip addr` lists, or {} for all",
        addr.ip(), if addr.is_ipv4() { "0.0.0.0" } else { "[::]" }
    )]
    AddressNotAvailable {
        /// The address asked for.
        addr: Peer,
    },
    /// The operating system forbids the address and port.
    #[error("not permitted to use {addr}: choose a port above 1023, or run with CAP_NET_BIND_SERVICE")]
    BindNotPermitted {
        /// The address asked for.
        addr: Peer,
    },
    /// Opening the socket failed in another way.
    #[error("cannot open a UDP socket on {addr}: {cause}")]
    Bind {
        /// The address asked for.
        addr: Peer,
        /// What the operating system said.
        cause: io::Error,
    },
    /// A socket option was refused.
    #[error("cannot set {option} to {value}: {cause}")]
    SocketOption {
        /// The option, by its name in socket(7) or udp(7).
        option: &'static str,
        /// The value asked for.
        value: usize,
        /// What the operating system said.
        cause: io::Error,
    },
    /// A run was to be cut into impossible datagrams.
    #[error("datagrams of {segment} bytes cannot be sent: the length must be 1 to {max}", max = MAX_DATAGRAM)]
    SegmentLength {
        /// The payload bytes asked for per datagram.
        segment: usize,
    },
    /// The interface towards the receiver can't carry the datagram in one piece, and THC's
    /// datagrams are never fragmented.
    #[error(
        "a datagram of {len} bytes to {to} exceeds the MTU on the way: raise the interface's MTU to at least {need}",
        need = len + crate::datagram::header_len(*to)
    )]
    DatagramTooLarge {
        /// The receiver.
        to: Peer,
        /// Payload bytes of the datagram.
        len: usize,
    },
    /// Sending failed, and trying again would not mend it.
    #[error("cannot send to {to}: {cause}")]
    Send {
        /// The receiver.
        to: Peer,
        /// What the operating system said.
        cause: io::Error,
    },
    /// Receiving or waiting failed, and trying again would not mend it.
    #[error("cannot receive on {local}: {cause}")]
    Receive {
        /// The local endpoint.
        local: Peer,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The backend was left out of this program.
    #[error(
        "this program was built without DPDK: build it with `--features dpdk`, which needs DPDK's headers and \
         libraries (on Debian: apt-get install libdpdk-dev libclang-dev)"
    )]
    NoDpdk,
    /// A setting of a backend makes no sense.
    #[error("{backend}: {key} is {value}: {mend}")]
    Setting {
        /// The backend.
        backend: &'static str,
        /// The setting.
        key: &'static str,
        /// As given.
        value: String,
        /// What to do.
        mend: &'static str,
    },
    /// DPDK or a device refused.
    #[error("dpdk: {cause}")]
    Dpdk {
        /// What, and the mend.
        cause: String,
    },
    /// A rate of injected faults is no probability.
    #[error("{name} is {value}: it is a probability, so give a number from 0 to 1")]
    Probability {
        /// Which rate.
        name: &'static str,
        /// The value given.
        value: f64,
    },
    /// A description of fault rates can't be read.
    #[error(
        "cannot read `{part}`: write faults like `loss=0.01,duplicate=0.001,reorder=0.01`, or one number for loss alone"
    )]
    FaultSyntax {
        /// The part that makes no sense.
        part: String,
    },
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
