//! Sending: headers, packet buffers, send queues, and ARP to find receivers.

mod flows;
mod out;

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;

use thc_dpdk::{Batch, Mbuf, Mempool, RxQueue, SharedMbuf, TxQueue};

use super::endpoint::OpenDpdk;
use super::heads::Heads;
use super::kept::Kept;
use crate::link::arp::Arp;
use crate::link::flows::{Flow, Flows};
use crate::link::frame::{Checksums, HEADERS_LEN};
use crate::link::{FrameCounts, MacAddr};
use crate::{
    IPV4_UDP_HEADER_LEN, IoStats, Peer, TransportError, checksum::sum_of_bytes, packet_io::check_segment,
};
use out::Out;

/// Pause between questions about one host.
const ASK_PAUSE_MS: u64 = 50;
/// Offset of packed frames in a cache line, so that what follows the 62 bytes of headers (42 of the carrier
/// and 20 of THC) begins a cache line: quantized indices are written 64 bytes at a time.
const INDENT: u16 = 2;

/// The sending half of a [`DpdkIo`](super::DpdkIo).
pub struct DpdkTx {
    endpoint: Arc<OpenDpdk>,
    local: SocketAddrV4,
    out: Vec<Out>,
    /// Empty packets at hand, packets kept under numbers, and those for headers of shared payloads. They must
    /// be dropped before the pool.
    free: Batch,
    kept: Kept,
    pub(super) heads: Heads,
    pub(super) pool: Mempool,
    flows: Flows,
    /// Bytes of the largest IPv4 packet.
    mtu: usize,
    /// True if a device leaves UDP's checksums to us.
    sums: bool,
    pub(super) stats: IoStats,
    pub(super) counts: FrameCounts,
}

/// The reason why a datagram does not go out.
enum Unsent {
    /// The receiver's address on the link is not known yet.
    Unresolved,
    /// There is no way to it.
    NoRoute,
}

impl DpdkTx {
    /// `pools` are those of whole packets and of headers.
    pub(super) fn new(
        endpoint: Arc<OpenDpdk>,
        local: SocketAddrV4,
        queues: Vec<TxQueue>,
        pools: (Mempool, Mempool),
    ) -> DpdkTx {
        let checksums = endpoint.config.checksums;
        let out = queues.into_iter().zip(&endpoint.ports);
        let out: Vec<Out> = out.map(|(queue, port)| Out::new(queue, port.info(), checksums)).collect();
        DpdkTx {
            sums: out.iter().any(|out| out.checksums == Checksums::Software),
            mtu: usize::from(endpoint.config.mtu),
            out,
            kept: Kept::new(endpoint.config.keeps()),
            endpoint,
            local,
            pool: pools.0,
            heads: Heads::new(pools.1),
            free: Batch::new(),
            flows: Flows::new(),
            stats: IoStats::default(),
            counts: FrameCounts::default(),
        }
    }

    /// Sends one datagram with these ECN bits, at the latest with the next [`Self::flush`].
    ///
    /// # Errors
    /// As [`PacketIo::send_run`](crate::PacketIo::send_run).
    #[inline]
    pub fn send(&mut self, to: Peer, payload: &[u8], ecn: u8) -> io::Result<()> {
        self.check(to, payload.len())?;
        let Some(flow) = self.route(to, 1)? else { return Ok(()) };
        self.copy_to(flow, payload, ecn);
        Ok(())
    }

    /// Sends one datagram with these ECN bits to every receiver, at the latest with the next [`Self::flush`]. Its payload lies in
    /// memory once, and each receiver's packet refers to it.
    ///
    /// `failed` is called with each receiver for which [`PacketIo::send_run`](crate::PacketIo::send_run)
    /// would fail, and why; the others still get theirs.
    #[inline]
    pub fn send_to_all(
        &mut self,
        to: impl ExactSizeIterator<Item = Peer>,
        payload: &[u8],
        ecn: u8,
        failed: &mut impl FnMut(Peer, io::Error),
    ) {
        // More than any device carries, so the code below refuses it.
        let fits = payload.len() + IPV4_UDP_HEADER_LEN <= self.mtu;
        let mut shared = if fits && to.len() > 1 { self.share(payload, to.len()) } else { None };
        let sum = if shared.is_some() && self.sums { sum_of_bytes(payload) } else { 0 };
        for peer in to {
            let flow = match self.flows.ready(peer, &self.endpoint.neighbours).filter(|_| fits) {
                Some(flow) => flow,
                None => match self.check(peer, payload.len()).and_then(|()| self.route(peer, 1)) {
                    Ok(Some(flow)) => flow,
                    Ok(None) => continue,
                    Err(error) => {
                        failed(peer, error);
                        continue;
                    }
                },
            };
            let packet = shared.as_mut().and_then(|shared| self.head(flow, shared, payload.len(), sum, ecn));
            match packet {
                Some(packet) => self.push(self.flows[flow].device, packet, payload.len()),
                None => self.copy_to(flow, payload, ecn),
            }
        }
    }

