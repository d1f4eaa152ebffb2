//! One endpoint on an interface: one or several of its queues, for one thread at a time.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use super::XdpConfig;
use super::queue::Queue;
use super::ring_page::Sockets;
use super::shared::Shared;
use crate::checksum::sum_of_bytes;
use crate::link::FrameCounts;
use crate::link::flows::{Flow, Flows, Found};
use crate::link::frame::{self, Checksums, HEADERS_LEN, Local, Template};
use crate::link::neighbours::{Neighbours, Reach};
use crate::packet_io::check_segment;
use crate::{IPV4_UDP_HEADER_LEN, IoStats, Origin, PacketIo, Peer, TransportError};

/// How often neighbours, and datagrams that bypass the program, are checked.
const TICK: Duration = Duration::from_millis(100);
/// Ticks between requests about known neighbours, which may have a new address.
const REFRESH: u64 = 50;
/// Pause between questions about one host.
const ASK_PAUSE_MS: u64 = 5;

/// Packet I/O over AF_XDP sockets on one or several queues of an interface. It can move to another thread.
///
/// Frames lie in memory that the process shares with the kernel. The kernel gets whatever is not for the
/// endpoint's port: it answers ARP and pings, and knows the neighbours.
pub struct XdpIo {
    shared: Arc<Shared>,
    local: Local,
    /// The first endpoint looks after neighbours.
    first: bool,
    queues: Vec<Queue>,
    sockets: Sockets,
    /// Has the port at the kernel, and what passes the program by.
    port: UdpSocket,
    flows: Flows,
    counts: FrameCounts,
    stats: IoStats,
    ticks: u64,
    /// The tick at which neighbours are asked about again.
    refresh: u64,
    /// What was warned of.
    told: bool,
}

/// Why a datagram does not go out.
enum Unsent {
    /// Nobody knows yet where the receiver is.
    Unresolved,
    /// There is no way to it.
    NoWay(io::Error),
}

impl XdpIo {
    pub(super) fn new(
        shared: Arc<Shared>,
        at: SocketAddrV4,
        first: bool,
        port: UdpSocket,
        queues: Vec<Queue>,
    ) -> XdpIo {
        // What came before the program was there.
        while port.recv_from(&mut [0]).is_ok() {}
        XdpIo {
            local: Local { mac: shared.mac(), peer: at, checksums: shared.config.checksums },
            first,
            sockets: Sockets::new(queues.iter().map(AsFd::as_fd)),
            queues,
            port,
            flows: Flows::new(),
            counts: FrameCounts::default(),
            stats: IoStats::default(),
            ticks: 0,
            refresh: REFRESH,
            told: false,
            shared,
        }
    }

    /// What it was opened with.
    #[must_use]
    pub fn config(&self) -> &XdpConfig {
        &self.shared.config
    }

    /// How many datagrams its receive rings hold.
    #[must_use]
    pub fn recv_capacity(&self) -> usize {
        self.queues.len() * self.shared.config.descriptors as usize
    }

    /// Frames that the kernel dropped because the rings had no room for them.
    #[must_use]
    pub fn recv_overflows(&self) -> u64 {
        self.queues.iter().map(Queue::overflows).sum()
    }

    /// What became of frames that were not datagrams for this endpoint, and of datagrams that were not sent.
    #[must_use]
    pub fn frame_counts(&self) -> FrameCounts {
        self.counts
    }

    #[inline]
    fn tick(&mut self) {
        if self.shared.start.elapsed() >= TICK * self.ticks as u32 {
            self.look_after();
        }
    }

    #[cold]
    fn look_after(&mut self) {
        let shared = Arc::clone(&self.shared);
        let elapsed = shared.start.elapsed().as_millis() / TICK.as_millis();
        // Past 2^32 ticks, which is 13 years, it comes with every burst.
        self.ticks = (elapsed as u64 + 1).min(u64::from(u32::MAX));
        self.look_for_strays();
        if self.first && self.ticks >= self.refresh {
            self.refresh = self.ticks + REFRESH;
            let mut kernel = shared.kernel();
            for (address, _) in shared.neighbours.in_use() {
                if let Ok(Some(mac)) = kernel.neighbour(shared.interface.index, address) {
                    shared.neighbours.learn(address, Reach { mac, device: 0 }, false);
                }
            }
        }
    }

