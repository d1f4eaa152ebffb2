//! A backend whose packets are written down.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    Capture, IoStats, Origin, PacketIo, Peer, Run,
    capture::Batch,
    packet_io::{Receiver, check_segment},
};

/// A wrapper around a backend that writes every datagram received and sent to a [`Capture`].
///
/// The file has what the wrapped backend delivers and what it is given: below a [`LossyIo`](crate::LossyIo),
/// that is what was on the wire. Sent datagrams are written once the backend has taken them, those it counted
/// as [`send_errors`](IoStats::send_errors) included.
pub struct CapturedIo<T> {
    inner: T,
    capture: Capture,
    batch: Batch,
    /// Time since 1970 when the backend's clock began.
    epoch: Duration,
    /// The addresses from which a backend on 0.0.0.0 or [::] sends, by receiver.
    sources: HashMap<IpAddr, IpAddr>,
}

impl<T: PacketIo> CapturedIo<T> {
    /// Wraps `inner`.
    pub fn new(inner: T, capture: Capture) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch = wall.saturating_sub(inner.now());
        Self { inner, capture, batch: Batch::default(), epoch, sources: HashMap::new() }
    }

    /// The wrapped backend.
    #[must_use]
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// [`PacketIo::recv_runs`], with a callback of one type, so that a backend that may contain itself in a
    /// wrapper (an enum of all) does not make the compiler wrap callbacks without end.
    fn receive(&mut self, f: &mut Receiver<'_>) -> io::Result<usize> {
        let time = self.epoch + self.inner.now();
        let local = self.inner.local();
        let Self { inner, capture, batch, sources, .. } = self;
        let received = inner.recv_burst(&mut |origin, payload| {
            let Origin { from, at, ecn } = origin;
            if capture.wants(1) {
                batch.push(time, from, local_endpoint(sources, local, at, from), ecn, payload);
            }
            f(Run::single(origin, payload));
        });
        capture.take(batch);
        received
    }
}

/// The local endpoint as `peer` sees it: at `known`, or else where the kernel's route starts.
fn local_endpoint(
    sources: &mut HashMap<IpAddr, IpAddr>,
    local: Peer,
    known: Option<IpAddr>,
    peer: Peer,
) -> Peer {
    if !local.ip().is_unspecified() {
        return local;
    }
    if let Some(known) = known {
        return SocketAddr::from((known, local.port()));
    }
    let source = sources.entry(peer.ip()).or_insert_with(|| source_of_route(peer).unwrap_or(local.ip()));
    SocketAddr::from((*source, local.port()))
}

/// The address from which the kernel's route to `peer` starts. Connecting a UDP socket sends nothing.
fn source_of_route(peer: Peer) -> Option<IpAddr> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

impl<T: PacketIo> PacketIo for CapturedIo<T> {
    fn recv_runs(&mut self, f: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
        self.receive(f)
    }

    fn reads_ecn(&self) -> bool {
        self.inner.reads_ecn()
    }

    fn answer_from(&mut self, peer: Peer, local: Option<IpAddr>) -> Option<IpAddr> {
        self.inner.answer_from(peer, local)
    }

    fn answers_from(&self, peer: Peer) -> Option<IpAddr> {
        self.inner.answers_from(peer)
    }

    fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        check_segment(segment)?;
        self.inner.send_run_with(to, contents, segment, ecn)?;
        if self.capture.wants(contents.len().div_ceil(segment) as u64) {
            let time = self.epoch + self.inner.now();
            let from = local_endpoint(&mut self.sources, self.inner.local(), self.inner.answers_from(to), to);
            for payload in contents.chunks(segment) {
                self.batch.push(time, from, to, ecn, payload);
            }
            self.capture.take(&mut self.batch);
        }
        Ok(())
    }

    fn pack(&mut self, number: usize, len: usize) -> Option<&mut [u8]> {
        self.inner.pack(number, len)
    }

    fn packed_payload(&mut self, number: usize) -> Option<&mut [u8]> {
        self.inner.packed_payload(number)
    }

    fn send_packed(&mut self, to: Peer, number: usize, ecn: u8) -> io::Result<()> {
        if !self.capture.wants(1) {
            return self.inner.send_packed(to, number, ecn);
        }
        let time = self.epoch + self.inner.now();
        let from = local_endpoint(&mut self.sources, self.inner.local(), self.inner.answers_from(to), to);
        // Read now: once it is on its way that would take a copy.
        let Some(payload) = self.inner.packed_payload(number) else { return Ok(()) };
        let before = self.batch.len();
        self.batch.push(time, from, to, ecn, payload);
        self.inner.send_packed(to, number, ecn).inspect_err(|_| self.batch.undo(before))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.capture.take(&mut self.batch);
        self.inner.flush()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        self.inner.wait(timeout)
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn local(&self) -> Peer {
        self.inner.local()
    }

    fn stats(&self) -> IoStats {
        self.inner.stats()
    }
}
