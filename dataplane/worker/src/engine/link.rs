//! The way to the parameter server: addresses of its shards (P21), errors, time spent sending.

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};
use thc_protocol::SlotId;
use thc_protocol::wire::{Header, MAX_PACKET, Welcome};
use thc_protocol::worker::Tx;
use thc_transport::PacketIo;

/// Most packets that are answered within one burst; further NUDGEs are asked for again.
const REPLIES: usize = 64;

/// The ports of a parameter server, of all its shares together, by the number of the shard.
#[derive(Clone, Debug)]
pub(super) struct Ports {
    all: Vec<SocketAddrV4>,
    shares: usize,
    /// Who was heard last: packets come in runs.
    last: usize,
}

impl Ports {
    /// Those of a server whose first share is at `ps`.
    pub fn new(ps: SocketAddrV4, welcome: &Welcome) -> Ports {
        let all = welcome.shares.ports(ps, welcome.shards);
        Ports { all, shares: usize::from(welcome.shares.servers()), last: 0 }
    }

    /// The port of a shard.
    pub fn of(&self, shard: u8) -> SocketAddrV4 {
        self.all[usize::from(shard) % self.all.len()]
    }

    /// Where a share has its control plane.
    pub fn base(&self, share: usize) -> SocketAddrV4 {
        self.all[share % self.shares]
    }

    /// The shard that a packet from there comes from, if it is the parameter server's.
    pub fn find(&mut self, from: SocketAddrV4) -> Option<usize> {
        if self.all[self.last] != from {
            self.last = self.all.iter().position(|&at| at == from)?;
        }
        Some(self.last)
    }

    /// Which share a shard belongs to; `None` of one server.
    pub fn share(&self, shard: usize) -> Option<usize> {
        (self.shares > 1).then_some(shard % self.shares)
    }
}

/// The link and its bookkeeping.
#[derive(Debug)]
pub(super) struct Link {
    pub ps: Ports,
    /// Time spent in sending.
    pub time: Duration,
    /// Packets to send once the burst being received is over.
    pub replies: Replies,
    error: Option<std::io::Error>,
}

impl Link {
    pub fn new(ps: SocketAddrV4, welcome: &Welcome) -> Link {
        Link { ps: Ports::new(ps, welcome), time: Duration::ZERO, replies: Replies::default(), error: None }
    }

    pub fn tx<'a, I: PacketIo>(&'a mut self, io: &'a mut I) -> LinkTx<'a, I> {
        LinkTx { link: self, io }
    }

    /// The error of an earlier send, once.
    pub fn check(&mut self) -> Result<(), std::io::Error> {
        self.error.take().map_or(Ok(()), Err)
    }

    pub fn send_replies<I: PacketIo>(&mut self, io: &mut I) {
        let mut replies = std::mem::take(&mut self.replies);
        let mut bytes = replies.bytes.as_slice();
        for &reply in &replies.packets {
            match reply {
                Reply::Here { shard, len } => {
                    let (packet, rest) = bytes.split_at(len);
                    bytes = rest;
                    self.tx(io).send(shard, packet, len);
                }
                Reply::Packed { shard, slot, flags } => self.tx(io).repeat_packed(shard, slot, flags),
            }
        }
        replies.packets.clear();
        replies.bytes.clear();
        self.replies = replies;
    }

    fn note(&mut self, result: std::io::Result<()>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }
}

/// Packets kept until the interface is free to send; memory is reused.
#[derive(Debug, Default)]
pub(super) struct Replies {
    packets: Vec<Reply>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Reply {
    /// The next `len` bytes.
    Here { shard: u8, len: usize },
    /// What the interface keeps for a slot.
    Packed { shard: u8, slot: SlotId, flags: u8 },
}

impl Tx for Replies {
    fn send(&mut self, shard: u8, contents: &[u8], segment: usize) {
        debug_assert!(segment <= MAX_PACKET);
        for packet in contents.chunks(segment) {
            if self.packets.len() < REPLIES {
                self.packets.push(Reply::Here { shard, len: packet.len() });
                self.bytes.extend_from_slice(packet);
            }
        }
    }

    fn repeat_packed(&mut self, shard: u8, slot: SlotId, flags: u8) {
        if self.packets.len() < REPLIES {
            self.packets.push(Reply::Packed { shard, slot, flags });
        }
    }
}

/// Sends through a link. What the interface keeps for a slot it keeps under the slot's number.
pub(super) struct LinkTx<'a, I> {
    link: &'a mut Link,
    io: &'a mut I,
}

impl<I: PacketIo> Tx for LinkTx<'_, I> {
    fn send(&mut self, shard: u8, contents: &[u8], segment: usize) {
        let started = Instant::now();
        let to = self.link.ps.of(shard);
        let sent = self.io.send_run(to, contents, segment);
        self.link.note(sent);
        self.link.time += started.elapsed();
    }

    #[inline]
    fn pack(&mut self, slot: SlotId, len: usize) -> Option<&mut [u8]> {
        self.io.pack(usize::from(slot.0), len)
    }

    #[inline]
    fn send_packed(&mut self, shard: u8, slot: SlotId) {
        let to = self.link.ps.of(shard);
        let sent = self.io.send_packed(to, usize::from(slot.0));
        self.link.note(sent);
    }

    fn repeat_packed(&mut self, shard: u8, slot: SlotId, flags: u8) {
        if let Some(packet) = self.io.packed(usize::from(slot.0)) {
            Header::set_flags(packet, flags);
            self.send_packed(shard, slot);
        }
        self.flush();
    }

    /// Packets that were sent one by one are few instructions each: the time they take is not told apart.
    fn flush(&mut self) {
        let started = Instant::now();
        let sent = self.io.flush();
        self.link.note(sent);
        self.link.time += started.elapsed();
    }
}