    /// Hands everything to the devices.
    pub fn flush(&mut self) {
        for device in 0..self.out.len() {
            self.flush_device(device);
        }
    }

    /// A run of datagrams to one receiver, and a flush.
    pub(super) fn send_run(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        check_segment(segment)?;
        if contents.is_empty() {
            return Ok(());
        }
        self.check(to, segment.min(contents.len()))?;
        let Some(flow) = self.route(to, contents.len().div_ceil(segment))? else {
            // The question where it is.
            self.flush();
            return Ok(());
        };
        for payload in contents.chunks(segment) {
            self.copy_to(flow, payload, ecn);
        }
        self.flush_device(self.flows[flow].device);
        Ok(())
    }

    /// See [`RetainedTx::pack`](crate::RetainedTx::pack).
    #[inline]
    pub(super) fn pack(&mut self, number: usize, len: usize) -> Option<&mut [u8]> {
        if len + IPV4_UDP_HEADER_LEN > self.mtu {
            return None;
        }
        if !self.kept.reuse(number) {
            if !self.kept.has_room() {
                return None;
            }
            let mut empty = self.try_take()?;
            empty.indent(INDENT);
            self.kept.put(number, empty);
        }
        self.kept.prefetch_behind(number, HEADERS_LEN + len);
        self.kept.grow(number, HEADERS_LEN + len).map(|frame| &mut frame[HEADERS_LEN..])
    }

    /// See [`RetainedTx::packed_payload`](crate::RetainedTx::packed_payload).
    pub(super) fn packed_payload(&mut self, number: usize) -> Option<&mut [u8]> {
        self.unshare(number)?;
        self.kept.frame(number).map(|frame| &mut frame[HEADERS_LEN..])
    }

    /// See [`RetainedTx::send_packed`](crate::RetainedTx::send_packed).
    #[inline]
    pub(super) fn send_packed(&mut self, to: Peer, number: usize, ecn: u8) -> io::Result<()> {
        if self.unshare(number).is_none() {
            self.counts.no_buffer += 1;
            self.stats.send_errors += 1;
            return Ok(());
        }
        self.check(to, 0)?;
        let Some(flow) = self.route(to, 1)? else { return Ok(()) };
        let Flow { device, template, .. } = &mut self.flows[flow];
        let (device, checksums) = (*device, self.out[*device].checksums);
        let Some((headers, payload)) =
            self.kept.frame(number).and_then(|frame| frame.split_first_chunk_mut())
        else {
            return Ok(());
        };
        let sum = if checksums == Checksums::Software { sum_of_bytes(payload) } else { 0 };
        let len = payload.len();
        template.write(headers, len, sum, ecn);
        if let Some(packet) = self.kept.share(number, checksums == Checksums::Device) {
            self.push(device, packet, len);
        }
        Ok(())
    }

    /// Makes sure that nothing else refers to a kept packet: while a device reads it nothing may change, so
    /// then it is copied. `None` if there is no such packet, or no buffer for the copy.
    #[inline]
    fn unshare(&mut self, number: usize) -> Option<()> {
        if self.kept.get(number)?.references() == 1 {
            return Some(());
        }
        self.copy_kept(number)
    }

    #[cold]
    fn copy_kept(&mut self, number: usize) -> Option<()> {
        let mut copy = self.try_take()?;
        let frame = self.kept.get(number)?.data();
        copy.append(frame.len())?.copy_from_slice(frame);
        self.kept.put(number, copy);
        Some(())
    }

    #[inline]
    fn check(&self, to: Peer, len: usize) -> io::Result<()> {
        if len + IPV4_UDP_HEADER_LEN > self.mtu {
            return Err(TransportError::DatagramTooLarge { to, len }.into());
        }
        if to.port() == 0 {
            let cause = io::Error::new(io::ErrorKind::InvalidInput, "port 0 is not a valid port");
            return Err(TransportError::Send { to, cause }.into());
        }
        Ok(())
    }

    /// The flow to a receiver; `None` if its hardware address is not known yet, so that `datagrams` are lost.
    fn route(&mut self, to: Peer, datagrams: usize) -> io::Result<Option<usize>> {
        match self.flow(to) {
            Ok(flow) => Ok(Some(flow)),
            Err(Unsent::Unresolved) => {
                self.counts.unresolved += datagrams as u64;
                self.stats.send_errors += datagrams as u64;
                Ok(None)
            }
            Err(Unsent::NoRoute) => {
                let text = match to {
                    Peer::V4(_) => {
                        "it lies outside the own network and there is no gateway: give one, or a shorter prefix"
                    }
                    Peer::V6(_) => {
                        "DPDK devices speak IPv4 here: give its IPv4 address, or take io = \"udp\""
                    }
                };
                let cause = io::Error::new(io::ErrorKind::NetworkUnreachable, text);
                Err(TransportError::Send { to, cause }.into())
            }
        }
    }

