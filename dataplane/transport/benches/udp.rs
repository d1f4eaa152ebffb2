//! Packets per second over loopback, sending and receiving together on one core: runs that cross
//! the kernel in one piece (UDP_SEGMENT, UDP_GRO, recvmmsg) against one system call per packet
//! and direction, which is what a plain socket does. And RESULTs sent to four receivers by one system call against one
//! call for each.
//!
//! The contestants take turns in one process and the median of the turns counts, so that other
//! load on the machine meets all alike. Every turn checks the number and the bytes of what
//! arrived, outside the timed part for the bytes. Results go to `bench/transport.json` in the
//! target directory and to the terminal. Without `--bench` (as `cargo test --benches` calls it)
//! the turns are few and nothing is written.

use std::{
    error::Error,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket},
    time::{Duration, Instant},
};

use thc_bench::{is_measuring, median};
use thc_transport::{PacketIo, UdpConfig, UdpIo};

const LOOPBACK: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
/// Datagrams per turn; they fit into the receive buffer, so none is lost.
const TURN: usize = 1000;

/// UDP payload of a DATA and of a RESULT packet of 1024 coordinates.
const SIZES: [(&str, usize); 2] = [("DATA", 536), ("RESULT", 1052)];

/// The ratio to reach, and the one below which something is broken.
const AIM: f64 = 5.0;
const FLOOR: f64 = 3.0;

/// Seconds that a turn took and whether every byte arrived.
type Turn = Result<f64, Box<dyn Error>>;

trait Contestant {
    /// Sends `contents` in datagrams of `segment` bytes to itself and receives them into
    /// `arrived`, which is as long.
    fn turn(&mut self, contents: &[u8], segment: usize, arrived: &mut [u8]) -> Turn;
}

struct Batched {
    sender: UdpIo,
    receiver: UdpIo,
}

impl Batched {
    fn new(gso: bool, gro: bool) -> Result<Self, Box<dyn Error>> {
        let config = UdpConfig { gso, gro, ..UdpConfig::new(LOOPBACK) };
        Ok(Self { sender: UdpIo::bind(config)?, receiver: UdpIo::bind(config)? })
    }
}

