//! One endpoint on DPDK devices: one queue of each device, for one thread at a time.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use thc_dpdk::{Batch, Mbuf, Mempool, RxQueue, TxQueue};

use super::endpoint::{OpenDpdk, device_info, ring_of};
use super::sender::DpdkTx;
use super::{Answers, DeviceInfo, Idle};
use crate::link::arp::{Arp, answer_echo};
use crate::link::frame::{self, Foreign, HEADERS_LEN, Local};
use crate::link::neighbours::Reach;
use crate::link::{FrameCounts, MacAddr};
use crate::{IPV4_UDP_HEADER_LEN, IoStats, Origin, PacketIo, Peer, RetainedTx, Run};

/// The time between two looks at links and neighbours.
const TICK: Duration = Duration::from_millis(100);
/// Ticks between ARP requests to known neighbours, which may have a new address.
const REFRESH: u64 = 50;
/// Ticks after which a link that is down is worth a warning.
const NO_LINK: u64 = 30;
/// Ticks between tries to reach a peer that has gone.
const RECONNECT: u64 = 5;
/// The time for which an endpoint polls before it naps.
const SPIN: Duration = Duration::from_micros(50);
const FIRST_NAP: Duration = Duration::from_micros(10);
/// The number of packets ahead of which DPDK's records and the packets' bytes are prefetched.
const RECORDS_AHEAD: usize = 8;
const DATA_AHEAD: usize = 3;
/// The number of packets ahead of which the memory that payloads need is prefetched, once their bytes are there.
const PAYLOADS_AHEAD: usize = 2;

/// The parts of an endpoint.
pub(super) struct QueueParts {
    pub endpoint: Arc<OpenDpdk>,
    pub local: SocketAddrV4,
    pub queue: u16,
    /// The pools of whole packets and of headers.
    pub pools: (Mempool, Mempool),
    pub queues: Vec<(RxQueue, TxQueue)>,
}

/// One device's receive queue.
struct In {
    queue: RxQueue,
    local: Local,
    batch: Batch,
    link: bool,
    /// Ticks without a link.
    down: u64,
}

/// Packet I/O over one queue of each device. It can move to another thread.
///
/// Datagrams are delivered where the device has put them, without a copy. ARP and echo requests are handled
/// while packets are received: an endpoint that is not polled is silent.
pub struct DpdkIo {
    endpoint: Arc<OpenDpdk>,
    local: SocketAddrV4,
    /// The first queue looks after links and neighbours.
    first: bool,
    inputs: Vec<In>,
    tx: DpdkTx,
    /// Memory in which packets of several segments are put together.
    scratch: Vec<u8>,
    ticks: u64,
    /// The tick at which neighbours are asked again.
    refresh: u64,
    stats: IoStats,
}

impl DpdkIo {
    pub(super) fn new(parts: QueueParts) -> DpdkIo {
        let QueueParts { endpoint, local, queue, pools, queues } = parts;
        let (receive, send): (Vec<RxQueue>, Vec<TxQueue>) = queues.into_iter().unzip();
        let inputs = receive.into_iter().zip(&endpoint.ports).map(|(queue, port)| In {
            queue,
            local: Local { mac: MacAddr(port.info().mac), peer: local, checksums: endpoint.config.checksums },
            batch: Batch::new(),
            link: false,
            down: 0,
        });
        DpdkIo {
            inputs: inputs.collect(),
            tx: DpdkTx::new(Arc::clone(&endpoint), local, send, pools),
            local,
            first: queue == 0,
            scratch: vec![0; 1 << 16],
            ticks: 0,
            refresh: REFRESH,
            stats: IoStats::default(),
            endpoint,
        }
    }

    /// Returns how many datagrams the receive rings hold, all devices together.
    pub fn recv_capacity(&self) -> usize {
        let rings = self.endpoint.config.devices.iter().zip(&self.endpoint.ports);
        rings.map(|(device, port)| ring_of(device, port.info().rx_descriptors)).sum()
    }

    /// Frames that the devices dropped because the receive rings were full, as far as they report them. The
    /// first queue's endpoint counts for all.
    pub fn recv_overflows(&self) -> u64 {
        if !self.first {
            return 0;
        }
        let dropped = self.endpoint.ports.iter().map(|port| {
            let stats = port.stats();
            stats.missed + stats.no_buffer
        });
        dropped.sum()
    }

