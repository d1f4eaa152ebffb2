//! Packets that get lost between two passes: no wrong sum may become visible, and repetition must heal
//! everything (docs/switch.md, "A packet lost between passes").

use super::frame::{CARRIER, Datagram};
use super::plant::{Frames, OWN, OWN_MAC, PlacedJob, Plant};
use super::{config, jobs, tables};
use fastrand::Rng;
use std::collections::BTreeMap;
use thc_protocol::aggregator::Lookup;
use thc_protocol::wire::{FLAG_MARK, Header, Kind, MAX_PACKET};
use thc_protocol::{Ecn, Lane, Round, SlotId, TableId, WorkerId};

const ROUNDS: u32 = 12;

/// Two jobs of four slots each: of all its workers, and of two of three.
#[must_use]
pub fn plant() -> Plant {
    let mut plant = Plant::new(&[]);
    plant.jobs = jobs();
    plant.jobs.truncate(2);
    plant.jobs[0].config = config(1, 4, 4, (4, 2), &[3, 12]);
    plant.jobs[1].config = config(2, 3, 2, (4, 2), &[7, 12]);
    plant.tables = tables();
    plant.tables.retain(|id, _| [3, 7, 12].contains(id));
    plant
}

/// A worker's packet of a round, and what it adds.
struct Part {
    header: Header,
    payload: Vec<u8>,
    values: Vec<u8>,
}

fn part(
    random: &mut Rng,
    job: &PlacedJob,
    (id, table): (TableId, &Lookup),
    worker: u8,
    slot: u16,
    round: u32,
) -> Part {
    let kind = if slot == 1 { Kind::Raw } else { Kind::Data };
    let header = Header {
        table: id,
        round: Round(round),
        slot: SlotId(slot),
        ..Header::new(kind, job.config.workers, job.config.job, WorkerId(worker), job.config.cookie)
    };
    let payload: Vec<u8> = (0..kind.payload_len(table.form)).map(|_| random.u8(..)).collect();
    let values = match kind {
        // As bytes, two lanes in each: no sum of 4 bits carries.
        Kind::Data if table.form.lane() == Lane::Bits4 => {
            let value = |z: u8| table.values[usize::from(z & 3)];
            payload
                .iter()
                .flat_map(|z| [value(z >> 6) << 4 | value(z >> 4), value(z >> 2) << 4 | value(*z)])
                .collect()
        }
        Kind::Data => payload
            .iter()
            .flat_map(|z| [table.values[usize::from(z >> 4)], table.values[usize::from(z & 15)]])
            .collect(),
        _ => payload.clone(),
    };
    Part { header, payload, values }
}

/// The sum of some workers' values, in one chunk.
fn sum(kind: Kind, parts: &[&[u8]], chunk: usize) -> Vec<u8> {
    let width = if kind == Kind::Raw { 4 } else { 1 };
    let number = |lane: &[u8]| lane.iter().fold(0u32, |number, &byte| number << 8 | u32::from(byte));
    (0..chunk / width)
        .flat_map(|lane| {
            let range = lane * width..(lane + 1) * width;
            let total =
                parts.iter().fold(0u32, |total, part| total.wrapping_add(number(&part[range.clone()])));
            total.to_be_bytes()[4 - width..].to_vec()
        })
        .collect()
}

/// Whether every chunk of a RESULT is the sum of exactly `count` workers.
fn sound(kind: Kind, parts: &[&Part], count: u16, lanes: &[u8], chunk: usize) -> bool {
    lanes.chunks(chunk).enumerate().all(|(place, lanes)| {
        (0u32..1 << parts.len()).filter(|set| set.count_ones() == u32::from(count)).any(|set| {
            let chosen: Vec<&[u8]> = parts
                .iter()
                .enumerate()
                .filter(|(worker, _)| set >> worker & 1 == 1)
                .map(|(_, part)| &part.values[place * chunk..][..chunk])
                .collect();
            sum(kind, &chosen, chunk) == lanes
        })
    })
}

/// Whether all packets of a slot's round come with CE, or none; some of them otherwise.
fn congestion(slot: u16, round: u32) -> Option<bool> {
    [Some(true), Some(false), None][(usize::from(slot) + round as usize) % 3]
}

