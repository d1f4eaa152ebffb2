//! A kernel UDP socket: opened, configured, polled. The only place of this crate that talks to
//! the operating system without a safe wrapper in between.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    time::{Duration, Instant},
};

use quinn_udp::{UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};

use super::UdpConfig;
use crate::{Peer, TransportError, Waker, datagram::canonical};

/// Socket option that reads a socket's memory counters (asm-generic/socket.h; not in `libc`).
const SO_MEMINFO: libc::c_int = 55;

/// An open socket, non-blocking, with its options set.
pub(super) struct UdpSocket {
    socket: Socket,
    pub state: UdpSocketState,
    pub local: Peer,
    /// As obtained from the kernel, in accounted bytes.
    pub recv_buffer: usize,
    pub send_buffer: usize,
    /// True if it reports the ECN bits of received datagrams.
    pub reads_ecn: bool,
}

/// Memory for control messages, aligned as their headers.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control<const BYTES: usize>(pub [u8; BYTES]);

/// Room for the control messages of an error: itself with an address, and what else the socket asks for.
const ERROR: usize = 256;

/// The result of [`UdpSocket::poll`].
#[derive(Clone, Copy)]
pub(super) struct Ready {
    /// True if the socket is ready, be it to report an error.
    pub any: bool,
    /// True if there is an error to report or to take ([`UdpSocket::take_error`]).
    pub error: bool,
}

/// The event that [`UdpSocket::poll`] waits for.
#[derive(Clone, Copy)]
pub(super) enum Interest {
    Read,
    Write,
}