    /// Returns the devices, with the state of their links at this moment.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        self.endpoint.ports.iter().map(device_info).collect()
    }

    /// Returns the counters of frames that were not datagrams for this endpoint, and of datagrams that were not sent.
    pub fn frame_counts(&self) -> FrameCounts {
        self.tx.counts
    }

    /// Receives one burst as [`PacketIo::recv_burst`] does, and has each datagram answered at once; answers
    /// are sent when the burst is over. Returns how many datagrams were handed to `handler`.
    pub fn answer_burst(&mut self, handler: &mut impl Answers) -> usize {
        let (mut datagrams, mut bytes) = (0, 0);
        for device in 0..self.inputs.len() {
            let Self { inputs, tx, scratch, endpoint, .. } = self;
            let input = &mut inputs[device];
            input.queue.burst(&mut input.batch);
            let packets = input.batch.packets();
            packets.iter().take(RECORDS_AHEAD).for_each(Mbuf::prefetch_record);
            packets.iter().take(DATA_AHEAD).for_each(|packet| packet.prefetch_many(packet.data().len()));
            let local = &input.local;
            input.batch.sift(|packet, behind| {
                if let Some(later) = behind.get(RECORDS_AHEAD - 1) {
                    later.prefetch_record();
                }
                if let Some(later) = behind.get(DATA_AHEAD - 1) {
                    later.prefetch_many(later.data().len());
                }
                if let Some(payload) =
                    behind.get(PAYLOADS_AHEAD - 1).and_then(|p| p.data().get(HEADERS_LEN..))
                {
                    handler.prefetch(payload);
                }
                let whole = if packet.segments() == 1 {
                    packet.data()
                } else {
                    tx.counts.joined += 1;
                    packet.contiguous(scratch).unwrap_or(&[])
                };
                match frame::parse(whole, local, packet.checksums_good()) {
                    Ok((origin, payload)) => {
                        datagrams += 1;
                        bytes += payload.len() + IPV4_UDP_HEADER_LEN;
                        handler.answer(origin, payload, tx);
                    }
                    Err(other) => handle(endpoint, tx, device, whole, other),
                }
                tx.heads.recycle(packet)
            });
            input.batch.clear();
        }
        self.stats.packets_in += datagrams as u64;
        self.stats.bytes_in += bytes as u64;
        self.stats.recv_bursts += u64::from(datagrams > 0);
        self.tx.flush();
        self.tick();
        datagrams
    }

    /// Returns whether packets have come. They wait in the batches.
    fn poll(&mut self) -> bool {
        let mut any = false;
        for input in &mut self.inputs {
            input.queue.burst(&mut input.batch);
            any |= !input.batch.is_empty();
        }
        any
    }

    #[inline]
    fn tick(&mut self) {
        if self.first && self.endpoint.start.elapsed() >= TICK * self.ticks as u32 {
            self.look_after();
        }
    }

    /// Announces this endpoint when a link comes up, and asks for its neighbours again.
    #[cold]
    fn look_after(&mut self) {
        for device in 0..self.inputs.len() {
            let port = &self.endpoint.ports[device];
            let (link, _) = port.link();
            let input = &mut self.inputs[device];
            let before = std::mem::replace(&mut input.link, link);
            if link {
                input.down = 0;
            } else {
                input.down += 1;
            }
            if link && !before {
                // A question about oneself tells everybody.
                self.tx.ask(device, *self.local.ip());
            } else if input.down == NO_LINK {
                tracing::warn!(
                    "device {} has no link: check the cable, the other end, or that the peer of a memif runs",
                    port.info().name
                );
            } else if input.down % RECONNECT == RECONNECT - 1 {
                self.tx.reconnect(device, &mut input.queue);
            }
        }
        if self.ticks >= self.refresh {
            self.refresh = self.ticks + REFRESH;
            let endpoint = Arc::clone(&self.endpoint);
            for (address, device) in endpoint.neighbours.in_use() {
                self.tx.ask(device, address);
            }
        }
        self.tx.flush();
        let elapsed = self.endpoint.start.elapsed().as_millis() / TICK.as_millis();
        // Past 2^32 ticks, which is 13 years, it comes with every burst.
        self.ticks = (elapsed as u64 + 1).min(u64::from(u32::MAX));
    }
}