    /// Warns of datagrams that arrive where nobody takes them, which would otherwise be lost silently.
    fn look_for_strays(&mut self) {
        let mut strays = 0;
        // Not whole, only to make room.
        while strays < 64 && self.port.recv_from(&mut [0]).is_ok() {
            strays += 1;
        }
        let interface = &self.shared.interface.name;
        if !self.told && strays > 0 {
            let (used, all) = (self.queues.len(), self.shared.queues);
            tracing::warn!(
                "datagrams for {} reach the kernel: fragments, or they come to another of {interface}'s {all} queues, {used} of \
                 which are used (--xdp-queues)",
                self.local.peer
            );
            self.told = true;
        }
        if !self.told && self.counts.other_port > 0 {
            tracing::warn!(
                "{interface} brings datagrams for other shards to the queue of {}: have it sort them by port \
                 (docs/xdp.md), or use --shards 1",
                self.local.peer
            );
            self.told = true;
        }
    }

    /// The flow to a receiver; `None` if its hardware address is not known yet, so that `datagrams` are lost.
    fn route(&mut self, to: Peer, datagrams: usize) -> io::Result<Option<usize>> {
        let found = match self.flows.find(to, &self.shared.neighbours) {
            Found::Ready(at) => return Ok(Some(at)),
            Found::Changed(at, word) => Ok(self.renew(at, word)),
            Found::Absent => self.new_flow(to),
        };
        match found {
            Ok(at) => Ok(Some(at)),
            Err(Unsent::Unresolved) => {
                self.counts.unresolved += datagrams as u64;
                self.stats.send_errors += datagrams as u64;
                Ok(None)
            }
            Err(Unsent::NoWay(cause)) => Err(TransportError::Send { to, cause }.into()),
        }
    }

    #[cold]
    fn new_flow(&mut self, to: Peer) -> Result<usize, Unsent> {
        let Shared { neighbours, interface, .. } = &*self.shared;
        let Peer::V4(address) = to else {
            let cause = "AF_XDP speaks IPv4 here: give its IPv4 address, or take io = \"udp\"";
            return Err(Unsent::NoWay(io::Error::new(io::ErrorKind::Unsupported, cause)));
        };
        if address.ip() == self.local.peer.ip() || address.ip().is_loopback() {
            let cause = "it is this host, which an interface does not lead to: use --io udp at both ends";
            return Err(Unsent::NoWay(io::Error::new(io::ErrorKind::AddrNotAvailable, cause)));
        }
        let hop = self.shared.kernel().hop(interface.index, *address.ip()).map_err(Unsent::NoWay)?;
        let place = neighbours.enter(hop).ok_or(Unsent::Unresolved)?;
        let mut word = neighbours.word(place);
        if Neighbours::reach(word).is_none() {
            if !neighbours.may_ask(place, self.shared.millis(), ASK_PAUSE_MS) {
                return Err(Unsent::Unresolved);
            }
            let known = self.shared.kernel().neighbour(interface.index, hop);
            let Some(mac) = known.map_err(Unsent::NoWay)? else { return Err(Unsent::Unresolved) };
            neighbours.learn(hop, Reach { mac, device: 0 }, true);
            word = neighbours.word(place);
        }
        let reach = Neighbours::reach(word).ok_or(Unsent::Unresolved)?;
        // The receiver's end of a veth gets it on the queue that it leaves on, and there the port says whose that is.
        let device = usize::from(to.port()) % self.queues.len();
        let template = self.template(reach, address);
        Ok(self.flows.add(Flow { to, place, word, device, template }))
    }

    #[cold]
    fn renew(&mut self, at: usize, word: u64) -> usize {
        // Neighbours are never forgotten, so a changed word has an address.
        if let (Some(reach), Peer::V4(to)) = (Neighbours::reach(word), self.flows[at].to) {
            let template = self.template(reach, to);
            (self.flows[at].word, self.flows[at].template) = (word, template);
        }
        at
    }

    fn template(&self, reach: Reach, to: SocketAddrV4) -> Template {
        let checksums = if self.local.checksums { Checksums::Software } else { Checksums::None };
        Template::new((self.local.mac, reach.mac), self.local.peer, to, checksums)
    }

