//! Sends at a rate, from ports and addresses that anybody may have.

use super::Packets;
use fastrand::Rng;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

/// Packets sent between two looks at the clock.
const BURST: u32 = 32;
const SOCKETS: u8 = 32;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Packets.
    Hostile,
    /// Random bytes, of the lengths and to the places of packets.
    Noise,
}

/// Sends.
#[derive(Debug)]
pub struct Sender {
    packets: Packets,
    rng: Rng,
    sockets: Vec<UdpSocket>,
    rate: u32,
}

impl Sender {
    /// So many packets a second.
    #[must_use]
    pub fn new(packets: Packets, rate: u32) -> Sender {
        // Other addresses of the loopback are nobody's, so anybody's.
        let sockets =
            (0..SOCKETS).map(|i| UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 1 + i % 4), 0)).unwrap());
        Sender { packets, rng: Rng::with_seed(1), sockets: sockets.collect(), rate: rate.max(1) }
    }

    /// Sends so many, and returns how many the host took.
    pub fn send(&mut self, load: Load, count: u64) -> u64 {
        let (mut packet, mut noise) = (Vec::new(), vec![0; 2048]);
        let began = Instant::now();
        let mut taken = 0;
        for number in 0..count {
            if number % u64::from(BURST) == 0 {
                let due = began + Duration::from_secs_f64(number as f64 / f64::from(self.rate));
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            // Both loads cost this process the same.
            let to = self.packets.next(&mut packet);
            self.rng.fill(&mut noise[..packet.len()]);
            let bytes = match load {
                Load::Hostile => &packet[..],
                Load::Noise => &noise[..packet.len()],
            };
            let socket = &self.sockets[self.rng.usize(..self.sockets.len())];
            // A refusal is about an earlier one to a port that nobody has.
            taken += u64::from(socket.send_to(bytes, to).is_ok());
        }
        taken
    }
}
