//! How many queues an interface has (`ethtool -l`).

use std::io;
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// `ETHTOOL_GCHANNELS`, and what answers it (linux/ethtool.h).
const GET_CHANNELS: u32 = 0x3c;

#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    send: u32,
    other: u32,
    combined: u32,
}

/// The present number of queues that receive and send. An interface that does not report it has one.
pub fn count(device: &str) -> io::Result<u32> {
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    // SAFETY: a structure of numbers, names and addresses, for all of which zero is a value.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    // The last byte stays zero.
    let room = request.ifr_name.len() - 1;
    if device.len() > room {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *place = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // Any socket of this network namespace.
    let socket = UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))
        .or_else(|_| UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0)))?;
    // SAFETY: the request has a name that ends in zero and the address of a structure of the command's shape, which lives.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    if answer == 0 {
        return Ok((channels.combined + channels.receive.min(channels.send).max(channels.receive)).max(1));
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => Ok(1),
        error => Err(error),
    }
}
