//! Packets with every set of the faults that P7 asks for, so that the order in which they are asked for shows.

use super::frame::{Datagram, bytes_of};
use super::plant::{OWN, OWN_MAC, PORTS, PlacedJob};
use thc_protocol::aggregator::Level;
use thc_protocol::wire::{Header, Kind, MAX_PACKET};
use thc_protocol::{Cookie, Ecn, JobId, SlotId, TableId, WorkerId};

/// Faults that a packet can have, each of them or not: version, kind, job, cookie, member, IP address, UDP port, ingress port,
/// workers, length, slot, table. That it is too short goes with none of them.
pub const FAULTS: u32 = 12;

/// A packet with these faults, bit by bit: of a worker (NORM, DATA, RAW) or of the job's root; the port that it comes in by.
/// The job must not have 99 members, nor table 77, and must have been given the cookie that its configuration has.
///
/// # Panics
/// If the job has no members, or `kind` is a root's and it has none.
#[must_use]
pub fn packet(job: &PlacedJob, kind: Kind, faults: u32) -> (u16, Datagram) {
    let has = |fault: u32| faults >> fault & 1 == 1;
    let config = &job.config;
    let of_root = kind as u8 > Kind::Raw as u8;
    let (&number, &member) = job.members.iter().next().unwrap();
    let sender = if of_root { job.root.unwrap() } else { member };
    let workers = match config.level {
        Level::Rack { racks, .. } if of_root => racks.count,
        _ => config.workers,
    };
    let names_table = matches!(kind, Kind::Data | Kind::Result);
    let table = match (names_table, has(11)) {
        (true, true) => TableId(77),
        (true, false) => config.tables[0],
        // What names no table has no wrong one.
        (false, wrong) => TableId(u8::from(wrong)),
    };
    let header = Header {
        table,
        slot: SlotId(if has(10) { 0xFFF0 } else { 0 }),
        ..Header::new(
            kind,
            workers.wrapping_add(u8::from(has(8))),
            if has(2) { JobId(0xFFF0) } else { config.job },
            WorkerId(if has(4) { 99 } else { number }),
            if has(3) { Cookie(!config.cookie.0) } else { config.cookie },
        )
    };
    let mut payload = match kind {
        Kind::Data => vec![0x11; 512],
        Kind::Norm => vec![0; 20],
        Kind::Raw => vec![0; 1024],
        kind => vec![0; kind.payload_len(thc_protocol::wire::Form::USUAL)],
    };
    if has(9) {
        payload.push(0);
    }
    let mut buffer = [0; MAX_PACKET + 1];
    let mut bytes = header.emit_packet(&mut buffer, &payload).to_vec();
    if has(0) {
        bytes[0] ^= 0x80;
    }
    if has(1) {
        bytes[1] = 0x7F;
    }
    let (mac, mut addr) = (sender.mac, sender.endpoint.addr);
    if has(5) {
        let [a, b, c, d] = bytes_of(addr);
        addr.set_ip([a, b, c ^ 1, d].into());
    }
    if has(6) {
        addr.set_port(addr.port() ^ 0x100);
    }
    let port =
        if has(7) { PORTS.into_iter().find(|&port| port != sender.port).unwrap() } else { sender.port };
    (port, Datagram { from: (mac, addr), to: (OWN_MAC, OWN), ecn: Ecn::NotEct, payload: bytes })
}
