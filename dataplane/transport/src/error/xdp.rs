//! What keeps an AF_XDP endpoint from being opened.

use std::io;
use std::net::Ipv4Addr;

/// Why an interface cannot be used, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// No interface has the name.
    #[error(
        "there is no interface {device} here: use one of {there}; in a network namespace, run there (ip netns exec NAME …)"
    )]
    NoInterface {
        /// The name.
        device: String,
        /// The interfaces that exist.
        there: String,
    },
    /// It carries no Ethernet frames.
    #[error("{device} is not an Ethernet interface: use one with a hardware address, or --io udp")]
    NotEthernet {
        /// The interface.
        device: String,
    },
    /// It is down.
    #[error("{device} is down: ip link set dev {device} up")]
    Down {
        /// The interface.
        device: String,
    },
    /// It has no IPv4 address.
    #[error(
        "{device} has no IPv4 address: ip addr add 10.0.0.1/24 dev {device} (this backend carries IPv4 alone; for IPv6 \
         use --io udp)"
    )]
    NoAddress {
        /// The interface.
        device: String,
    },
    /// It has other addresses.
    #[error("{address} is not an address of {device}: use {has}, or 0.0.0.0 for the first")]
    OtherAddress {
        /// The address asked for.
        address: Ipv4Addr,
        /// The interface.
        device: String,
        /// The addresses that it has.
        has: String,
    },
    /// The process lacks capabilities.
    #[error(
        "not permitted to {step} on {device}: run as root, or: setcap cap_net_raw,cap_net_admin,cap_bpf+ep on the program \
         (in a container --cap-add NET_ADMIN --cap-add BPF)"
    )]
    NotPermitted {
        /// The interface.
        device: String,
        /// What was tried.
        step: &'static str,
    },
    /// The kernel was built without.
    #[error(
        "this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS, since Linux 5.9 as they are used here): use --io udp"
    )]
    NoSockets,
    /// It has a program already.
    #[error(
        "{device} has another XDP program, with the number {program}: one process has an interface, so end that one \
         (bpftool net names it), or take its program off: ip link set dev {device} xdp off"
    )]
    Occupied {
        /// The interface.
        device: String,
        /// The program's number.
        program: u32,
    },
    /// The driver refuses programs with so large packets.
    #[error(
        "{device} has an MTU of {mtu}, more than its driver puts in one frame for XDP: ip link set dev {device} mtu 1500, \
         or --xdp-generic"
    )]
    Mtu {
        /// The interface.
        device: String,
        /// Its MTU.
        mtu: u32,
    },
    /// There are not so many queues.
    #[error(
        "{device} has {has} queues, {asked} were asked for: ethtool -L {device} combined {asked}, or ask for fewer"
    )]
    Queues {
        /// The interface.
        device: String,
        /// How many queues it has.
        has: u32,
        /// How many were asked for.
        asked: u32,
    },
    /// Shards are to have a queue each.
    #[error(
        "{shards} shards need {shards} queues of {device}, one each, and it has {queues}: ethtool -L {device} combined \
         {shards}, then have packets sorted by port (docs/xdp.md), or --shards 1"
    )]
    Shards {
        /// The interface.
        device: String,
        /// The queues in use.
        queues: u32,
        /// The shards.
        shards: u32,
    },
    /// Another socket has the queue.
    #[error("queue {queue} of {device} belongs to another AF_XDP socket: end that process")]
    QueueTaken {
        /// The interface.
        device: String,
        /// The queue.
        queue: u32,
    },
    /// The driver cannot do without copies.
    #[error("{device}'s driver does not do zero copy: leave --xdp-zero-copy out")]
    NoZeroCopy {
        /// The interface.
        device: String,
    },
    /// The kernel locks no more memory.
    #[error(
        "the kernel locks no more memory for queue {queue} of {device}: ulimit -l unlimited, or fewer --xdp-descriptors"
    )]
    Memory {
        /// The interface.
        device: String,
        /// The queue.
        queue: u32,
    },
    /// Something else was refused.
    #[error("cannot {step} on {device}: {cause}")]
    Refused {
        /// The interface.
        device: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        cause: io::Error,
    },
}

impl XdpError {
    /// The error of a step that concerns the interface.
    pub(crate) fn from_step(device: &str, step: &'static str, cause: io::Error) -> XdpError {
        let device = device.to_owned();
        match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => XdpError::NotPermitted { device, step },
            _ => XdpError::Refused { device, step, cause },
        }
    }

    /// The error of a step that concerns one of its queues.
    pub(crate) fn from_queue(device: &str, queue: u32, step: &'static str, cause: io::Error) -> XdpError {
        match cause.raw_os_error() {
            Some(libc::EAFNOSUPPORT | libc::ESOCKTNOSUPPORT) => XdpError::NoSockets,
            Some(libc::ENOBUFS | libc::ENOMEM) => XdpError::Memory { device: device.to_owned(), queue },
            _ => XdpError::from_step(device, step, cause),
        }
    }

    /// The error of a queue's socket; `zero_copy` says of which kind.
    pub(crate) fn from_socket(
        device: &str,
        queue: u32,
        zero_copy: bool,
        error: xdp::socket::SocketError,
    ) -> XdpError {
        use xdp::socket::SocketError;
        let device_name = device.to_owned();
        match error {
            SocketError::SocketCreation(cause) => {
                XdpError::from_queue(device, queue, "open an AF_XDP socket", cause)
            }
            SocketError::Bind(cause) => match cause.raw_os_error() {
                Some(libc::EBUSY) => XdpError::QueueTaken { device: device_name, queue },
                Some(libc::EOPNOTSUPP | libc::EINVAL | libc::EPROTONOSUPPORT) if zero_copy => {
                    XdpError::NoZeroCopy { device: device_name }
                }
                _ => XdpError::from_queue(device, queue, "bind an AF_XDP socket", cause),
            },
            SocketError::SetSockOpt { inner, .. } => {
                XdpError::from_queue(device, queue, "set up an AF_XDP socket", inner)
            }
            SocketError::GetSockOpt { inner, .. } | SocketError::RingMap { inner, .. } => {
                XdpError::from_queue(device, queue, "map the rings of an AF_XDP socket", inner)
            }
        }
    }
}
