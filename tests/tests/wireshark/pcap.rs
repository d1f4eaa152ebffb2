//! Reads captures of `--pcap`.

use std::net::SocketAddr;
use std::path::Path;

/// A datagram of a capture.
pub struct Packet {
    /// Its sender.
    pub from: SocketAddr,
    /// Its UDP payload.
    pub payload: Vec<u8>,
}

/// All datagrams of a file, which must end with a whole one.
pub fn read(path: &Path) -> Vec<Packet> {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes[..4], 0xA1B2_3C4D_u32.to_le_bytes(), "pcap with nanoseconds");
    let mut packets = Vec::new();
    let mut rest = &bytes[24..];
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let frame = &rest[16..16 + length];
        let ip: [u8; 4] = frame[26..30].try_into().unwrap();
        let port = u16::from_be_bytes([frame[34], frame[35]]);
        packets.push(Packet { from: SocketAddr::from((ip, port)), payload: frame[42..].to_vec() });
        rest = &rest[16 + length..];
    }
    packets
}