/// A frame that is no datagram for us.
#[cold]
fn handle(endpoint: &OpenDpdk, tx: &mut DpdkTx, device: usize, frame: &[u8], other: Foreign) {
    tx.counts.count(other);
    match other {
        Foreign::Arp => match Arp::parse(frame) {
            Some(arp) => handle_arp(endpoint, tx, device, &arp),
            None => tx.counts.arp_seen += 1,
        },
        Foreign::Echo => {
            tx.counts.echo_answered += 1;
            let mut answer = frame.to_vec();
            answer_echo(&mut answer);
            tx.raw(device, &answer);
        }
        _ => {}
    }
}

fn handle_arp(endpoint: &OpenDpdk, tx: &mut DpdkTx, device: usize, arp: &Arp) {
    let ours = endpoint.config.address;
    let (mac, address) = arp.sender;
    if address == ours {
        if mac.0 != endpoint.ports[device].info().mac && !mac.is_multicast() {
            tracing::warn!("{mac} uses our address {ours} too: give every endpoint an address of its own");
        }
        return;
    }
    let for_us = arp.target.1 == ours;
    if !mac.is_multicast() && endpoint.config.on_link(address) {
        endpoint.neighbours.learn(address, Reach { mac, device }, for_us);
    }
    if arp.asks && for_us {
        tx.answer(device, arp.sender);
    } else {
        tx.counts.arp_seen += 1;
    }
}

impl PacketIo for DpdkIo {
    fn recv_runs(&mut self, f: &mut impl FnMut(Run<'_>)) -> io::Result<usize> {
        let mut take = |origin: Origin, payload: &[u8], _: &mut DpdkTx| f(Run::single(origin, payload));
        Ok(self.answer_burst(&mut take))
    }

    fn send_run_with(&mut self, to: Peer, contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        self.tx.send_run(to, contents, segment, ecn)
    }

    fn send_run_to_all(&mut self, to: &[Peer], contents: &[u8], segment: usize, ecn: u8) -> io::Result<()> {
        crate::packet_io::check_segment(segment)?;
        let mut result = Ok(());
        for payload in contents.chunks(segment) {
            self.tx.send_to_all(to.iter().copied(), payload, ecn, &mut |_, error| result = Err(error));
        }
        self.tx.flush();
        result
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let start = self.now();
        let mut nap = FIRST_NAP;
        loop {
            if self.poll() {
                return Ok(true);
            }
            let waited = self.now() - start;
            if waited >= timeout {
                return Ok(false);
            }
            self.tick();
            match self.endpoint.config.idle {
                Idle::BackOff(longest) if waited >= SPIN.min(longest) => {
                    nap = nap.min(longest);
                    std::thread::sleep(nap.min(timeout - waited));
                    nap *= 2;
                }
                Idle::BackOff(_) | Idle::BusyPoll => std::hint::spin_loop(),
            }
        }
    }

    fn now(&self) -> Duration {
        self.endpoint.start.elapsed()
    }

    fn local(&self) -> Peer {
        self.local.into()
    }

    fn stats(&self) -> IoStats {
        let sent = self.tx.stats;
        IoStats {
            packets_out: sent.packets_out,
            bytes_out: sent.bytes_out,
            send_errors: sent.send_errors,
            send_calls: sent.send_calls,
            ..self.stats
        }
    }
}

impl RetainedTx for DpdkIo {
    #[inline]
    fn pack(&mut self, number: usize, len: usize) -> Option<&mut [u8]> {
        self.tx.pack(number, len)
    }

    fn packed_payload(&mut self, number: usize) -> Option<&mut [u8]> {
        self.tx.packed_payload(number)
    }

    #[inline]
    fn send_packed(&mut self, to: Peer, number: usize, ecn: u8) -> io::Result<()> {
        self.tx.send_packed(to, number, ecn)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tx.flush();
        Ok(())
    }
}

#[cfg(test)]
#[path = "io_tests.rs"]
mod tests;
