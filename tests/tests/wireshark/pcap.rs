//! Files of captures, written and read.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use thc_protocol::wire::{HEADER_LEN, Header};
use thc_tests::wiretap::Frame;
use thc_transport::frame::{Datagram, mac_of};

/// A packet of a capture.
pub struct Packet {
    /// The number of its frame, from 1.
    pub frame: usize,
    /// Its sender.
    pub from: SocketAddr,
    /// Header and payload.
    pub bytes: Vec<u8>,
}

/// Writes a file of frames with nanosecond times.
pub fn write(path: &Path, frames: &[Frame]) {
    // Magic, version 2.4, zone, accuracy, longest frame, Ethernet.
    let mut bytes = Vec::new();
    let mut words = |words: &[u32], frame: &[u8]| {
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend_from_slice(frame);
    };
    words(&[0xA1B2_3C4D, 0x0004_0002, 0, 0, 1 << 17, 1], &[]);
    for Frame { time, bytes } in frames {
        let len = bytes.len() as u32;
        words(&[time.as_secs() as u32, time.subsec_nanos(), len, len], bytes);
    }
    std::fs::write(path, bytes).unwrap();
}

/// The frame of a datagram.
pub fn frame(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Frame {
    let [from, to] = [from, to].map(|end| (mac_of(end.ip()), end));
    Frame { time: Duration::from_secs(1), bytes: Datagram { from, to, ecn: 0, payload }.frame() }
}

/// All packets of frames; the kernel hands several packets on in one datagram.
pub fn packets(frames: &[Frame]) -> Vec<Packet> {
    let mut packets = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let datagram = Datagram::parse(&frame.bytes).unwrap();
        for packet in datagram.payload.chunks(packet_len(datagram.payload)) {
            packets.push(Packet { frame: index + 1, from: datagram.from.1, bytes: packet.to_vec() });
        }
    }
    packets
}

/// The length of each packet of a datagram: the shortest that leaves the same job and kind at the begin of every packet.
fn packet_len(datagram: &[u8]) -> usize {
    let same = |packet: &[u8]| {
        packet.len() >= HEADER_LEN
            && Header::parse(packet).is_ok()
            && packet[..2] == datagram[..2]
            && packet[4..6] == datagram[4..6]
            && packet[8..12] == datagram[8..12]
    };
    let fits = |len: &usize| datagram.len().is_multiple_of(*len) && datagram.chunks(*len).all(same);
    (HEADER_LEN..=datagram.len()).find(fits).unwrap_or(datagram.len())
}