    fn check(&self, to: Peer, len: usize) -> io::Result<()> {
        if len + IPV4_UDP_HEADER_LEN > self.shared.mtu {
            return Err(TransportError::DatagramTooLarge { to, len }.into());
        }
        if to.port() == 0 {
            let cause = io::Error::new(io::ErrorKind::InvalidInput, "port 0 is not a valid port");
            return Err(TransportError::Send { to, cause }.into());
        }
        Ok(())
    }

    /// What of a payload goes into checksums.
    #[inline]
    fn sum(&self, payload: &[u8]) -> u64 {
        if self.local.checksums { sum_of_bytes(payload) } else { 0 }
    }

    /// Puts a datagram into the memory that its queue sends from.
    #[inline]
    fn put(&mut self, flow: usize, payload: &[u8], sum: u64, ecn: u8) {
        let Flow { device, template, .. } = &mut self.flows[flow];
        let frame = self.queues[*device].frame(HEADERS_LEN + payload.len());
        let Some((headers, data)) = frame.and_then(|frame| frame.split_first_chunk_mut()) else {
            self.counts.ring_full += 1;
            self.stats.send_errors += 1;
            return;
        };
        template.write(headers, payload.len(), sum, ecn);
        data.copy_from_slice(payload);
        self.stats.packets_out += 1;
        self.stats.bytes_out += (payload.len() + IPV4_UDP_HEADER_LEN) as u64;
    }

    /// Has the kernel send what was put.
    #[inline]
    fn send(&mut self) -> io::Result<()> {
        for queue in &mut self.queues {
            let called = queue
                .flush()
                .map_err(|cause| TransportError::Receive { local: self.local.peer.into(), cause })?;
            self.stats.send_calls += u64::from(called);
        }
        Ok(())
    }
}

impl PacketIo for XdpIo {
    fn recv_burst(&mut self, f: &mut impl FnMut(Peer, &[u8])) -> io::Result<usize> {
        self.recv_burst_at(&mut |origin, payload| f(origin.from, payload))
    }

    fn recv_burst_at(&mut self, f: &mut impl FnMut(Origin, &[u8])) -> io::Result<usize> {
        let Self { queues, local, counts, .. } = self;
        let (mut datagrams, mut bytes) = (0, 0);
        for queue in queues {
            queue.receive(&mut |received| match frame::parse(received, local, (false, false)) {
                Ok((origin, payload)) => {
                    datagrams += 1;
                    bytes += payload.len();
                    f(origin, payload);
                }
                Err(other) => counts.count(other),
            });
        }
        if datagrams > 0 {
            self.stats.count_in(self.local.peer.into(), datagrams, bytes);
            self.stats.recv_bursts += 1;
        }
        self.tick();
        Ok(datagrams)
    }

    fn reads_ecn(&self) -> bool {
        true
    }

    fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        check_segment(segment)?;
        if contents.is_empty() {
            return Ok(());
        }
        self.check(to, segment.min(contents.len()))?;
        let Some(flow) = self.route(to, contents.len().div_ceil(segment))? else { return Ok(()) };
        for payload in contents.chunks(segment) {
            let sum = self.sum(payload);
            self.put(flow, payload, sum, ecn);
        }
        self.send()
    }

    fn send_run_to_all(&mut self, to: &[Peer], contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        check_segment(segment)?;
        for payload in contents.chunks(segment) {
            let sum = self.sum(payload);
            for &peer in to {
                self.check(peer, payload.len())?;
                if let Some(flow) = self.route(peer, 1)? {
                    self.put(flow, payload, sum, ecn);
                }
            }
        }
        self.send()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        // What still waits to be sent is looked at by the kernel as it waits.
        self.send()?;
        let ready = self.sockets.wait(timeout);
        self.tick();
        ready.map_err(|cause| TransportError::Receive { local: self.local.peer.into(), cause }.into())
    }

    fn now(&self) -> Duration {
        self.shared.start.elapsed()
    }

    fn local(&self) -> Peer {
        self.local.peer.into()
    }

    fn stats(&self) -> IoStats {
        self.stats
    }
}