impl Contestant for Batched {
    fn turn(&mut self, contents: &[u8], segment: usize, arrived: &mut [u8]) -> Turn {
        let to = self.receiver.local();
        let mut filled = 0;
        let start = Instant::now();
        self.sender.send_run(to, contents, segment)?;
        while filled < contents.len() {
            let received = self.receiver.recv_burst(&mut |_, datagram| {
                if let Some(space) = arrived.get_mut(filled..filled + datagram.len()) {
                    space.copy_from_slice(datagram);
                }
                filled += datagram.len();
            })?;
            if received == 0 && !self.receiver.wait(Duration::from_millis(500))? {
                return Err(format!("only {filled} of {} bytes came", contents.len()).into());
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

struct Plain {
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Plain {
    fn new() -> Result<Self, Box<dyn Error>> {
        // The same receive buffer, so that the same turn fits.
        let receiver = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
        receiver.bind(&LOOPBACK.into())?;
        receiver.set_recv_buffer_size(4 << 20)?;
        receiver.set_read_timeout(Some(Duration::from_millis(500)))?;
        Ok(Self { sender: UdpSocket::bind(LOOPBACK)?, receiver: receiver.into() })
    }
}

impl Contestant for Plain {
    fn turn(&mut self, contents: &[u8], segment: usize, arrived: &mut [u8]) -> Turn {
        let to = self.receiver.local_addr()?;
        let start = Instant::now();
        for datagram in contents.chunks(segment) {
            self.sender.send_to(datagram, to)?;
        }
        for space in arrived.chunks_mut(segment) {
            let (len, _) = self.receiver.recv_from(space)?;
            if len != space.len() {
                return Err(format!("a datagram of {len} instead of {} bytes", space.len()).into());
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Runs `turns` turns of every contestant alternately; returns the median packets per second.
fn compete(
    contestants: &mut [(&str, Box<dyn Contestant>)],
    segment: usize,
    turns: usize,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut contents = vec![0; TURN * segment];
    let mut seconds = vec![Vec::with_capacity(turns); contestants.len()];
    for turn in 0..=turns {
        for (index, (name, contestant)) in contestants.iter_mut().enumerate() {
            for (position, byte) in contents.iter_mut().enumerate() {
                *byte = (position * 31 + position / segment + turn * 7 + index) as u8;
            }
            let mut arrived = vec![0; contents.len()];
            let took = contestant.turn(&contents, segment, &mut arrived)?;
            if arrived != contents {
                return Err(format!("{name}: other bytes arrived than were sent").into());
            }
            // The first turn warms up.
            if turn > 0 {
                seconds[index].push(took);
            }
        }
    }
    Ok(seconds.into_iter().map(|turns| TURN as f64 / median(turns)).collect())
}

/// Receivers of a RESULT.
const GROUP: usize = 4;
/// RESULTs in a run: what a burst of packets may complete.
const RUNS: [usize; 3] = [1, 16, 62];

/// Nanoseconds per datagram of sending a run of RESULTs to a group: a call for each receiver, and one for all.
fn multicast(results: usize, turns: usize) -> Result<[f64; 2], Box<dyn Error>> {
    let config = UdpConfig::new(LOOPBACK);
    let mut sender = UdpIo::bind(config)?;
    let mut receivers = (0..GROUP).map(|_| UdpIo::bind(config)).collect::<Result<Vec<_>, _>>()?;
    let peers: Vec<_> = receivers.iter().map(PacketIo::local).collect();
    let mut run = vec![0; results * SIZES[1].1];
    let mut took = [Vec::with_capacity(turns), Vec::with_capacity(turns)];
    for turn in 0..=turns {
        for (together, took) in [false, true].into_iter().zip(&mut took) {
            run.fill(turn as u8 ^ u8::from(together));
            let start = Instant::now();
            if together {
                sender.send_run_to_all(&peers, &run, SIZES[1].1, 0)?;
            } else {
                for &peer in &peers {
                    sender.send_run(peer, &run, SIZES[1].1)?;
                }
            }
            if turn > 0 {
                took.push(start.elapsed().as_nanos() as f64 / (GROUP * results) as f64);
            }
            for receiver in &mut receivers {
                let (mut got, mut same) = (0, true);
                while got < results && receiver.wait(Duration::from_millis(500))? {
                    got += receiver.recv_burst(&mut |_, datagram| same &= datagram == &run[..SIZES[1].1])?;
                }
                if got != results || !same {
                    return Err(format!("{got} of {results} datagrams came, or others").into());
                }
            }
        }
    }
    Ok(took.map(median))
}

fn main() -> Result<(), Box<dyn Error>> {
    let measure = is_measuring();
    let turns = if measure { 400 } else { 3 };
    let mut results = Vec::new();
    println!("loopback, send and receive on one core, {turns} turns of {TURN} datagrams, median");
    for (packet, segment) in SIZES {
        let mut contestants: Vec<(&str, Box<dyn Contestant>)> = vec![
            ("one call per packet", Box::new(Plain::new()?)),
            ("recvmmsg alone", Box::new(Batched::new(false, false)?)),
            ("GSO alone", Box::new(Batched::new(true, false)?)),
            ("GSO and GRO", Box::new(Batched::new(true, true)?)),
        ];
        let rates = compete(&mut contestants, segment, turns)?;
        for ((name, _), rate) in contestants.iter().zip(&rates) {
            let gbits = rate * segment as f64 * 8e-9;
            println!(
                "{packet:>8} {segment:>5} B  {name:<20} {:>6.2} Mpackets/s {gbits:>7.2} Gbit/s {:>6.2}x",
                rate / 1e6,
                rate / rates[0],
            );
        }
        results.push(serde_json::json!({
            "name": format!("udp {packet} {segment} B: GSO and GRO over one call per packet"),
            "ratio": rates[3] / rates[0],
            "better": "higher",
            "aim": AIM,
            "floor": FLOOR,
            "detail": contestants
                .iter()
                .zip(&rates)
                .map(|((name, _), rate)| format!("{name} {:.2} Mpackets/s", rate / 1e6))
                .collect::<Vec<_>>()
                .join(", "),
        }));
    }
    for length in RUNS {
        let [each, together] = multicast(length, if measure { 2000 } else { 3 })?;
        let name = format!("udp {length} RESULTs to {GROUP} receivers: one call over one for each");
        let detail =
            format!("one call for each {each:.0} ns, one call {together:.0} ns per datagram, sending alone");
        println!("{:>5.2}x  {name}\n        {detail}", each / together);
        results.push(serde_json::json!({
            "name": name,
            "ratio": each / together,
            "better": "higher",
            "aim": 1.0,
            "floor": 0.9,
            "detail": detail,
        }));
    }
    if measure {
        thc_bench::write(env!("CARGO_TARGET_TMPDIR"), "transport", &results)?;
    }
    Ok(())
}
