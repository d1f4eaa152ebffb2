//! The interface between THC and a network: datagrams in bursts.

use std::{io, time::Duration};

use crate::{MAX_DATAGRAM, Origin, Peer, Run, TransportError, Waker, datagram::header_len};

/// A receiver of runs.
pub(crate) type Receiver<'a> = dyn FnMut(Run<'_>) + 'a;

/// Sends and receives UDP datagrams in bursts.
///
/// Backends for real traffic do not allocate, lock, log or make a system call per packet; the simulator and
/// the lossy wrapper are for tests and do allocate. Delivery is that of UDP: datagrams may be lost,
/// duplicated and reordered, so a send that returns `Ok` says only that the datagrams were handed over; those
/// the network refused for a passing reason (an unreachable host, a full device queue) are counted in
/// [`IoStats::send_errors`] and left to the caller's retransmission.
pub trait PacketIo {
    /// Receives one burst without blocking and calls `f` once for each run of datagrams that came in one
    /// piece, in order of arrival. For a backend that knows of no runs, each datagram is one.
    ///
    /// Returns how many datagrams were handed to `f`. 0 does not promise that nothing waits: a
    /// backend that filters may have dropped a whole burst. Ask [`wait`](Self::wait).
    ///
    /// # Errors
    /// Only those after which the backend can't go on, as [`TransportError`] inside the
    /// [`io::Error`].
    fn recv_runs(&mut self, f: &mut impl FnMut(Run<'_>)) -> io::Result<usize>;

    /// Receives one burst like [`recv_runs`](Self::recv_runs), and calls `f` once for each datagram.
    ///
    /// # Errors
    /// As [`recv_runs`](Self::recv_runs).
    fn recv_burst(&mut self, f: &mut impl FnMut(Origin, &[u8])) -> io::Result<usize> {
        self.recv_runs(&mut |run| run.datagrams().for_each(|datagram| f(run.origin(), datagram)))
    }

    /// Sends `contents` to `to` as ⌈len / `segment`⌉ datagrams of `segment` bytes each; the last
    /// may be shorter. Empty `contents` are no datagram.
    ///
    /// # Errors
    /// [`TransportError::SegmentLength`] when `segment` is 0 or above [`MAX_DATAGRAM`],
    /// [`TransportError::DatagramTooLarge`] when a device on the way out can't carry `segment`,
    /// and other failures that a retry would not fix.
    fn send_run(&mut self, to: Peer, contents: &[u8], segment: usize) -> io::Result<()> {
        self.send_run_with(to, contents, segment, 0)
    }

    /// Sends a run like [`send_run`](Self::send_run), with these ECN bits, of which only the low two count. A backend that cannot set them leaves them 0.
    ///
    /// # Errors
    /// Those of [`send_run`](Self::send_run).
    fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()>;

    /// Sends the same run, with these ECN bits, to every receiver, as a switch multicasts a RESULT.
    ///
    /// # Errors
    /// Those of [`send_run`](Self::send_run); receivers may have got a part of the run then, or nothing.
    fn send_run_to_all(&mut self, to: &[Peer], contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        for &peer in to {
            self.send_run_with(peer, contents, segment, ecn)?;
        }
        Ok(())
    }

    /// Blocks until something can be received or `timeout` has passed (virtual time in the
    /// simulator). Returns whether something can be received.
    ///
    /// # Errors
    /// As [`recv_runs`](Self::recv_runs).
    fn wait(&mut self, timeout: Duration) -> io::Result<bool>;

    /// Lets other threads end [`wait`](Self::wait) from now on; `None` if the backend never
    /// waits long enough to need it.
    ///
    /// # Errors
    /// The process has no file descriptors left.
    fn waker(&mut self) -> io::Result<Option<Waker>> {
        Ok(None)
    }

    /// The peer whose host has said for longest that no program listens at its port, and since when; as far as the backend
    /// is told, and until something comes from there.
    fn refused(&self) -> Option<(Peer, Duration)> {
        None
    }

    /// Monotonic time since a fixed start of this backend (virtual in the simulator).
    fn now(&self) -> Duration;

    /// The local endpoint. The address is 0.0.0.0 or [::] when the backend listens on every address.
    fn local(&self) -> Peer;

    /// Counters since the backend was made.
    fn stats(&self) -> IoStats;
}

/// A backend that may keep datagrams in the memory from which it sends them, so that they are written once and never copied.
pub trait RetainedTx: PacketIo {
    /// Memory of `len` bytes, with arbitrary content, from which a datagram is sent
    /// ([`send_packed`](Self::send_packed)). What is written there is kept under this number (small, from 0
    /// up) until memory for that number is requested again.
    ///
    /// `None` if the backend has no such memory, or not so much: then the caller keeps what it may have to
    /// send again, and uses [`PacketIo::send_run`].
    fn pack(&mut self, number: usize, len: usize) -> Option<&mut [u8]> {
        let _ = (number, len);
        None
    }

    /// The datagram that is kept under a number, to be read or changed before it is sent again. `None` if
    /// there is none, or if it is still being sent and there is no memory for a copy.
    fn packed_payload(&mut self, number: usize) -> Option<&mut [u8]> {
        let _ = number;
        None
    }

    /// Sends the datagram that is kept under a number, with these ECN bits, at the latest with the next
    /// [`flush`](Self::flush), and keeps it. If there is none, or no memory for it, it counts as lost.
    ///
    /// # Errors
    /// Those of [`PacketIo::send_run`].
    fn send_packed(&mut self, to: Peer, number: usize, ecn: u8) -> io::Result<()> {
        let _ = (to, number, ecn);
        Ok(())
    }

    /// Sends everything that [`send_packed`](Self::send_packed) may have gathered.
    ///
    /// # Errors
    /// Those of [`PacketIo::send_run`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The traffic of a backend. Bytes are counted from the IP header upwards, that is the payload plus
/// [`header_len`] per datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    /// Datagrams received.
    pub packets_in: u64,
    /// Bytes received, IP and UDP headers included.
    pub bytes_in: u64,
    /// Datagrams handed to the network.
    pub packets_out: u64,
    /// Bytes handed to the network, IP and UDP headers included.
    pub bytes_out: u64,
    /// Datagrams that the network refused for a passing reason and that were therefore not sent,
    /// and refusals that it reported later (ICMP).
    pub send_errors: u64,
    /// Receive calls that yielded at least one datagram; `packets_in / recv_bursts` is the
    /// average burst.
    pub recv_bursts: u64,
    /// Calls into the layer below that sent something; `packets_out / send_calls` is the average
    /// run.
    pub send_calls: u64,
}

impl IoStats {
    /// Counts `packets` datagrams with `payload` bytes in all as received from this peer.
    pub fn count_in(&mut self, from: Peer, packets: usize, payload: usize) {
        self.packets_in += packets as u64;
        self.bytes_in += (payload + packets * header_len(from)) as u64;
    }

    /// Counts `packets` datagrams with `payload` bytes in all as sent to this peer by one call.
    pub fn count_out(&mut self, to: Peer, packets: usize, payload: usize) {
        self.packets_out += packets as u64;
        self.bytes_out += (payload + packets * header_len(to)) as u64;
        self.send_calls += 1;
    }
}

/// Refuses segment lengths that no UDP datagram can have, the same way in every backend.
///
/// # Errors
/// [`TransportError::SegmentLength`]: it is 0, or above [`MAX_DATAGRAM`].
pub fn check_segment(segment: usize) -> Result<(), TransportError> {
    if segment == 0 || segment > MAX_DATAGRAM {
        return Err(TransportError::SegmentLength { segment });
    }
    Ok(())
}