    /// Asks the hosts on a device's link who has an address.
    pub(super) fn ask(&mut self, device: usize, whom: std::net::Ipv4Addr) {
        let sender = (self.out[device].mac, *self.local.ip());
        self.counts.arp_asked += 1;
        self.raw(device, &Arp { asks: true, sender, target: (MacAddr([0; 6]), whom) }.emit());
    }

    /// Answers a question about our own address.
    pub(super) fn answer(&mut self, device: usize, whom: (MacAddr, std::net::Ipv4Addr)) {
        let sender = (self.out[device].mac, *self.local.ip());
        self.counts.arp_answered += 1;
        self.raw(device, &Arp { asks: false, sender, target: whom }.emit());
    }

    /// Tries to reach the peer of a device that has lost it; `input` is its receiving half.
    pub(super) fn reconnect(&mut self, device: usize, input: &mut RxQueue) {
        self.endpoint.ports[device].reconnect(input, &mut self.out[device].queue);
    }

    /// Sends a frame as it is, with the next flush.
    pub(super) fn raw(&mut self, device: usize, frame: &[u8]) {
        let Some(mut packet) = self.take() else { return };
        if let Some(room) = packet.append(frame.len()) {
            room.copy_from_slice(frame);
            self.enqueue(device, packet);
        }
    }

    /// An empty packet for a datagram that is lost if there is none.
    #[inline]
    fn take(&mut self) -> Option<Mbuf> {
        let packet = self.try_take();
        if packet.is_none() {
            self.counts.no_buffer += 1;
            self.stats.send_errors += 1;
        }
        packet
    }

    /// An empty packet.
    #[inline]
    fn try_take(&mut self) -> Option<Mbuf> {
        if self.free.is_empty() && !self.pool.fill(&mut self.free) {
            // Packets that wait to be sent are taken, too.
            self.flush();
            self.pool.fill(&mut self.free);
        }
        self.free.pop_ahead()
    }

    /// Gives back the packets at hand, for counting.
    #[cfg(test)]
    pub(super) fn forget_free(&mut self) {
        self.flush();
        self.free.clear();
        self.heads.forget_free();
        self.kept = Kept::new(0);
    }

    /// A packet to one of the receivers of a payload of `len` bytes; `None` if that needs a copy.
    #[inline(always)]
    fn head(&mut self, flow: usize, shared: &mut SharedMbuf, len: usize, sum: u64, ecn: u8) -> Option<Mbuf> {
        if !self.out[self.flows[flow].device].multi_segment {
            return None;
        }
        let mut head = self.heads.take()?;
        let template = &mut self.flows[flow].template;
        template.write(head.append(HEADERS_LEN)?.first_chunk_mut()?, len, sum, ecn);
        if template.offloads() {
            head.offload_checksums();
        }
        shared.append_to(head).ok()
    }

    /// A packet of its own for one receiver.
    #[inline]
    fn copy_to(&mut self, flow: usize, payload: &[u8], ecn: u8) {
        let Some(mut packet) = self.take() else { return };
        let Flow { device, template, .. } = &mut self.flows[flow];
        let (device, checksums) = (*device, self.out[*device].checksums);
        let sum = if checksums == Checksums::Software { sum_of_bytes(payload) } else { 0 };
        // Packets have room for the MTU, which was checked.
        let frame = packet.append(HEADERS_LEN + payload.len());
        let Some((headers, data)) = frame.and_then(|frame| frame.split_first_chunk_mut()) else { return };
        template.write(headers, payload.len(), sum, ecn);
        data.copy_from_slice(payload);
        if checksums == Checksums::Device {
            packet.offload_checksums();
        }
        self.push(device, packet, payload.len());
    }

    /// The payload for so many receivers.
    #[inline]
    fn share(&mut self, payload: &[u8], receivers: usize) -> Option<SharedMbuf> {
        let mut packet = self.take()?;
        packet.append(payload.len())?.copy_from_slice(payload);
        let mut shared = SharedMbuf::new(packet)?;
        shared.add_references(u16::try_from(receivers).ok()?);
        Some(shared)
    }

    #[inline]
    fn push(&mut self, device: usize, packet: Mbuf, payload: usize) {
        self.stats.packets_out += 1;
        self.stats.bytes_out += (payload + IPV4_UDP_HEADER_LEN) as u64;
        self.enqueue(device, packet);
    }

    #[inline]
    fn enqueue(&mut self, device: usize, packet: Mbuf) {
        if let Err(packet) = self.out[device].batch.push(packet) {
            self.flush_device(device);
            // There is room now; a packet that found none would be freed.
            let _ = self.out[device].batch.push(packet);
        }
    }

    /// Afterwards the device's batch is empty.
    fn flush_device(&mut self, device: usize) {
        if self.out[device].batch.is_empty() {
            return;
        }
        self.stats.send_calls += 1;
        let lost = self.out[device].flush();
        self.counts.ring_full += lost;
        self.stats.send_errors += lost;
        // Some may have been ARP, so these are no more than close.
        self.stats.packets_out = self.stats.packets_out.saturating_sub(lost);
    }
}
