//! The way to the parameter server: addresses of its shards (P21), errors, time spent sending.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use thc_protocol::aggregator::Shard;
use thc_protocol::wire::{Header, MAX_PACKET, Welcome};
use thc_protocol::worker::Tx;
use thc_protocol::{Ecn, SlotId};
use thc_transport::PacketIo;

/// Most packets that are answered within one burst; further NUDGEs are asked for again.
const REPLIES: usize = 64;

/// A share that is silent for so long, even to packets that it must answer, loses its slots to the next one.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time after which a share that has lost its slots is asked whether it is back.
const ASK_AFTER: Duration = Duration::from_secs(2);

/// One of the servers that the slots are dealt to.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// When anything came from there last.
    heard: Duration,
    /// The share to which packets for its slots are sent: itself, or a later one that has taken them over,
    server: usize,
    /// and since when.
    since: Duration,
    /// When it is to be asked whether it is back.
    ask: Option<Duration>,
}

/// The ports of a parameter server, of all its shares together, and which share serves which slots (P21).
#[derive(Clone, Debug)]
pub(super) struct Ports {
    /// Share by share.
    all: Vec<SocketAddr>,
    /// The place of each among those.
    places: HashMap<SocketAddr, usize>,
    shares: Vec<Share>,
    /// Ports of each, and how many ports have slots at home: not those of spares.
    shards: usize,
    homes: usize,
    /// Who was heard last: packets come in runs.
    last: usize,
    /// How often the server of a share has changed.
    changes: u32,
}

impl Ports {
    /// The ports of a server whose first share is at `ps`.
    pub fn new(ps: SocketAddr, welcome: &Welcome) -> Ports {
        let all = welcome.shares.ports(ps, welcome.shards);
        let share = |server| Share { heard: Duration::ZERO, server, since: Duration::ZERO, ask: None };
        let shares: Vec<_> = (0..usize::from(welcome.shares.servers())).map(share).collect();
        Ports {
            shards: all.len() / shares.len(),
            homes: usize::from(welcome.all_shards()),
            // Of an address that stands twice, the first place.
            places: all.iter().enumerate().rev().map(|(place, &at)| (at, place)).collect(),
            all,
            shares,
            last: 0,
            changes: 0,
        }
    }

    /// All of them, share by share.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.all
    }

    /// Where packets of a shard go.
    pub fn address(&self, shard: u8) -> SocketAddr {
        let shard = usize::from(shard) % self.all.len();
        self.all[self.shares[shard / self.shards].server * self.shards + shard % self.shards]
    }

    /// Where a share has its control plane.
    pub fn base(&self, share: usize) -> SocketAddr {
        self.all[share * self.shards]
    }

    /// The port from which a packet with this source comes, if it is the parameter server's.
    pub fn find(&mut self, from: SocketAddr) -> Option<usize> {
        if self.all[self.last] != from {
            self.last = *self.places.get(&from)?;
        }
        Some(self.last)
    }

    /// The share that has a port, and whether control packets come from there.
    pub fn share(&self, port: usize) -> (usize, bool) {
        (port / self.shards, port.is_multiple_of(self.shards))
    }

    /// The share that serves a shard now; `None` of one server.
    pub fn server(&self, shard: usize) -> Option<usize> {
        (self.shares.len() > 1).then(|| self.shares[shard / self.shards % self.shares.len()].server)
    }

    /// Whether a shard's slots are at this share now.
    pub fn is_served_by(&self, shard: u8, share: usize) -> bool {
        self.shares[usize::from(shard) / self.shards % self.shares.len()].server == share
    }

    /// How many shares there are.
    pub fn shares(&self) -> usize {
        self.shares.len()
    }

    /// How often it has changed where slots are.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// Something has come from a share.
    pub fn note_heard(&mut self, now: Duration, share: usize) {
        let heard = &mut self.shares[share].heard;
        *heard = now.max(*heard);
    }

    /// Nothing answers for a shard: if the share that serves it has been silent for long enough, the next one
    /// serves it from now on (P21).
    pub fn take_over(&mut self, now: Duration, shard: u8, waited: Duration) {
        let home = usize::from(shard) / self.shards % self.shares.len();
        let Share { server, since, .. } = self.shares[home];
        let silent = now.saturating_sub(self.shares[server].heard.max(since)).min(waited);
        if self.shares.len() > 1 && silent >= PATIENCE {
            self.serve(now, home, (server + 1) % self.shares.len());
        }
    }

    /// A share has reported that a worker waits there for a slot, so that worker was not answered elsewhere
    /// (P21).
    pub fn follow(&mut self, now: Duration, slot: SlotId, share: usize) {
        let home = usize::from(Shard::index_of(slot, self.homes as u8)) / self.shards;
        if self.shares[home].server != share {
            self.serve(now, home, share);
        }
    }

    fn serve(&mut self, now: Duration, home: usize, by: usize) {
        let (home_at, by_at) = (self.base(home), self.base(by));
        self.changes += 1;
        if by == home {
            tracing::info!("share {home} at {home_at} serves its slots again");
        } else {
            tracing::warn!(
                "share {home} at {home_at} does not answer: share {by} at {by_at} serves its slots"
            );
        }
        let ask = (by != home).then_some(now + ASK_AFTER);
        self.shares[home] = Share { server: by, since: now, ask, ..self.shares[home] };
    }

    /// A share has welcomed this worker: it is back.
    pub fn note_welcome(&mut self, now: Duration, share: usize) {
        if self.shares[share].server != share {
            self.serve(now, share, share);
        }
    }

    /// A share that has lost its slots and is to be asked now whether it is back. It is asked until it
    /// answers.
    pub fn due_for_asking(&mut self, now: Duration) -> Option<usize> {
        let share = self.shares.iter().position(|share| share.ask.is_some_and(|at| at <= now))?;
        self.shares[share].ask = None;
        Some(share)
    }
}

/// The link and its bookkeeping.
#[derive(Debug)]
pub(super) struct Link {
    pub ps: Ports,
    /// What data packets leave with (P46).
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
            ps: Ports::new(ps, welcome),
            data: if welcome.marks { Ecn::Ect0 } else { Ecn::NotEct },
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
        let to = self.link.ps.address(shard);
        let ecn = if Header::is_of_data(contents) { self.link.data } else { Ecn::NotEct };
        let sent = self.io.send_run_with(to, contents, segment, ecn.bits());
        self.link.note(sent);
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
        self.link.note(sent);
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
        self.link.note(sent);
        self.link.time += started.elapsed();
    }
}