/// Workers send the packets of a round until all have their RESULTs. `exchange` gives a switch that loses packets what comes in,
/// with the ports, and has all that comes out; `chunk` bytes of lanes are of one pass. How many packets were sent, and how many
/// RESULTs came.
///
/// # Panics
/// If a sum or a mark is wrong, copies differ, or somebody gets no RESULT.
pub fn rounds(
    random: &mut Rng,
    plant: &Plant,
    chunk: usize,
    mut exchange: impl FnMut(Vec<(u16, Vec<u8>, Header)>) -> Frames,
) -> (usize, usize) {
    let (mut sent, mut results) = (0, 0);
    // By job, slot and round: the one RESULT that all must get.
    let mut seen: BTreeMap<(u16, u16, u32), Vec<u8>> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut parts: BTreeMap<(u16, u16, u8), Part> = BTreeMap::new();
        for job in &plant.jobs {
            // Tables in turn, so that slots have rounds of all cells and of half of them.
            let id = job.config.tables[round as usize % job.config.tables.len()];
            let table = (id, &plant.tables[&id.0]);
            for slot in 0..job.config.data_slots as u16 {
                for &worker in job.members.keys() {
                    let part = part(random, job, table, worker, slot, round);
                    parts.insert((job.config.job.0, slot, worker), part);
                }
            }
        }
        let mut missing: Vec<(u16, u16, u8)> = parts.keys().copied().collect();
        for attempt in 0.. {
            if missing.is_empty() {
                break;
            }
            assert!(attempt < 100, "round {round}: without a result stay {missing:?}");
            random.shuffle(&mut missing);
            let mut packets = Vec::new();
            for key in &missing {
                let job = plant.jobs.iter().find(|job| job.config.job.0 == key.0).unwrap();
                let member = job.members[&key.2];
                let mut packet = [0; MAX_PACKET];
                let payload = parts[key].header.emit_packet(&mut packet, &parts[key].payload).to_vec();
                let from = (member.mac, member.endpoint.addr);
                let ecn = match congestion(key.1, round) {
                    Some(true) => Ecn::Ce,
                    Some(false) => Ecn::Ect0,
                    None => random.choice([Ecn::Ect0, Ecn::Ce]).unwrap(),
                };
                let frame = Datagram { from, to: (OWN_MAC, OWN), ecn, payload }.frame();
                packets.push((member.port, frame, parts[key].header));
            }
            sent += packets.len();
            for (port, frames) in exchange(packets) {
                for frame in frames {
                    let (header, lanes) = Header::parse(&frame[CARRIER..]).unwrap();
                    let place = format!("round {round}, {header:?}");
                    assert!(matches!(header.kind, Kind::Result | Kind::RawResult), "{place}");
                    let (job, slot) = (header.job.0, header.slot.0);
                    let placed = plant.jobs.iter().find(|placed| placed.config.job.0 == job).unwrap();
                    assert_eq!(header.count, u16::from(placed.config.quorum), "{place}");
                    let packet = frame[CARRIER..].to_vec();
                    assert!(
                        *seen.entry((job, slot, header.round.0)).or_insert_with(|| packet.clone()) == packet,
                        "copies differ: {place}"
                    );
                    let marked = header.flags == FLAG_MARK;
                    assert!(
                        congestion(slot, header.round.0).is_none_or(|all| all == marked),
                        "a wrong mark: {place}"
                    );
                    results += 1;
                    // One more copy of a round before, long under way: it is the same, and that is all.
                    if header.round != Round(round) {
                        assert!(header.round.0 < round, "{place}");
                        continue;
                    }
                    let of_slot: Vec<&Part> =
                        placed.members.keys().map(|&worker| &parts[&(job, slot, worker)]).collect();
                    let kind = of_slot[0].header.kind;
                    assert!(sound(kind, &of_slot, header.count, lanes, chunk), "a wrong sum: {place}");
                    let mac = &frame[..6];
                    let worker =
                        placed.members.iter().find(|(_, m)| m.mac == mac && m.port == port).unwrap().0;
                    missing.retain(|&key| key != (job, slot, *worker));
                }
            }
        }
    }
    (sent, results)
}
