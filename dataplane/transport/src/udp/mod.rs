//! The backend over kernel UDP sockets: works on every Linux machine, no privileges needed.
//!
//! A run of equal datagrams crosses into the kernel in one piece (UDP_SEGMENT, "GSO") and, where
//! the path allows it, comes out in one piece (UDP_GRO); receiving also takes up to
//! [`quinn_udp::BATCH_SIZE`] such pieces per system call. So the cost of a system call is shared
//! by tens of packets.

mod burst;
mod config;
mod multicast;
mod refusals;
mod socket;
mod sources;

use std::{
    io,
    net::IpAddr,
    time::{Duration, Instant},
};

use quinn_udp::{EcnCodepoint, Transmit};

use burst::Burst;
pub use config::UdpConfig;
use refusals::Refusals;
pub use socket::path_mtu;
use socket::{Interest, UdpSocket};
use sources::Sources;

use crate::{
    IoStats, MAX_DATAGRAM, PacketIo, Peer, RetainedTx, Run, TransportError, Waker, packet_io::check_segment,
};

/// The time that one run may wait for room in the send buffer, in all, before the rest of it counts as lost: a
/// caller that is stuck here cannot receive.
const SEND_PATIENCE: Duration = Duration::from_millis(100);

/// Packet I/O over one kernel UDP socket. It can move to another thread, so that every core may have one.
pub struct UdpIo {
    socket: UdpSocket,
    /// The runs received last.
    burst: Burst,
    gso: bool,
    /// The source addresses of answers, if these are not left to routes.
    sources: Option<Sources>,
    start: Instant,
    stats: IoStats,
    last_send_error: Option<(Peer, i32)>,
    refusals: Refusals,
    waker: Option<Waker>,
}

impl UdpIo {
    /// Opens a socket on `config.addr`.
    ///
    /// # Errors
    /// [`TransportError::AddressInUse`], [`AddressNotAvailable`](TransportError::AddressNotAvailable),
    /// [`BindNotPermitted`](TransportError::BindNotPermitted),
    /// [`SocketOption`](TransportError::SocketOption) or, for anything else,
    /// [`Bind`](TransportError::Bind). A buffer smaller than asked for is no error but a warning.
    pub fn bind(config: UdpConfig) -> Result<Self, TransportError> {
        let socket = UdpSocket::open(&config)?;
        let any = socket.local.ip().is_unspecified();
        Ok(Self {
            sources: (config.answer_as_asked && any).then(Sources::default),
            socket,
            burst: Burst::new(),
            gso: config.gso,
            start: Instant::now(),
            stats: IoStats::default(),
            last_send_error: None,
            refusals: Refusals::default(),
            waker: None,
        })
    }

    /// The receive buffer obtained, in bytes as the kernel accounts them.
    pub fn recv_buffer(&self) -> usize {
        self.socket.recv_buffer
    }

    /// The send buffer obtained, in bytes as the kernel accounts them.
    pub fn send_buffer(&self) -> usize {
        self.socket.send_buffer
    }

    /// Returns how many datagrams of `datagram_len` payload bytes the receive buffer holds at least, so
    /// that a sender with no more than this many under way can't overflow it.
    ///
    /// An estimate on the safe side: the kernel charges a datagram with the memory it occupies,
    /// not with its length. That is the block its bytes and the kernel's shared info lie in (a
    /// power of two, and NIC drivers rarely use less than half a page) plus the packet
    /// descriptor. And of what was read already, up to a quarter of the buffer may still be
    /// charged, because Linux returns it in portions of that size.
    pub fn recv_capacity(&self, datagram_len: usize) -> usize {
        const LINK_HEADERS_AND_HEADROOM: usize = 14 + 64;
        const SHARED_INFO: usize = 320;
        const DESCRIPTOR: usize = 256;
        let block = datagram_len
            .saturating_add(crate::datagram::header_len(self.socket.local))
            .saturating_add(LINK_HEADERS_AND_HEADROOM + SHARED_INFO)
            .max(2048)
            .checked_next_power_of_two()
            .unwrap_or(usize::MAX);
        (self.socket.recv_buffer / 4 * 3) / block.saturating_add(DESCRIPTOR)
    }

    /// Returns how often the kernel dropped a datagram, or a merged run of them, because the receive
    /// buffer was full.
    ///
    /// # Errors
    /// [`TransportError::Receive`] where the kernel (before 4.12) doesn't tell.
    pub fn recv_overflows(&self) -> Result<u64, TransportError> {
        self.socket.overflows().map_err(|cause| self.receive_failed(cause))
    }

    /// The latest refusal counted in [`IoStats::send_errors`], and the peer to which data was being sent when
    /// it was reported.
    pub fn last_send_error(&self) -> Option<(Peer, io::Error)> {
        self.last_send_error.map(|(to, errno)| (to, io::Error::from_raw_os_error(errno)))
    }

