//! The way to the parameter server: addresses of its shards (P21), errors, time spent sending.

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};
use thc_protocol::wire::MAX_PACKET;
use thc_protocol::worker::Tx;
use thc_transport::PacketIo;

/// Most packets that are answered within one burst; further NUDGEs are asked for again.
const REPLIES: usize = 64;

/// The ports of a parameter server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    base: SocketAddrV4,
    shards: u8,
}

impl Ports {
    fn of(&self, shard: u8) -> SocketAddrV4 {
        SocketAddrV4::new(*self.base.ip(), self.base.port().wrapping_add(u16::from(shard)))
    }

    /// Whether a packet from there is the parameter server's.
    pub fn serves(&self, from: SocketAddrV4) -> bool {
        from.ip() == self.base.ip() && from.port().wrapping_sub(self.base.port()) < u16::from(self.shards)
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
    pub fn new(ps: SocketAddrV4, shards: u8) -> Link {
        Link {
            ps: Ports { base: ps, shards: shards.max(1) },
            time: Duration::ZERO,
            replies: Replies::default(),
            error: None,
        }
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
        for &(shard, len) in &replies.packets {
            let (packet, rest) = bytes.split_at(len);
            bytes = rest;
            self.tx(io).send(shard, packet, len);
        }
        replies.packets.clear();
        replies.bytes.clear();
        self.replies = replies;
    }
}

/// Packets kept until the interface is free to send; memory is reused.
#[derive(Debug, Default)]
pub(super) struct Replies {
    packets: Vec<(u8, usize)>,
    bytes: Vec<u8>,
}

impl Tx for Replies {
    fn send(&mut self, shard: u8, contents: &[u8], segment: usize) {
        debug_assert!(segment <= MAX_PACKET);
        for packet in contents.chunks(segment) {
            if self.packets.len() < REPLIES {
                self.packets.push((shard, packet.len()));
                self.bytes.extend_from_slice(packet);
            }
        }
    }
}

/// Sends through a link.
pub(super) struct LinkTx<'a, I> {
    link: &'a mut Link,
    io: &'a mut I,
}

impl<I: PacketIo> Tx for LinkTx<'_, I> {
    fn send(&mut self, shard: u8, contents: &[u8], segment: usize) {
        let started = Instant::now();
        let to = self.link.ps.of(shard);
        if let Err(error) = self.io.send_run(to, contents, segment) {
            self.link.error.get_or_insert(error);
        }
        self.link.time += started.elapsed();
    }
}
