//! Hosts that are UDP sockets of this machine: each address that sends is a host behind a port of its own, and what the switch
//! sends to a port goes to its host.

use super::switch::Switch;
use std::io::ErrorKind;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of Ethernet, IPv4 and UDP in front of a datagram's payload.
const HEADERS: usize = 14 + 20 + 8;
/// The longest frame without one's own checksum.
const MAX_FRAME: usize = 1514;
/// The UDP port of the program's packets, fixed when it is compiled.
const THC_PORT: u16 = 9000;
/// How often the cable looks for the end.
const TICK: Duration = Duration::from_millis(50);

type Mac = [u8; 6];

/// The address of the host behind a port: locally administered.
fn mac_of(port: u16) -> Mac {
    let [high, low] = port.to_be_bytes();
    [0x02, 0, 0, 0, high, low]
}

/// A switch and its cables. The switch is there once a controller has loaded the program.
pub struct Site {
    /// The switch with its program.
    pub switch: Option<Switch>,
    socket: UdpSocket,
    own: SocketAddrV4,
    /// The aggregator's Ethernet address.
    own_mac: Mac,
    /// By port minus one: the host, and when it sent last.
    hosts: Vec<(SocketAddrV4, Instant)>,
    max_hosts: usize,
    /// The port of the controller.
    cpu_port: u16,
}

/// A site that the cable and the P4Runtime server share.
#[derive(Clone)]
pub struct Cable(Arc<Mutex<Site>>);

impl Cable {
    /// A cable at this address, for so many hosts, with a controller at `cpu_port`.
    ///
    /// # Errors
    /// If nothing can be bound there.
    pub fn bind(own: SocketAddrV4, own_mac: Mac, max_hosts: usize, cpu_port: u16) -> std::io::Result<Cable> {
        let socket = UdpSocket::bind(own)?;
        socket.set_read_timeout(Some(TICK))?;
        let hosts = Vec::new();
        Ok(Cable(Arc::new(Mutex::new(Site {
            switch: None,
            socket,
            own,
            own_mac,
            hosts,
            max_hosts,
            cpu_port,
        }))))
    }

    /// The site, while nobody else has it.
    pub fn site(&self) -> MutexGuard<'_, Site> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries what hosts send until `ends` says so; `to_controller` gets the frames for the controller.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn run(&self, ends: impl Fn() -> bool, to_controller: impl Fn(Vec<u8>)) -> std::io::Result<()> {
        let socket = self.site().socket.try_clone()?;
        let mut datagram = [0; MAX_FRAME];
        while !ends() {
            let (length, from) = match socket.recv_from(&mut datagram) {
                Ok(received) => received,
                // An address from which nobody listens any more, and the tick.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::ConnectionRefused
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            let SocketAddr::V4(from) = from else { continue };
            self.site().take_from_host(from, &datagram[..length], &to_controller);
        }
        Ok(())
    }
}

impl Site {
    /// The Ethernet addresses of the hosts that may come, and their ports.
    #[must_use]
    pub fn stations(max_hosts: usize) -> Vec<(Mac, u16)> {
        (1..=max_hosts as u16).map(|port| (mac_of(port), port)).collect()
    }

    fn take_from_host(&mut self, from: SocketAddrV4, payload: &[u8], to_controller: &impl Fn(Vec<u8>)) {
        let port = self.port_of(from);
        let own = SocketAddrV4::new(*self.own.ip(), THC_PORT);
        let frame = frame((mac_of(port), from), (self.own_mac, own), payload);
        self.enter(port, &frame, to_controller);
    }

    /// The port of a host. A new one takes the port of the host that has been silent for longest when no port is free.
    fn port_of(&mut self, host: SocketAddrV4) -> u16 {
        let known = self.hosts.iter().position(|(known, _)| *known == host);
        let silent = || (0..self.hosts.len()).min_by_key(|&place| self.hosts[place].1);
        let free = (self.hosts.len() < self.max_hosts).then_some(self.hosts.len());
        let place = known.or(free).or_else(silent).unwrap_or(0);
        let entry = (host, Instant::now());
        match self.hosts.get_mut(place) {
            Some(old) => *old = entry,
            None => self.hosts.push(entry),
        }
        place as u16 + 1
    }

    /// A frame of the controller's.
    pub fn from_controller(&mut self, frame: &[u8], to_controller: &impl Fn(Vec<u8>)) {
        self.enter(self.cpu_port, frame, to_controller);
    }

    fn enter(&mut self, port: u16, frame: &[u8], to_controller: &impl Fn(Vec<u8>)) {
        let Some(switch) = &mut self.switch else { return };
        switch.send(port, frame);
        switch.run();
        for (port, frames) in std::mem::take(&mut switch.out) {
            for frame in frames {
                if port == self.cpu_port {
                    to_controller(frame);
                } else if let Some((host, _)) = self.hosts.get(usize::from(port).wrapping_sub(1))
                    && frame.len() > HEADERS
                {
                    // As on any network, a datagram may get lost.
                    let _ = self.socket.send_to(&frame[HEADERS..], host);
                }
            }
        }
    }
}

/// A UDP datagram in a frame, without a UDP checksum.
fn frame(from: (Mac, SocketAddrV4), to: (Mac, SocketAddrV4), payload: &[u8]) -> Vec<u8> {
    let udp_length = (8 + payload.len()) as u16;
    let mut frame = [&to.0[..], &from.0, &[8, 0, 0x45, 0]].concat();
    frame.extend((20 + udp_length).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(from.1.ip().octets());
    frame.extend(to.1.ip().octets());
    let words = frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    for field in [from.1.port(), to.1.port(), udp_length, 0] {
        frame.extend(field.to_be_bytes());
    }
    frame.extend(payload);
    frame
}
