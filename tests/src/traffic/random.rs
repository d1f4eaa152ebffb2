//! Random traffic: mostly rounds that complete, and everything that P7 to P17 have an answer for.

use super::ecn;
use super::frame::{CARRIER, Datagram, Mac, arp, bytes_of, ethernet, seal};
use super::plant::{OWN, OWN_MAC, PORTS, PlacedJob, Plant};
use fastrand::Rng;
use std::net::{Ipv4Addr, SocketAddr};
use thc_protocol::wire::{FLAG_MARK, FLAG_NUDGE, Form, HEADER_LEN, Header, Kind, MAX_PACKET, Norm, VERSION};
use thc_protocol::{Cookie, JobId, Round, SlotId, TableId, WorkerId};

/// What a frame is to the model.
pub enum Meaning {
    /// The aggregator gets this packet.
    Packet(Vec<u8>),
    /// It never reaches the aggregator: a host's kernel would have dropped it.
    Malformed,
    /// It is forwarded to the port.
    Forwarded(u16),
    /// It goes to the control plane, in this frame.
    ForControl(Vec<u8>),
    /// It goes to all other ports.
    Flooded,
    /// The switch answers ARP with this frame.
    Answered(Vec<u8>),
    /// Nobody gets it.
    Ignored,
}

/// A frame on its way.
pub struct Step {
    /// Where it comes in.
    pub port: u16,
    /// All of it.
    pub frame: Vec<u8>,
    /// What it is.
    pub meaning: Meaning,
}

/// DATA or RAW, and the table: all workers use a slot for the same in a round (the norm stage sees to it).
fn form_of(job: &PlacedJob, slot: u16, round: u32) -> (Kind, TableId) {
    let mixed = (u32::from(slot) ^ round ^ u32::from(job.config.job.0)).wrapping_mul(0x9E37_79B9);
    let tables = &job.config.tables;
    if mixed >> 30 == 0 {
        (Kind::Raw, TableId(0))
    } else {
        (Kind::Data, tables[(mixed >> 20) as usize % tables.len()])
    }
}

/// The form of a table's packets.
fn as_of(plant: &Plant, table: TableId) -> Form {
    plant.tables.get(&table.0).map_or(Form::USUAL, |table| table.form)
}

fn packet(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; MAX_PACKET.max(20 + payload.len())];
    header.emit_packet(&mut out, payload).to_vec()
}

