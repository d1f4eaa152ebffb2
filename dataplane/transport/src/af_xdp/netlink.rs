//! What the kernel knows of interfaces, routes and neighbours (rtnetlink(7)).
//!
//! Every request is answered before the call returns; none is made per packet.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage, LinkXdp};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::MacAddr;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Whether it is Ethernet.
    pub ethernet: bool,
    /// Its hardware address.
    pub mac: MacAddr,
    /// Largest IPv4 packet.
    pub mtu: u32,
    /// Whether it is up.
    pub up: bool,
    /// The XDP program that it has, by its number.
    pub program: Option<u32>,
}

/// A connection to the kernel of this network namespace.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens one.
    pub fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // The answer is there when the question has been asked; nothing may hang here all the same.
        socket2::SockRef::from(&socket).set_read_timeout(Some(PATIENCE))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Sends one message and gathers what answers it.
    fn ask(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let several = flags & (NLM_F_DUMP | NLM_F_ACK) != 0;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (own, behind) = first(rest);
                rest = behind;
                let message = match NetlinkMessage::<RouteNetlinkMessage>::deserialize(own) {
                    Ok(message) => message,
                    // Of an interface that is none of ours.
                    Err(_) if flags & NLM_F_DUMP != 0 => continue,
                    Err(error) => return Err(io::Error::other(error)),
                };
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => {
                        answers.push(answer);
                        if !several {
                            return Ok(answers);
                        }
                    }
                    NetlinkPayload::Error(error) => match error.code {
                        Some(_) => return Err(error.to_io()),
                        None => return Ok(answers),
                    },
                    NetlinkPayload::Done(_) => return Ok(answers),
                    _ => {}
                }
            }
        }
    }

    /// All interfaces.
    pub fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        let answers = self.ask(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)?;
        let links = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(interface(link)),
            _ => None,
        });
        Ok(links.collect())
    }

    /// The IPv4 addresses of an interface, primary ones first.
    pub fn addresses(&mut self, index: u32) -> io::Result<Vec<Ipv4Addr>> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        let answers = self.ask(RouteNetlinkMessage::GetAddress(message), NLM_F_DUMP)?;
        let mut found = Vec::new();
        for answer in answers {
            let RouteNetlinkMessage::NewAddress(message) = answer else { continue };
            if message.header.index != index {
                continue;
            }
            found.extend(message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Local(IpAddr::V4(address)) => Some(*address),
                _ => None,
            }));
        }
        Ok(found)
    }

    /// The next hop on the way to an address through an interface: the host itself, or a router.
    pub fn hop(&mut self, index: u32, to: Ipv4Addr) -> io::Result<Ipv4Addr> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.destination_prefix_length = 32;
        message.attributes =
            vec![RouteAttribute::Destination(RouteAddress::Inet(to)), RouteAttribute::Oif(index)];
        let answers = self.ask(RouteNetlinkMessage::GetRoute(message), 0)?;
        let mut hop = to;
        for answer in answers {
            let RouteNetlinkMessage::NewRoute(route) = answer else { continue };
            for attribute in route.attributes {
                match attribute {
                    RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => hop = gateway,
                    RouteAttribute::Oif(other) if other != index => {
                        let cause = "the kernel's route to it leads through another interface";
                        return Err(io::Error::new(io::ErrorKind::NetworkUnreachable, cause));
                    }
                    _ => {}
                }
            }
        }
        Ok(hop)
    }

    /// The hardware address of a host on an interface's link, if the kernel knows it. If it does not, or is
    /// not sure, it finds out, and a later call returns the address.
    pub fn neighbour(&mut self, index: u32, address: Ipv4Addr) -> io::Result<Option<MacAddr>> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = index;
        message.attributes = vec![NeighbourAttribute::Destination(NeighbourAddress::Inet(address))];
        let answers = match self.ask(RouteNetlinkMessage::GetNeighbour(message.clone()), 0) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO)) => Vec::new(),
            other => other?,
        };
        let mut known = None;
        let mut sure = false;
        for answer in answers {
            let RouteNetlinkMessage::NewNeighbour(entry) = answer else { continue };
            use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
            let state = entry.header.state;
            sure = matches!(state, Reachable | Permanent | Noarp | Delay | Probe);
            if sure || state == Stale {
                known = entry.attributes.iter().find_map(|attribute| match attribute {
                    NeighbourAttribute::LinkLayerAddress(bytes) => {
                        Some(MacAddr(bytes.as_slice().try_into().ok()?))
                    }
                    _ => None,
                });
            }
        }
        if !sure {
            // As if the kernel had a packet for it, which our packets are not.
            message.header.flags = NeighbourFlags::Use;
            message.header.state = NeighbourState::None;
            self.ask(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK)?;
        }
        Ok(known)
    }
}

/// The first of several messages, and those behind it.
fn first(messages: &[u8]) -> (&[u8], &[u8]) {
    let len = messages.first_chunk().map_or(0, |len| u32::from_ne_bytes(*len) as usize);
    let own = &messages[..len.clamp(4, messages.len().max(4)).min(messages.len())];
    // Each begins at a multiple of four bytes.
    (own, messages.get(own.len().next_multiple_of(4)..).unwrap_or_default())
}

fn interface(link: LinkMessage) -> Interface {
    let mut found = Interface {
        name: String::new(),
        index: link.header.index,
        ethernet: link.header.link_layer_type == LinkLayerType::Ether,
        mac: MacAddr([0; 6]),
        mtu: 0,
        up: link.header.flags.contains(LinkFlags::Up),
        program: None,
    };
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.name = name,
            LinkAttribute::Mtu(mtu) => found.mtu = mtu,
            LinkAttribute::Address(bytes) => {
                found.mac = bytes.as_slice().try_into().map_or(found.mac, MacAddr);
            }
            LinkAttribute::Xdp(parts) => {
                found.program = parts.iter().find_map(|part| match part {
                    LinkXdp::ProgId(id) => Some(*id),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    found
}