    /// Returns whether runs are handed to the kernel in one piece: configured, and not refused by the
    /// kernel or a device so far.
    #[cfg(test)]
    pub(crate) fn segments_runs(&self) -> bool {
        self.gso && self.socket.state.max_gso_segments() > 1
    }

    /// Datagrams of `segment` bytes per system call.
    fn segments_per_call(&self, segment: usize) -> usize {
        if self.gso { (MAX_DATAGRAM / segment).clamp(1, self.socket.state.max_gso_segments()) } else { 1 }
    }

    /// Receives in place of what `burst` holds, without blocking. Returns how many datagrams.
    fn receive(&mut self) -> Result<usize, TransportError> {
        if let Err(cause) = self.burst.receive(&self.socket) {
            let errno = cause.raw_os_error().unwrap_or(0);
            return match Refusal::classify(errno) {
                Refusal::Full => Ok(0),
                Refusal::Earlier => {
                    self.take_refusals();
                    Ok(0)
                }
                Refusal::Lost => {
                    self.count_refused(self.socket.local, errno, 1);
                    Ok(0)
                }
                _ => Err(self.receive_failed(cause)),
            };
        }
        let before = self.stats.packets_in;
        for run in self.burst.runs() {
            if !self.refusals.is_empty() {
                self.refusals.remove(run.from);
            }
            self.stats.count_in(run.from, run.len(), run.contents.len());
        }
        let datagrams = (self.stats.packets_in - before) as usize;
        self.stats.recv_bursts += u64::from(datagrams > 0);
        Ok(datagrams)
    }

    /// Receives one burst without blocking: how many datagrams there are, and their runs in order of arrival, whose memory cannot be
    /// kept.
    ///
    /// # Errors
    /// As [`PacketIo::recv_runs`].
    pub fn recv_all_runs(&mut self) -> io::Result<(usize, impl Iterator<Item = Run<'_>>)> {
        let datagrams = self.receive()?;
        Ok((datagrams, self.burst.runs()))
    }

    /// Returns whether the kernel reports the ECN bits of received datagrams.
    pub fn reads_ecn(&self) -> bool {
        self.socket.reads_ecn
    }

    /// Sends to `peer` from this address of the host from now on; `None` leaves the choice to the route. Returns the
    /// previous setting. Has no effect without [`UdpConfig::answer_as_asked`], or if the address is not this host's.
    pub fn answer_from(&mut self, peer: Peer, local: Option<IpAddr>) -> Option<IpAddr> {
        self.sources.as_mut().and_then(|sources| sources.set(peer, local))
    }

    /// The address that [`answer_from`](Self::answer_from) chose for `peer`.
    fn source_to(&self, peer: Peer) -> Option<IpAddr> {
        self.sources.as_ref().and_then(|sources| sources.find(peer))
    }

    fn receive_failed(&self, cause: io::Error) -> TransportError {
        TransportError::Receive { local: self.socket.local, cause }
    }

    fn count_refused(&mut self, to: Peer, errno: i32, datagrams: usize) {
        self.stats.send_errors += datagrams as u64;
        self.last_send_error = Some((to, errno));
        self.take_refusals();
    }

    /// Reads the errors that hosts have reported by ICMP. A call that has sent something reports none, and an unread error
    /// keeps the socket ready.
    fn take_refusals(&mut self) {
        let now = self.start.elapsed();
        while let Some((peer, errno)) = self.socket.take_error() {
            if errno == libc::ECONNREFUSED as u32 {
                self.stats.send_errors += 1;
                self.last_send_error = Some((peer, libc::ECONNREFUSED));
                self.refusals.add(peer, now);
            }
        }
    }
}

/// The meaning of a failed system call for the datagrams that it carried.
enum Refusal {
    /// No room in the send buffer now.
    Full,
    /// The kernel reported the fate of an earlier datagram; this one was not tried.
    Earlier,
    /// These datagrams are lost like any lost packet; later ones may pass.
    Lost,
    /// Larger than the device can carry.
    TooLarge,
    /// The kernel or the device refuses what was asked; for a run in one piece that may be the
    /// segmentation itself.
    Refused,
    /// Nothing a retransmission could mend.
    Fatal,
}

impl Refusal {
    fn classify(errno: i32) -> Self {
        match errno {
            libc::EAGAIN => Self::Full,
            libc::ECONNREFUSED => Self::Earlier,
            // EPERM is what a packet filter's drop looks like to the sender.
            libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::ENOBUFS
            | libc::ENOMEM
            | libc::EPERM => Self::Lost,
            libc::EMSGSIZE => Self::TooLarge,
            libc::EIO | libc::EINVAL => Self::Refused,
            _ => Self::Fatal,
        }
    }
}

/// The kernel copies what it sends, and keeps nothing.
impl RetainedTx for UdpIo {}

