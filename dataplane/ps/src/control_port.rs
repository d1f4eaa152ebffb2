//! The queue from the first shard to the control thread.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, Sender, bounded};
use thc_protocol::wire::{Form, Header, MAX_PACKET};
use thc_transport::{Peer, is_link_local};

use crate::kinds::kind_bit;
use crate::state::ServerState;

/// The longest packet of the control plane: a root's WELCOME.
const MAX_CONTROL: usize = MAX_PACKET;

/// A packet for the control plane, copied without allocating.
#[derive(Clone, Copy, Debug)]
pub struct ControlPacket {
    from: Peer,
    /// This host's address to which it was sent, if that is known.
    at: Option<IpAddr>,
    len: usize,
    bytes: [u8; MAX_CONTROL],
}

impl ControlPacket {
    /// A copy; `None` if it is longer than any control packet.
    #[must_use]
    pub fn new(from: Peer, at: Option<IpAddr>, packet: &[u8]) -> Option<ControlPacket> {
        let mut bytes = [0; MAX_CONTROL];
        bytes.get_mut(..packet.len())?.copy_from_slice(packet);
        Some(ControlPacket { from, at, len: packet.len(), bytes })
    }

    /// Its sender.
    #[must_use]
    pub fn source(&self) -> Peer {
        self.from
    }

    /// This host's address to which it was sent, if that is known.
    #[must_use]
    pub fn destination(&self) -> Option<IpAddr> {
        self.at
    }

    /// It, from the protocol's header on.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The first shard's end of the queue.
#[derive(Debug)]
pub struct ControlPort {
    sender: Sender<ControlPacket>,
    shared: Arc<ServerState>,
}

impl ControlPort {
    /// A queue with room for `room` packets.
    #[must_use]
    pub fn new(room: usize, shared: Arc<ServerState>) -> (ControlPort, Receiver<ControlPacket>) {
        let (sender, receiver) = bounded(room);
        (ControlPort { sender, shared }, receiver)
    }

    /// The packet, if it is one for the control plane (P2); all others are for the aggregator.
    #[inline]
    #[must_use]
    pub fn recognise(&self, from: Peer, at: Option<IpAddr>, packet: &[u8]) -> Option<ControlPacket> {
        // JOIN and LEAVE; looked at first because nearly no packet is one.
        let bit = kind_bit(*packet.get(1)?);
        if bit == 0 && self.shared.root == Some(from) {
            // The root's answer to a rack.
            let (header, _) = Header::parse(packet).ok()?;
            return header.kind.is_control().then(|| ControlPacket::new(from, at, packet)).flatten();
        }
        if bit == 0 || self.shared.control_kinds.load(Ordering::Relaxed) & bit == 0 {
            return None;
        }
        if is_link_local(from.ip()) {
            // No row says which link.
            return None;
        }
        let (header, payload) = Header::parse(packet).ok()?;
        // A control packet's length does not depend on the form.
        (payload.len() == header.kind.payload_len(Form::USUAL))
            .then(|| ControlPacket::new(from, at, packet))
            .flatten()
    }

    /// Hands a packet in if there is room, and returns whether there was; workers repeat JOINs.
    #[must_use]
    pub fn offer(&self, packet: ControlPacket) -> bool {
        self.sender.try_send(packet).is_ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

    const FROM: Peer = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5));

    #[test]
    fn a_full_port_refuses_instead_of_blocking() {
        let shared = Arc::new(ServerState::new(Vec::new(), 1, None));
        let (port, packets) = ControlPort::new(1, shared);
        let packet = ControlPacket::new(FROM, None, &[1, 2, 3]).unwrap();
        assert!(port.offer(packet));
        assert!(!port.offer(packet));
        assert_eq!(packets.recv().unwrap().bytes(), [1, 2, 3]);
        assert!(port.offer(packet));
    }

    #[test]
    fn only_short_packets_are_control_packets() {
        assert!(ControlPacket::new(FROM, None, &[0; MAX_CONTROL]).is_some());
        assert!(ControlPacket::new(FROM, None, &[0; MAX_CONTROL + 1]).is_none());
    }
}