impl UdpSocket {
    /// Opens a socket and sets its options.
    pub fn open(config: &UdpConfig) -> Result<Self, TransportError> {
        let addr = config.addr;
        let failed = |cause| TransportError::Bind { addr, cause };
        let socket =
            Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP)).map_err(failed)?;
        if addr.is_ipv6() {
            // Whatever the host's default is: on [::], peers of IPv4 are welcome as well.
            socket.set_only_v6(false).map_err(failed)?;
        }
        socket.bind(&addr.into()).map_err(|cause| match cause.kind() {
            io::ErrorKind::AddrInUse => TransportError::AddressInUse { addr },
            io::ErrorKind::AddrNotAvailable => TransportError::AddressNotAvailable { addr },
            io::ErrorKind::PermissionDenied => TransportError::BindNotPermitted { addr },
            _ => failed(cause),
        })?;
        let local = socket
            .local_addr()
            .map_err(failed)?
            .as_socket()
            .ok_or_else(|| failed(io::Error::other("the socket has no address")))?;

        let state = UdpSocketState::new(UdpSockRef::from(&socket)).map_err(failed)?;
        let fd = socket.as_raw_fd();
        if !config.gro && state.gro_segments() > 1 {
            set_option(fd, libc::SOL_UDP, libc::UDP_GRO, 0).map_err(failed)?;
        }
        // quinn-udp asks for metadata that QUIC needs and THC doesn't; each costs time per
        // packet. Keeping them would be no error, so a refusal is not one either.
        let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0);
        if !(config.answer_as_asked && local.ip().is_unspecified()) {
            let _ = set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, 0);
            if local.is_ipv6() {
                let _ = set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 0);
            }
        }
        // A socket of IPv6 takes both: peers of IPv4 have the one, its own the other.
        let reads_ecn = set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1).is_ok()
            && (local.is_ipv4() || set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1).is_ok());
        if let Some(busy) = config.busy_poll {
            let micros = u32::try_from(busy.as_micros()).unwrap_or(u32::MAX);
            socket.set_busy_poll(micros).map_err(|cause| TransportError::SocketOption {
                option: "SO_BUSY_POLL (microseconds)",
                value: micros as usize,
                cause,
            })?;
        }
        if config.report_refusals {
            state.enable_transport_errors(UdpSockRef::from(&socket)).map_err(failed)?;
        }
        let recv_buffer = Self::size_buffer(&socket, &RECEIVE, config.recv_buffer)?;
        let send_buffer = Self::size_buffer(&socket, &SEND, config.send_buffer)?;
        Ok(Self { socket, state, local, recv_buffer, send_buffer, reads_ecn })
    }

    /// Makes a buffer as large as `wanted` or as the host allows; returns what it got.
    fn size_buffer(socket: &Socket, buffer: &Buffer, wanted: usize) -> Result<usize, TransportError> {
        let failed = |cause| TransportError::SocketOption { option: buffer.option, value: wanted, cause };
        // The kernel doubles the value it is given to cover its own overhead, and accounts and
        // reports the doubled one.
        let half = libc::c_int::try_from(wanted.div_ceil(2)).unwrap_or(libc::c_int::MAX / 2);
        if set_option(socket.as_raw_fd(), libc::SOL_SOCKET, buffer.forced, half).is_err() {
            (buffer.set)(socket, half as usize).map_err(failed)?;
        }
        let got = (buffer.get)(socket).map_err(failed)?;
        if got < wanted {
            tracing::warn!(
                "{} is {got} bytes, {wanted} were requested: raise {} to {} or run with CAP_NET_ADMIN",
                buffer.option,
                buffer.sysctl,
                wanted.div_ceil(2),
            );
        }
        Ok(got)
    }

    pub(super) fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// A receiver in the form that the kernel expects for this socket: one on [::] reaches IPv4 by addresses
    /// mapped into IPv6. `None` if it cannot be reached.
    #[inline]
    pub fn reaches(&self, to: Peer) -> Option<Peer> {
        match (self.local, to) {
            (Peer::V4(_), Peer::V4(_)) | (Peer::V6(_), Peer::V6(_)) => Some(to),
            (Peer::V6(_), Peer::V4(to)) => Some(Peer::from((to.ip().to_ipv6_mapped(), to.port()))),
            (Peer::V4(_), Peer::V6(_)) => None,
        }
    }

    pub fn as_quinn(&self) -> UdpSockRef<'_> {
        UdpSockRef::from(&self.socket)
    }

    /// Blocks until the socket is ready or `timeout` has passed; returns whether it is ready.
    /// A noted error makes it ready, and the next operation reports it.
    pub fn poll(&self, interest: Interest, timeout: Duration) -> io::Result<Ready> {
        let events = match interest {
            Interest::Read => libc::POLLIN,
            Interest::Write => libc::POLLOUT,
        };
        poll(&mut [libc::pollfd { fd: self.socket.as_raw_fd(), events, revents: 0 }], timeout)
    }

    /// Blocks until something can be read, `waker` wakes this thread, or `timeout` has passed.
    pub fn wait_beside(&self, waker: Option<&Waker>, timeout: Duration) -> io::Result<Ready> {
        let Some(waker) = waker else { return self.poll(Interest::Read, timeout) };
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries = [entry(self.socket.as_raw_fd()), entry(waker.as_raw_fd())];
        let ready = poll(&mut entries, timeout)?;
        if entries[1].revents != 0 {
            waker.reset();
        }
        Ok(ready)
    }

    /// Takes the oldest error from the queue that `report_refusals` asks for: the receiver of the datagram that it is about,
    /// and its number. As long as there are any, the socket counts as ready.
    pub fn take_error(&self) -> Option<(Peer, u32)> {
        // Linux wants room for a byte of the datagram.
        let mut byte = 0u8;
        let mut errno = 0;
        let mut control = Control([0; ERROR]);
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let read = |name: *mut socket2::SockAddrStorage, len: *mut libc::socklen_t| {
            // SAFETY: `msghdr` consists of integers and pointers, for which zeros are valid.
            let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
            (message.msg_name, message.msg_iov, message.msg_iovlen) = (name.cast(), &raw mut part, 1);
            // SAFETY: `len` points to the length of `name` (socket2).
            message.msg_namelen = unsafe { *len };
            (message.msg_control, message.msg_controllen) = (control.0.as_mut_ptr().cast(), ERROR as _);
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            // SAFETY: the kernel writes an address of at most `msg_namelen` bytes to `name`, a byte to `part`, and at most
            // `msg_controllen` bytes to `control`; all outlive the call.
            if unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, flags) } < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: as above; the kernel has set the length of what it wrote.
            unsafe { *len = message.msg_namelen };
            // SAFETY: `message` is as the kernel has left it, and its control messages are in `control`.
            let mut part = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
            while !part.is_null() {
                // SAFETY: `part` is a whole header in `control`, which is aligned for headers.
                let head = unsafe { *part };
                if matches!(
                    (head.cmsg_level, head.cmsg_type),
                    (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
                ) {
                    // SAFETY: a message of this type begins with a `sock_extended_err`; any alignment will do.
                    let error: libc::sock_extended_err =
                        unsafe { libc::CMSG_DATA(part).cast::<libc::sock_extended_err>().read_unaligned() };
                    errno = error.ee_errno;
                }
                // SAFETY: as for the first one.
                part = unsafe { libc::CMSG_NXTHDR(&raw const message, part) };
            }
            Ok(())
        };
        // SAFETY: `read` returns Ok only if the kernel has written an address and its length.
        let ((), address) = unsafe { socket2::SockAddr::try_init(read) }.ok()?;
        Some((canonical(address.as_socket()?), errno))
    }

    /// Datagrams (or received runs of them) that the kernel dropped because the receive buffer
    /// was full.
    pub fn overflows(&self) -> io::Result<u64> {
        let mut counters = [0u32; libc::SK_MEMINFO_DROPS as usize + 1];
        let mut len = size_of_val(&counters) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes into `counters`, which is exactly that
        // long and valid for every bit pattern, and the written length into `len`; both outlive
        // the call.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_MEMINFO,
                counters.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(u64::from(counters[libc::SK_MEMINFO_DROPS as usize]))
    }
}

