//! Datagrams: where they come from, and how long they can be.

use std::{
    io,
    net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs},
};

/// An endpoint: the IPv4 or IPv6 address and UDP port of a worker or a parameter server. Backends report IPv4
/// addresses as such, never mapped into IPv6: one endpoint has one address.
pub type Peer = SocketAddr;

/// Bytes of IPv4 header (without options) and UDP header before a datagram's payload.
pub const IPV4_UDP_HEADER_LEN: usize = 28;

/// Bytes of IPv6 header (without extensions) and UDP header before a datagram's payload.
pub const IPV6_UDP_HEADER_LEN: usize = 48;

/// The largest UDP payload IPv4 can carry, in bytes. IPv6 carries a little more.
pub const MAX_DATAGRAM: usize = 65_535 - IPV4_UDP_HEADER_LEN;

/// Bytes of IP and UDP headers before the payload of datagrams from or to this address.
pub const fn header_len(peer: Peer) -> usize {
    match peer {
        SocketAddr::V4(_) => IPV4_UDP_HEADER_LEN,
        SocketAddr::V6(_) => IPV6_UDP_HEADER_LEN,
    }
}

/// This endpoint, with a plain IPv4 address if it is one mapped into IPv6.
pub(crate) fn canonical(peer: Peer) -> Peer {
    match peer {
        SocketAddr::V4(_) => peer,
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => Peer::from((v4, v6.port())),
            None => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
        },
    }
}

/// Returns whether an address has a different meaning on each link, and so on each host, as `fe80::1` has.
pub const fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The endpoint of text like `10.0.0.1:9000`, `[fd00::1]:9000` or `name:9000`: an IPv4 address if the name has one, else
/// an IPv6 address.
///
/// # Errors
/// That the name is not known, or that its addresses are link-local: [`is_link_local`].
pub fn resolve(text: &str) -> io::Result<Peer> {
    let found: Vec<Peer> = text.to_socket_addrs()?.map(canonical).collect();
    let usable = || found.iter().filter(|peer| !is_link_local(peer.ip()));
    if let Some(&peer) = usable().find(|peer| peer.is_ipv4()).or_else(|| usable().next()) {
        return Ok(peer);
    }
    Err(io::Error::other(match found.is_empty() {
        true => "it has no address",
        false => "a link-local address is of one link alone; give a global or a unique local one",
    }))
}

/// The origin of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its sender.
    pub from: Peer,
    /// The address of this host to which it was sent: `None` if there is only one, or if the backend does
    /// not look.
    pub at: Option<IpAddr>,
    /// The low two bits of IPv4's TOS byte or IPv6's traffic class (ECN, RFC 3168); 0 if
    /// the backend does not read it.
    pub ecn: u8,
}

impl From<Peer> for Origin {
    /// The origin of a datagram of which only the sender is known.
    fn from(from: Peer) -> Origin {
        Origin { from, at: None, ecn: 0 }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn text_is_an_endpoint() {
        for (text, peer) in [
            ("10.0.0.1:9000", "10.0.0.1:9000"),
            ("[fd00::1]:9000", "[fd00::1]:9000"),
            ("[::ffff:10.0.0.1]:9000", "10.0.0.1:9000"),
        ] {
            assert_eq!(resolve(text).unwrap(), peer.parse().unwrap(), "{text}");
        }
        let error = resolve("[fe80::1]:9000").unwrap_err().to_string();
        assert!(error.contains("unique local"), "{error}");
        for text in ["fd00::1:9000x", "10.0.0.1", ":9000x"] {
            assert!(resolve(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mapped_address_is_an_ipv4_address() {
        let mapped: Peer = "[::ffff:192.0.2.7]:5".parse().unwrap();
        assert_eq!(canonical(mapped), "192.0.2.7:5".parse().unwrap());
        let other: Peer = "[2001:db8::1]:5".parse().unwrap();
        assert_eq!(canonical(other), other);
        assert_eq!((header_len(canonical(mapped)), header_len(other)), (28, 48));
    }
}
