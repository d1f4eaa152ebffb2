//! What the engine and its stripes hand each other: batches of packets, orders and news.

use super::report::Shared;
use crate::engine::loan::Sums;
use crossbeam_channel::{Receiver, Sender};
use std::sync::Arc;
use thc_protocol::Ecn;
use thc_protocol::wire::{Header, Kind, Nudge, Straggler};
use thc_protocol::worker::{Dealt, SessionError, Worker};
use thc_transport::PacketIo;

/// Packets that may wait to be handed on to a stripe; further ones are dropped. Packets rarely come to
/// another stripe's thread.
const PASSED_ON: usize = 1024;

/// Packets that a stripe sends, and their results.
pub(in crate::engine) struct Batch {
    pub dealt: Dealt,
    /// Their group in the call, and the place of the first in it.
    pub group: usize,
    pub place: usize,
    /// Their payloads, from `begin` on, each of `len` bytes.
    pub indices: Arc<Vec<u8>>,
    pub begin: usize,
    pub len: usize,
    /// Results as they are on the wire, each of `sum_len` bytes.
    pub sums: Sums,
    pub sum_len: usize,
    /// Packets that have been sent once, and that lack results.
    pub sent: usize,
    pub left: usize,
}

/// What a stripe is told.
pub(in crate::engine) enum Order {
    Send(Batch),
    /// A packet from the server that came to another thread.
    Packet(Ecn, Vec<u8>),
    /// The session is over: others' NUDGEs are still answered.
    Stop,
}

/// What a stripe tells.
pub(in crate::engine) enum News {
    Finished(Batch),
    Failed(SessionError),
}

/// A stripe, as the engine sees it.
pub(in crate::engine) struct Outside {
    pub orders: Sender<Order>,
    pub shared: Arc<Shared>,
    /// Whether it has orders that it may not know of.
    pub woken: bool,
}

/// All stripes of a session.
pub(in crate::engine) struct Stripes {
    pub(in crate::engine) stripes: Vec<Outside>,
    pub(in crate::engine) news: Receiver<News>,
}

impl Stripes {
    pub(in crate::engine) fn order(&mut self, stripe: usize, order: Order) {
        // A stripe that is gone has told why.
        let _ = self.stripes[stripe].orders.send(order);
        self.stripes[stripe].woken = true;
    }

    pub fn wake(&mut self, io: &mut impl PacketIo) {
        for (number, stripe) in self.stripes.iter_mut().enumerate() {
            if std::mem::take(&mut stripe.woken) {
                io.wake_handler(number);
            }
        }
    }

    /// Hands on what is a stripe's affair. Whether it is.
    pub fn pass_on(&mut self, worker: &Worker, ecn: Ecn, packet: &[u8]) -> bool {
        let Some((header, _)) = data_header(packet).filter(|(header, _)| worker.is_of_session(header)) else {
            return false;
        };
        let Some(stripe) = worker.stripe_of(header.slot) else { return false };
        if self.stripes[stripe].orders.len() < PASSED_ON {
            self.order(stripe, Order::Packet(ecn, packet.to_vec()));
        }
        true
    }
}

/// The header and payload of a packet that is about a data slot.
pub(super) fn data_header(packet: &[u8]) -> Option<(Header, &[u8])> {
    let (header, payload) = Header::parse(packet).ok()?;
    let is_data = match header.kind {
        Kind::Result | Kind::RawResult => true,
        Kind::Nudge => Nudge::parse(payload)?.kind != Kind::Norm,
        Kind::Straggler => Straggler::parse(payload)?.kind != Kind::Norm,
        _ => false,
    };
    is_data.then_some((header, payload))
}
