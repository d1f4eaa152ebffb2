//! The link to the parameter server: sends packets to the ports that [`SharePorts`] names, and keeps the first error and
//! the time spent in sending.

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use thc_protocol::wire::{Header, MAX_PACKET, Welcome};
use thc_protocol::worker::{SharePorts, Tx};
use thc_protocol::{Ecn, SlotId};
use thc_transport::RetainedTx;

/// Packets that are answered within one burst at most. The server repeats further NUDGEs.
const REPLIES: usize = 64;

/// The link and its bookkeeping.
#[derive(Debug)]
pub(super) struct Link {
    pub ps: SharePorts,
    /// The ECN bits of data packets (P46).
    pub data: Ecn,
    /// Time spent in sending.
    pub time: Duration,
    /// Packets to send once the burst being received is over.
    pub replies: Replies,
    error: Option<std::io::Error>,
}

impl Link {
    pub fn new(ps: SocketAddr, welcome: &Welcome) -> Link {
        Link {
            ps: SharePorts::new(ps, welcome),
            data: if welcome.marks { Ecn::Ect0 } else { Ecn::NotEct },
            time: Duration::ZERO,
            replies: Replies::default(),
            error: None,
        }
    }

    pub fn tx<'a, I: RetainedTx>(&'a mut self, io: &'a mut I) -> LinkTx<'a, I> {
        LinkTx { link: self, io }
    }

    /// The error of an earlier send, once.
    pub fn check(&mut self) -> Result<(), std::io::Error> {
        self.error.take().map_or(Ok(()), Err)
    }

    pub fn send_replies<I: RetainedTx>(&mut self, io: &mut I) {
        let mut replies = std::mem::take(&mut self.replies);
        let mut bytes = replies.bytes.as_slice();
        for &reply in &replies.packets {
            match reply {
                Reply::Copied { shard, len } => {
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

    fn keep_error(&mut self, result: std::io::Result<()>) {
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
    /// A copy, the next `len` of the kept bytes.
    Copied { shard: u8, len: usize },
    /// The packet that the interface keeps for a slot.
    Packed { shard: u8, slot: SlotId, flags: u8 },
}

impl Tx for Replies {
    fn send(&mut self, shard: u8, contents: &[u8], segment: usize) {
        debug_assert!(segment <= MAX_PACKET);
        for packet in contents.chunks(segment) {
            if self.packets.len() < REPLIES {
                self.packets.push(Reply::Copied { shard, len: packet.len() });
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

impl<I: RetainedTx> Tx for LinkTx<'_, I> {
    fn send(&mut self, shard: u8, contents: &[u8], segment: usize) {
        let started = Instant::now();
        let to = self.link.ps.address(shard);
        let ecn = if Header::is_of_data(contents) { self.link.data } else { Ecn::NotEct };
        let sent = self.io.send_run_with(to, contents, segment, ecn.bits());
        self.link.keep_error(sent);
        self.link.time += started.elapsed();
    }

    #[inline]
    fn pack(&mut self, slot: SlotId, len: usize) -> Option<&mut [u8]> {
        self.io.pack(usize::from(slot.0), len)
    }

    #[inline]
    fn send_packed(&mut self, shard: u8, slot: SlotId) {
        let to = self.link.ps.address(shard);
        let sent = self.io.send_packed(to, usize::from(slot.0), self.link.data.bits());
        self.link.keep_error(sent);
    }

    fn repeat_packed(&mut self, shard: u8, slot: SlotId, flags: u8) {
        if let Some(packet) = self.io.packed_payload(usize::from(slot.0)) {
            Header::set_flags(packet, flags);
            self.send_packed(shard, slot);
        }
        self.flush();
    }

    /// Packets sent one by one take few instructions each, so their time is not measured separately.
    fn flush(&mut self) {
        let started = Instant::now();
        let sent = self.io.flush();
        self.link.keep_error(sent);
        self.link.time += started.elapsed();
    }
}
