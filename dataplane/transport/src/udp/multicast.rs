//! Datagrams to several receivers by one system call: all messages refer to one payload.

use std::{io, mem, net::IpAddr, ptr};

use super::socket::{Control, UdpSocket};
use crate::Peer;

/// Receivers of one call. Jobs with more workers take several calls.
const MOST: usize = 16;
/// Room for three control messages of 2, 20 and 4 bytes: how a message is cut into datagrams, its source and its ECN bits.
const CONTROL: usize = 88;

/// An address as the kernel takes it.
#[derive(Clone, Copy)]
#[repr(C)]
union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Name {
    /// The name of an endpoint, and its length.
    fn new(peer: Peer) -> (Name, usize) {
        match peer {
            Peer::V4(peer) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: peer.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: peer.ip().to_bits().to_be() },
                    sin_zero: [0; 8],
                };
                (Name { v4 }, size_of_val(&v4))
            }
            Peer::V6(peer) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: peer.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: peer.ip().octets() },
                    sin6_scope_id: peer.scope_id(),
                };
                (Name { v6 }, size_of_val(&v6))
            }
        }
    }
}

const _: () = {
    // SAFETY: these only compute.
    let needed = unsafe {
        libc::CMSG_SPACE(2) + libc::CMSG_SPACE(size_of::<libc::in6_pktinfo>() as u32) + libc::CMSG_SPACE(4)
    };
    assert!(needed as usize <= CONTROL && align_of::<Control<CONTROL>>() >= align_of::<libc::cmsghdr>());
};

impl Control<CONTROL> {
    /// Writes a control message behind the `used` bytes before it; returns how many are used then.
    fn push<T: Copy>(&mut self, used: usize, level: libc::c_int, kind: libc::c_int, data: T) -> usize {
        // SAFETY: these only compute.
        let (space, len, header) = unsafe {
            let size = size_of::<T>() as u32;
            (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size), libc::CMSG_LEN(0) as usize)
        };
        let room = &mut self.0[used..used + space];
        // SAFETY: all bytes zero are a valid cmsghdr.
        let mut head: libc::cmsghdr = unsafe { mem::zeroed() };
        head.cmsg_len = len as _;
        head.cmsg_level = level;
        head.cmsg_type = kind;
        // SAFETY: `room` has space for a header and, behind it, for a `T`: CMSG_SPACE says so, and indexing has checked
        // it. Both are plain data, and unaligned writes need no alignment.
        unsafe {
            ptr::write_unaligned(room.as_mut_ptr().cast(), head);
            ptr::write_unaligned(room[header..].as_mut_ptr().cast(), data);
        }
        used + space
    }
}

impl UdpSocket {
    /// Sends `contents`, as datagrams of `segment` bytes if they are longer than that, to each of these receivers, from the
    /// address that `source` says, with these ECN bits. Returns to how many of them, from the front, it was
    /// sent; at least one.
    ///
    /// # Errors
    /// The reason why it did not go to the first one.
    pub fn send_to_each(
        &self,
        to: &[Peer],
        source: impl Fn(Peer) -> Option<IpAddr>,
        contents: &[u8],
        segment: usize,
        ecn: u8,
    ) -> io::Result<usize> {
        let mut payload =
            libc::iovec { iov_base: contents.as_ptr().cast_mut().cast(), iov_len: contents.len() };
        let mut controls = [Control([0; CONTROL]); MOST];
        // SAFETY: all bytes zero are a valid address, and a valid mmsghdr, whose null pointers say that there is nothing.
        let (mut names, mut messages): ([Name; MOST], [libc::mmsghdr; MOST]) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        let count = to.len().min(MOST);
        let parts = names.iter_mut().zip(&mut controls).zip(&mut messages);
        for (&peer, ((name, control), message)) in to.iter().zip(parts) {
            // To one that cannot be reached this way the kernel sends nothing, and says so.
            let name_len;
            (*name, name_len) = Name::new(self.reaches(peer).unwrap_or(peer));
            let mut used = 0;
            if contents.len() > segment {
                used = control.push(used, libc::SOL_UDP, libc::UDP_SEGMENT, segment as u16);
            }
            match source(peer) {
                Some(IpAddr::V4(source)) => {
                    let spec_dst = libc::in_addr { s_addr: source.to_bits().to_be() };
                    let info = libc::in_pktinfo {
                        ipi_ifindex: 0,
                        ipi_spec_dst: spec_dst,
                        ipi_addr: libc::in_addr { s_addr: 0 },
                    };
                    used = control.push(used, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
                }
                Some(IpAddr::V6(source)) => {
                    let ipi6_addr = libc::in6_addr { s6_addr: source.octets() };
                    let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
                    used = control.push(used, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
                }
                None => {}
            }
            if ecn & 3 != 0 {
                // A socket of IPv6 sends to a peer of IPv4 with IPv4's options.
                let (level, kind) = match peer {
                    Peer::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
                    Peer::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
                };
                used = control.push(used, level, kind, libc::c_int::from(ecn & 3));
            }
            let head = &mut message.msg_hdr;
            head.msg_name = ptr::from_mut(name).cast();
            head.msg_namelen = name_len as libc::socklen_t;
            head.msg_iov = &raw mut payload;
            head.msg_iovlen = 1;
            if used > 0 {
                head.msg_control = control.0.as_mut_ptr().cast();
                head.msg_controllen = used as _;
            }
        }
        // SAFETY: the first `count` messages are filled in. What they point to, names, control messages, the one iovec and
        // the payload behind it, outlives the call; the kernel reads it and writes to nothing but `msg_len`.
        let sent =
            unsafe { libc::sendmmsg(self.as_raw_fd(), messages.as_mut_ptr(), count as libc::c_uint, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }
}
