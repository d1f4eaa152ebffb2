//! Random packets of a rack's members and of its root (P34 to P36).

use super::frame::Datagram;
use super::plant::{Member, OWN, OWN_MAC, PlacedJob, Plant};
use super::{config, ecn, member};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use thc_protocol::aggregator::{Endpoint, JobConfig, Level, Lookup, Racks};
use thc_protocol::wire::{FLAG_MARK, FLAG_NUDGE, Form, Header, Kind, MAX_PACKET, Norm};
use thc_protocol::{Cookie, Lane, Round, SlotId, TableId, WorkerId};

/// Three racks of up to three workers.
pub const RACKS: Racks = Racks { count: 3, largest: 3, total: 8 };

/// The root.
#[must_use]
pub fn root() -> Member {
    let addr = SocketAddr::from(([10, 9, 77, 1], 9000));
    Member { mac: [0x02, 0, 0, 0, 77, 1], endpoint: Endpoint::udp(addr), port: 4 }
}

/// Full quorum, and one with a quorum whose root has two ports (P21); a table with lanes of 8 bits, one whose sums are narrower than the root's lanes, and one of indices
/// that are their own values.
#[must_use]
pub fn jobs() -> Vec<PlacedJob> {
    let place = |job: u16, quorum, index, base, norm_base, slots, ports| PlacedJob {
        config: JobConfig {
            level: Level::Rack { racks: RACKS, rack: WorkerId(1), root: root().endpoint, ports },
            ..config(job, 3, quorum, (slots, 4), &[255, 9, 8])
        },
        index,
        epoch: 7 + u32::from(job),
        data_base: base,
        norm_base,
        members: (0..3).map(|w| (w, member(job as u8, w, 1 + u16::from(w), false))).collect(),
        root: Some(root()),
    };
    vec![place(5, 3, 2, 8, 8, 4, 1), place(6, 2, 4, 40, 40, 200, 2)]
}

/// Their lookup tables.
#[must_use]
#[allow(clippy::missing_panics_doc, reason = "these forms are there")]
pub fn tables() -> BTreeMap<u8, Lookup> {
    let spread = |g: u8| std::array::from_fn(|z| (u32::from(g) * (z * z) as u32 / 225) as u8);
    let wide = Form::new(4, Lane::Bits16).unwrap();
    BTreeMap::from([
        (255, Lookup { form: Form::USUAL, values: spread(30) }),
        (9, Lookup { form: wide, values: spread(63) }),
        (8, Lookup { form: Form::new(8, Lane::Bits16).unwrap(), values: [0; 16] }),
    ])
}

/// A packet of a member, or of the root, and the port that it comes in by. `time` advances the rounds.
///
/// # Panics
/// If there are no jobs.
#[must_use]
pub fn step(random: &mut Rng, plant: &Plant, time: u32) -> (u16, Datagram) {
    let job = random.choice(&plant.jobs).unwrap();
    let config = &job.config;
    // Of three blocks, if it has so many.
    let slot = random.choice([0, 1, 2, 64, 130]).filter(|&slot| slot < config.data_slots as u16).unwrap_or(3);
    let round = match random.u8(..20) {
        0 => (time / 40).wrapping_sub(1),
        1 => time / 40 + 1,
        2 => time / 40 + 3,
        _ => time / 40,
    };
    // All packets of a slot's round are of one kind and table.
    let table = TableId([255, 9, 8][(round as usize + usize::from(slot)) % 3]);
    let form = plant.tables[&table.0].form;
    let worker = random.u8(..config.workers);
    let mut header = Header {
        kind: Kind::Data,
        flags: if random.u8(..5) == 0 { FLAG_NUDGE } else { 0 }
            | if random.u8(..10) == 0 { FLAG_MARK } else { 0 },
        num_workers: config.workers,
        job: config.job,
        worker: WorkerId(worker),
        table,
        cookie: config.cookie,
        round: Round(round),
        slot: SlotId(slot),
        count: 0,
    };
    let norm = Norm {
        tag: 0,
        value: (random.f32() * 4.0).to_bits(),
        length: 1 << 20,
        call: round as u16,
        table: TableId(255),
        mode: u8::from(random.u8(..20) == 0),
        key: 77,
    };
    let (mut from, own) = (job.members[&worker], config.level.lookup(&plant.tables[&table.0]).unwrap().form);
    let mut payload: Vec<u8> = match random.u8(..8) {
        0 | 1 => {
            (header.kind, header.table) = (Kind::Norm, TableId(0));
            norm.with_tag(1).to_bytes().to_vec()
        }
        2 | 3 => {
            // Of the root.
            let kinds = [
                Kind::NormResult,
                Kind::Result,
                Kind::RawResult,
                Kind::Straggler,
                Kind::Mismatch,
                Kind::Nudge,
            ];
            header.kind = random.choice(kinds).unwrap();
            header.num_workers = RACKS.count;
            header.worker = WorkerId(random.choice([255, 0, 1, 2]).unwrap());
            header.count = random.u16(..2000);
            from = job.root.unwrap();
            (0..header.kind.payload_len(form)).map(|_| random.u8(..)).collect()
        }
        4 if slot == 0 => {
            (header.kind, header.table) = (Kind::Raw, TableId(0));
            (0..1024).map(|_| random.u8(..)).collect()
        }
        _ => (0..own.data_len()).map(|_| random.u8(..)).collect(),
    };
    let mut place = (from.mac, from.endpoint.addr);
    let fault = random.u8(..60);
    if fault == 3 {
        header.slot = SlotId(random.u16(200..));
    }
    if let Level::Rack { ports, .. } = config.level
        && Some(from) == job.root
    {
        place.1.set_port(place.1.port() + header.slot.0 / 64 % u16::from(ports));
    }
    match fault {
        0 => header.cookie = Cookie(random.u32(..)),
        1 => header.num_workers ^= 1,
        2 => payload.truncate(payload.len() / 2),
        4 => header.table = TableId(77),
        5 => place.1.set_port(place.1.port() ^ 1),
        6 => place.1.set_ip([10, 9, 77, 2].into()),
        7 => header.worker = WorkerId(40),
        _ => {}
    }
    let mut packet = [0; MAX_PACKET];
    let payload = header.emit_packet(&mut packet, &payload).to_vec();
    (from.port, Datagram { from: place, to: (OWN_MAC, OWN), ecn: ecn(random), payload })
}