impl PacketIo for UdpIo {
    fn recv_runs(&mut self, f: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
        let datagrams = self.receive()?;
        self.burst.share();
        self.burst.runs().for_each(f);
        Ok(datagrams)
    }

    fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        check_segment(segment)?;
        if to.port() == 0 {
            let cause = io::Error::new(io::ErrorKind::InvalidInput, "port 0 is not a valid port");
            return Err(TransportError::Send { to, cause }.into());
        }
        let Some(destination) = self.socket.reaches(to) else {
            let text = format!("this end is at {}; bind it to [::] for IPv6", self.socket.local);
            let cause = io::Error::new(io::ErrorKind::InvalidInput, text);
            return Err(TransportError::Send { to, cause }.into());
        };
        let mut rest = contents;
        let mut earlier_errors = 0;
        let mut full_since: Option<Instant> = None;
        let mut source = self.source_to(to);
        while !rest.is_empty() {
            let len = rest.len().min(segment * self.segments_per_call(segment));
            let in_one_piece = len > segment;
            let datagrams = len.div_ceil(segment);
            let sent = self.socket.state.try_send(
                self.socket.as_quinn(),
                &Transmit {
                    destination,
                    ecn: EcnCodepoint::from_bits(ecn),
                    contents: &rest[..len],
                    segment_size: in_one_piece.then_some(segment),
                    src_ip: source,
                },
            );
            let Err(cause) = sent else {
                self.stats.count_out(to, datagrams, len);
                rest = &rest[len..];
                earlier_errors = 0;
                continue;
            };
            let errno = cause.raw_os_error().unwrap_or(0);
            match Refusal::classify(errno) {
                Refusal::Full => {
                    let since = *full_since.get_or_insert_with(Instant::now);
                    let left = SEND_PATIENCE.saturating_sub(since.elapsed());
                    if left.is_zero() {
                        self.count_refused(to, errno, rest.len().div_ceil(segment));
                        return Ok(());
                    }
                    let ready = self.socket.poll(Interest::Write, left);
                    if ready.map_err(|cause| TransportError::Send { to, cause })?.error {
                        self.take_refusals();
                    }
                }
                // Reported once and then cleared, so the next try is really sent.
                Refusal::Earlier if earlier_errors < 2 => {
                    earlier_errors += 1;
                    self.take_refusals();
                }
                Refusal::Earlier | Refusal::Lost => {
                    self.count_refused(to, errno, datagrams);
                    rest = &rest[len..];
                }
                // The host may have lost the address.
                Refusal::Refused if source.is_some() => {
                    self.answer_from(to, None);
                    source = None;
                }
                // quinn-udp has stopped segmenting; make sure, and send one by one.
                Refusal::Refused if in_one_piece => self.gso = false,
                Refusal::TooLarge => {
                    let len = len.min(segment);
                    return Err(TransportError::DatagramTooLarge { to, len }.into());
                }
                Refusal::Refused | Refusal::Fatal => {
                    return Err(TransportError::Send { to, cause }.into());
                }
            }
        }
        Ok(())
    }

    fn send_run_to_all(&mut self, to: &[Peer], contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        check_segment(segment)?;
        for piece in contents.chunks(segment * self.segments_per_call(segment)) {
            let mut rest = to;
            while let [next, ..] = rest {
                // Segmentation may have been refused meanwhile.
                let together = rest.len() > 1 && piece.len() <= segment * self.segments_per_call(segment);
                let sent = if together {
                    let source = |peer| self.source_to(peer);
                    self.socket.send_to_each(rest, source, piece, segment, ecn).unwrap_or(0)
                } else {
                    0
                };
                if together && sent < rest.len() {
                    self.take_refusals();
                }
                if sent > 0 {
                    let datagrams = piece.len().div_ceil(segment);
                    let calls = self.stats.send_calls + 1;
                    rest[..sent].iter().for_each(|&peer| self.stats.count_out(peer, datagrams, piece.len()));
                    self.stats.send_calls = calls;
                    rest = &rest[sent..];
                } else {
                    // Whatever keeps it from the next one is dealt with there.
                    self.send_run_with(*next, piece, segment, ecn)?;
                    rest = &rest[1..];
                }
            }
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let ready = self.socket.wait_beside(self.waker.as_ref(), timeout);
        let ready = ready.map_err(|cause| self.receive_failed(cause))?;
        if ready.error {
            self.take_refusals();
        }
        Ok(ready.any)
    }

    fn waker(&mut self) -> io::Result<Option<Waker>> {
        if self.waker.is_none() {
            self.waker = Some(Waker::new()?);
        }
        Ok(self.waker.clone())
    }

    fn refused(&self) -> Option<(Peer, Duration)> {
        if self.refusals.is_empty() { None } else { self.refusals.oldest(self.start.elapsed()) }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn local(&self) -> Peer {
        self.socket.local
    }

    fn stats(&self) -> IoStats {
        self.stats
    }
}

#[cfg(test)]
mod tests;