/// One frame. `time` advances the rounds.
///
/// # Panics
/// If there are no jobs.
#[must_use]
pub fn step(random: &mut Rng, plant: &Plant, stations: &[(Mac, u16)], time: u32) -> Step {
    if random.u8(..25) == 0 {
        return stray_step(random, stations);
    }
    let job = &plant.jobs[random.usize(..plant.jobs.len() - 1)];
    let worker = random.choice(job.members.keys().copied()).unwrap();
    let norm = random.u8(..4) == 0;
    let slots = if norm { job.config.norm_slots } else { job.config.data_slots } as u16;
    let slot = if random.bool() { 0 } else { random.u16(..slots) };
    // Rounds wrap within the trace.
    let round = (u32::MAX - 3).wrapping_add(time);
    let round = match random.u8(..24) {
        0 => round.wrapping_sub(1),
        1 => round.wrapping_add(1),
        2 if random.u8(..8) == 0 => round.wrapping_add(1 << 31),
        3 => round.wrapping_add(random.u32(2..4)),
        _ => round,
    };
    let (mut kind, mut table) = form_of(job, slot, round);
    if norm {
        (kind, table) = (Kind::Norm, TableId(random.u8(..)));
    } else if random.u8(..20) == 0 {
        // Another form than the others'.
        kind = random.choice([Kind::Data, Kind::Raw]).unwrap();
        table = random.choice(job.config.tables.iter().copied()).unwrap();
    }
    let flags = if random.u8(..5) == 0 { FLAG_NUDGE } else { random.u8(..) & !FLAG_NUDGE };
    let mut header = Header {
        kind,
        // Not many, for else all slots are marked.
        flags: if random.u8(..8) == 0 { flags } else { flags & !FLAG_MARK },
        num_workers: job.config.workers,
        job: job.config.job,
        worker: WorkerId(worker),
        table,
        cookie: job.config.cookie,
        round: Round(round),
        slot: SlotId(slot),
        count: random.u16(..),
    };
    let mut payload = if norm {
        let value = if random.u8(..40) == 0 {
            Norm::non_finite(WorkerId(worker))
        } else {
            (random.f32() * 4.0).to_bits()
        };
        let (table, mode) = (TableId(3), u8::from(random.u8(..20) == 0));
        Norm { tag: 0, value, length: 1 << 20, call: time as u16, table, mode, key: 77 }
            .with_tag(1)
            .to_bytes()
            .to_vec()
    } else {
        (0..kind.payload_len(as_of(plant, table))).map(|_| random.u8(..)).collect()
    };
    let member = job.members[&worker];
    let mut place = (member.mac, member.endpoint.addr);
    let mut port = member.port;
    if member.endpoint.ingress == 0 {
        port = random.choice(PORTS).unwrap();
    }
    let mut cut = usize::MAX;
    match random.u8(..70) {
        0 => header.cookie = Cookie(random.u32(..)),
        1 => header.job = JobId(random.u16(..)),
        2 => header.worker = WorkerId(random.u8(..)),
        3 => header.num_workers = header.num_workers.wrapping_add(1),
        4 => payload.truncate(random.usize(..payload.len())),
        5 => payload.push(0),
        6 => header.slot = SlotId(random.u16(..)),
        7 => header.table = TableId(random.u8(..)),
        8 => header.kind = random.choice(thc_support::kinds()).unwrap(),
        9 => cut = random.usize(..20),
        10 => place.1.set_ip(Ipv4Addr::from_bits(u32::from_be_bytes(bytes_of(place.1)) ^ 1).into()),
        11 => place.1.set_port(place.1.port() ^ 1),
        12 => port = random.choice(PORTS).unwrap(),
        _ => {}
    }
    // A kind that was changed may fit the packet's length, and then it must not be added.
    if header.kind != kind && matches!(header.kind, Kind::Data | Kind::Raw | Kind::Norm) {
        payload.push(0);
    }
    if header.slot != SlotId(slot) && u32::from(header.slot.0) < job.config.data_slots && !norm {
        (header.kind, header.table) = form_of(job, header.slot.0, round);
        payload.resize(header.kind.payload_len(as_of(plant, header.table)), 0x11);
    }
    let mut bytes = packet(&header, &payload);
    match random.u8(..90) {
        0 => bytes[0] = random.u8(..),
        1 => bytes[1] = random.u8(0x04..),
        _ => {}
    }
    bytes.truncate(cut);
    let datagram = Datagram { from: place, to: (OWN_MAC, OWN), ecn: ecn(random), payload: bytes };
    let (frame, mut meaning) = frame_packet(random, plant, header.kind, datagram);
    if matches!(meaning, Meaning::Packet(_) | Meaning::Malformed) && for_control(plant, &frame) {
        meaning = Meaning::ForControl([&port.to_be_bytes(), &frame[..]].concat());
    }
    Step { port, frame, meaning }
}

/// Whether the switch finds a header of P1 that the control plane takes; the rest is up to that.
fn for_control(plant: &Plant, frame: &[u8]) -> bool {
    let plain = frame[14] == 0x45 && frame[20] & 0x3F == 0 && frame[21] == 0;
    let room = frame.len() >= CARRIER + HEADER_LEN && u16::from_be_bytes([frame[38], frame[39]]) >= 28;
    let taken = |kind: u8| plant.control.iter().any(|&one| one as u8 == kind);
    plain && room && frame[CARRIER] == VERSION && taken(frame[CARRIER + 1])
}