/// Bytes of the largest packet, IP header included, that the kernel's route to `to` takes in one piece. Sends nothing.
///
/// # Errors
/// The kernel's errors, such as that there is no route.
pub fn path_mtu(to: Peer) -> io::Result<usize> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    socket.connect(&to.into())?;
    let (level, option) = match to {
        Peer::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        Peer::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mut mtu: libc::c_int = 0;
    let mut len = size_of_val(&mtu) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `mtu`, which is exactly that long and valid for every bit pattern, and
    // the written length into `len`; both outlive the call.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut mtu).cast(), &raw mut len) };
    if result == 0 { Ok(mtu.max(0) as usize) } else { Err(io::Error::last_os_error()) }
}

/// Blocks until a descriptor is ready for its events or `timeout` has passed; returns whether it is ready.
fn poll(entries: &mut [libc::pollfd], timeout: Duration) -> io::Result<Ready> {
    let start = Instant::now();
    let mut left = timeout;
    loop {
        let limit = libc::timespec {
            tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(left.subsec_nanos() as i32),
        };
        let count = entries.len() as libc::nfds_t;
        // SAFETY: `entries` are `count` initialised pollfds and `limit` an initialised timespec, all alive and exclusively ours
        // for the call; a null signal mask leaves the mask alone.
        let ready = unsafe { libc::ppoll(entries.as_mut_ptr(), count, &raw const limit, std::ptr::null()) };
        match ready {
            0 => return Ok(Ready { any: false, error: false }),
            1.. => {
                if entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
                    return Err(io::Error::from_raw_os_error(libc::EBADF));
                }
                return Ok(Ready { any: true, error: entries[0].revents & libc::POLLERR != 0 });
            }
            _ => {
                let cause = io::Error::last_os_error();
                if cause.kind() != io::ErrorKind::Interrupted {
                    return Err(cause);
                }
                left = timeout.saturating_sub(start.elapsed());
            }
        }
    }
}

#[cfg(test)]
impl UdpSocket {
    /// Sends without UDP checksums (SO_NO_CHECK).
    pub fn omit_checksums(&self) -> io::Result<()> {
        set_option(self.socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)
    }

    pub fn recv_buffer_now(&self) -> usize {
        self.socket.recv_buffer_size().unwrap_or(0)
    }
}

/// One of the two buffers of a socket.
struct Buffer {
    option: &'static str,
    sysctl: &'static str,
    /// The option that ignores the host's limit, for those who may.
    forced: libc::c_int,
    set: fn(&Socket, usize) -> io::Result<()>,
    get: fn(&Socket) -> io::Result<usize>,
}

const RECEIVE: Buffer = Buffer {
    option: "SO_RCVBUF",
    sysctl: "net.core.rmem_max",
    forced: libc::SO_RCVBUFFORCE,
    set: Socket::set_recv_buffer_size,
    get: Socket::recv_buffer_size,
};

const SEND: Buffer = Buffer {
    option: "SO_SNDBUF",
    sysctl: "net.core.wmem_max",
    forced: libc::SO_SNDBUFFORCE,
    set: Socket::set_send_buffer_size,
    get: Socket::send_buffer_size,
};

/// Sets an option that takes an integer and that socket2 does not offer.
fn set_option(fd: RawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads `size_of::<c_int>()` bytes from `value`, which is that long and
    // outlives the call; a wrong descriptor, level or name yields an error and touches nothing.
    let result = unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
