//! The host's address from which datagrams to a peer leave.

use std::{
    collections::HashMap,
    net::{IpAddr, UdpSocket},
};

use crate::Peer;

/// Most peers that are remembered: more than jobs have workers. Beyond that, the one that was set first is
/// forgotten.
const MOST: usize = 4096;
/// Most of the host's addresses that are remembered.
const OWN: usize = 64;

/// Addresses by peer.
#[derive(Debug, Default)]
pub(super) struct Sources {
    by_peer: HashMap<Peer, Source>,
    /// The number of addresses set so far.
    set: u64,
    /// Addresses that were found to be the host's: asking the kernel takes four system calls, and each answer to an
    /// unknown peer would ask.
    own: Vec<IpAddr>,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    address: IpAddr,
    set: u64,
}

impl Sources {
    /// The source address of datagrams to this peer, if that is not left to the route.
    #[inline]
    pub fn find(&self, peer: Peer) -> Option<IpAddr> {
        self.by_peer.get(&peer).map(|source| source.address)
    }

    /// Chooses it, unless it is not the host's. Returns the one before.
    pub fn set(&mut self, peer: Peer, address: Option<IpAddr>) -> Option<IpAddr> {
        let before = self.find(peer);
        match address {
            None => drop(self.by_peer.remove(&peer)),
            Some(address) if before != Some(address) && self.is_own(address) => {
                if before.is_none() && self.by_peer.len() >= MOST {
                    let oldest = self.by_peer.iter().min_by_key(|(_, source)| source.set);
                    if let Some((&oldest, _)) = oldest {
                        self.by_peer.remove(&oldest);
                    }
                }
                self.set += 1;
                self.by_peer.insert(peer, Source { address, set: self.set });
            }
            Some(_) => {}
        }
        before
    }

    fn is_own(&mut self, address: IpAddr) -> bool {
        if self.own.contains(&address) {
            return true;
        }
        let own = is_own(address);
        if own {
            self.own.truncate(OWN - 1);
            self.own.push(address);
        }
        own
    }
}

/// Returns whether datagrams can be sent from this address. A datagram may have been sent to a broadcast address,
/// from which none can be: the kernel binds to such an address, but refuses to connect to it. Neither call
/// sends anything.
fn is_own(address: IpAddr) -> bool {
    !address.is_unspecified()
        && !address.is_multicast()
        && UdpSocket::bind((address, 0)).is_ok_and(|socket| socket.connect((address, 9)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn peer(number: u16) -> Peer {
        Peer::from((Ipv4Addr::LOCALHOST, number))
    }

    #[test]
    fn only_addresses_of_the_host_are_taken() {
        let mut sources = Sources::default();
        let wrong =
            [[192, 0, 2, 1], [0, 0, 0, 0], [224, 0, 0, 1], [255, 255, 255, 255], [127, 255, 255, 255]];
        for address in wrong {
            sources.set(peer(1), Some(IpAddr::from(address)));
            assert_eq!(sources.find(peer(1)), None, "{address:?}");
        }
        let [a, b] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        assert_eq!(sources.set(peer(1), Some(a)), None);
        assert_eq!(sources.set(peer(1), Some(b)), Some(a));
        assert_eq!((sources.find(peer(1)), sources.find(peer(2))), (Some(b), None));
        assert_eq!(sources.own, [a, b], "both are remembered");
        assert_eq!(sources.set(peer(1), None), Some(b));
        assert_eq!(sources.find(peer(1)), None);
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut sources = Sources::default();
        for number in 1..=MOST as u16 + 2 {
            sources.set(peer(number), Some(Ipv4Addr::LOCALHOST.into()));
        }
        assert_eq!(sources.by_peer.len(), MOST);
        assert_eq!((sources.find(peer(1)), sources.find(peer(2))), (None, None));
        assert!((3..=MOST as u16 + 2).all(|number| sources.find(peer(number)).is_some()));
    }
}