/// Puts a packet into a frame that is sometimes not as it should be.
fn frame_packet(random: &mut Rng, plant: &Plant, kind: Kind, mut datagram: Datagram) -> (Vec<u8>, Meaning) {
    let packet = datagram.payload.clone();
    match random.u8(..150) {
        // Nobody is there, at another port or address of the aggregator's MAC.
        0 => {
            datagram.to.1.set_port(OWN.port() + 1);
            return (datagram.frame(), Meaning::Ignored);
        }
        1 => {
            datagram.to.1.set_ip(Ipv4Addr::new(10, 9, 0, 253).into());
            return (datagram.frame(), Meaning::Ignored);
        }
        // The aggregator's address at another MAC.
        2 => {
            datagram.to.0[5] ^= 0x80;
            return (datagram.frame(), Meaning::Flooded);
        }
        _ => {}
    }
    let mut frame = datagram.frame();
    match random.u8(..120) {
        // IP checksum, length of UDP, of IP, a fragment, options, cut off.
        0 => frame[25] ^= 1,
        1 => frame[39] = frame[39].wrapping_add(1),
        2 => frame[17] = frame[17].wrapping_add(1),
        3 => frame[20] = 0x20,
        4 => frame[21] = 1,
        5 => frame[14] = 0x46,
        // Of what is too short for P1 anyway, Tofino's ingress does not see that it is cut off, too.
        6 if frame.len() > CARRIER + if plant.cuts { 1 } else { HEADER_LEN } => {
            let whole = plant.cuts || kind == Kind::Norm;
            let end = frame.len() - 1;
            frame.truncate(random.usize(CARRIER..if whole { end } else { end.min(CARRIER + HEADER_LEN) }));
        }
        // No harm: other service, hops, identification, a UDP checksum, a trailer.
        7..20 => {
            (frame[15], frame[18], frame[22]) = (random.u8(..), random.u8(..), random.u8(1..));
            (frame[40], frame[41]) = (random.u8(..), random.u8(..));
            seal(&mut frame);
            frame.extend((0..random.usize(..9)).map(|_| 0xEE));
            return (frame, Meaning::Packet(packet));
        }
        _ => return (frame, Meaning::Packet(packet)),
    }
    if frame[24..26] == datagram.frame()[24..26] {
        seal(&mut frame);
    }
    (frame, Meaning::Malformed)
}

/// What is not for the aggregator.
fn stray_step(random: &mut Rng, stations: &[(Mac, u16)]) -> Step {
    let port = random.choice(PORTS).unwrap();
    let (from, _) = random.choice(stations.iter().copied()).unwrap();
    let address = Ipv4Addr::new(10, 9, 9, random.u8(..));
    let (to, to_port) = random.choice(stations.iter().copied()).unwrap();
    let text: Vec<u8> = (0..random.usize(20..200)).map(|_| random.u8(..)).collect();
    let other = SocketAddr::from((address, if random.bool() { 9000 } else { 53 }));
    let (frame, meaning) = match random.u8(..6) {
        0 => {
            let asked = arp([0xFF; 6], 1, (from, address), ([0; 6], bytes_of(OWN).into()));
            (asked, Meaning::Answered(arp(from, 2, (OWN_MAC, bytes_of(OWN).into()), (from, address))))
        }
        1 => (arp([0xFF; 6], 1, (from, address), ([0; 6], address)), Meaning::Flooded),
        // A reply, even about the aggregator's address, is somebody else's.
        2 => (
            arp(to, 2, (from, bytes_of(OWN).into()), (to, bytes_of(OWN).into())),
            Meaning::Forwarded(to_port),
        ),
        3 => ([ethernet(to, from, 0x88B5), text].concat(), Meaning::Forwarded(to_port)),
        4 => ([ethernet([0x03, 0, 0, 0, 0, 9], from, 0x86DD), text].concat(), Meaning::Flooded),
        // UDP between hosts, sometimes to the aggregator's port: it must pass as it is.
        _ => {
            let datagram = Datagram { from: (from, other), to: (to, other), ecn: ecn(random), payload: text };
            (datagram.frame(), Meaning::Forwarded(to_port))
        }
    };
    Step { port, frame, meaning }
}
