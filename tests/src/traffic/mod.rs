//! Traffic for switches, and what the model answers to it: jobs, lookup tables, and random packets of all sorts. BMv2 and the
//! programs for Tofino are held to it.

pub mod faults;
pub mod frame;
pub mod loss;
pub mod plant;
pub mod racks;
pub mod random;

use fastrand::Rng;
use plant::{Member, PlacedJob, Plant};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use thc_protocol::aggregator::{Endpoint, JobConfig, Lookup};
use thc_protocol::wire::Form;
use thc_protocol::{Cookie, Ecn, JobId, Lane, TableId};

/// A member that is behind a port, and may send from that one alone or from any.
#[must_use]
pub fn member(job: u8, worker: u8, port: u16, any: bool) -> Member {
    Member {
        mac: [0x02, 0, 0, 0, job, worker],
        endpoint: Endpoint {
            ingress: if any { 0 } else { port },
            addr: SocketAddr::from((Ipv4Addr::new(10, 9, job, worker + 1), 5000 + u16::from(worker))),
        },
        port,
    }
}

/// How packets come: most may be marked, some are (P46).
pub fn ecn(random: &mut Rng) -> Ecn {
    random
        .choice([Ecn::Ect0, Ecn::Ect0, Ecn::Ect0, Ecn::Ect0, Ecn::NotEct, Ecn::NotEct, Ecn::Ect1, Ecn::Ce])
        .unwrap_or_default()
}

/// A job with so many data and norm slots.
#[must_use]
pub fn config(job: u16, workers: u8, quorum: u8, slots: (u32, u32), tables: &[u8]) -> JobConfig {
    JobConfig {
        quorum,
        skip: quorum < workers,
        data_slots: slots.0,
        norm_slots: slots.1,
        ..JobConfig::new(
            JobId(job),
            Cookie(0x5EED_0000 + u32::from(job)),
            workers,
            tables.iter().map(|&id| TableId(id)).collect(),
        )
    }
}

/// Four workers with full quorum; three with two of them on one port, one of which may send from anywhere,
/// quorum 2; five with quorum 3 in big slots; and one alone, whose packets mark the ends of segments.
#[must_use]
pub fn jobs() -> Vec<PlacedJob> {
    let place = |config: JobConfig, index, data_base, norm_base, ports: &[(u16, bool)]| PlacedJob {
        members: ports
            .iter()
            .enumerate()
            .map(|(worker, &(port, any))| (worker as u8, member(config.job.0 as u8, worker as u8, port, any)))
            .collect(),
        epoch: 1000 + u32::from(config.job.0),
        config,
        index,
        data_base,
        norm_base,
        root: None,
    };
    vec![
        place(
            config(1, 4, 4, (8, 4), &[3, 7, 8, 12]),
            0,
            0,
            0,
            &[(1, false), (2, false), (3, false), (4, false)],
        ),
        place(config(2, 3, 2, (4, 2), &[7, 12]), 3, 8, 4, &[(2, false), (2, true), (4, false)]),
        place(
            config(9, 5, 3, (6, 6), &[0, 255, 12, 8]),
            15,
            1018,
            1018,
            &[(1, false), (2, false), (3, false), (4, false), (5, false)],
        ),
        place(config(60, 1, 1, (2, 2), &[3]), 7, 100, 100, &[(5, false)]),
    ]
}

/// Lookup tables by number, of all forms that switches do.
#[must_use]
#[allow(clippy::missing_panics_doc, reason = "these forms are there")]
pub fn tables() -> BTreeMap<u8, Lookup> {
    let spread = |g: u8| std::array::from_fn(|z| (u32::from(g) * (z * z) as u32 / 225) as u8);
    let short: [u8; 16] = std::array::from_fn(|z| if z < 4 { 3 * z as u8 } else { 0 });
    // n·g fits 8 bits wherever a job may use the table.
    let values = [(3, spread(63)), (7, short), (0, spread(51)), (255, spread(30))];
    let mut tables = BTreeMap::from(values.map(|(id, values)| (id, Lookup { form: Form::USUAL, values })));
    // Of 2 bits in lanes of 4: five workers' sums are 15 at most.
    let values = std::array::from_fn(|z| if z < 4 { z as u8 } else { 0 });
    tables.insert(12, Lookup { form: Form::new(2, Lane::Bits4).unwrap(), values });
    // Indices that are their own values.
    tables.insert(8, Lookup { form: Form::new(8, Lane::Bits16).unwrap(), values: [0; 16] });
    tables
}

/// A controller's changes between two segments; packets of what was before die or start anew.
pub fn change(random: &mut Rng, plant: &mut Plant) {
    let job = random.usize(..plant.jobs.len() - 1);
    let placed = &mut plant.jobs[job];
    match random.u8(..5) {
        // A new incarnation, with empty slots (P24).
        0 => {
            placed.config.cookie = Cookie(random.u32(..));
            placed.epoch += 1;
        }
        // Another quorum, which empties slots too.
        1 => {
            let quorum = random.u8(1..=placed.config.workers);
            placed.epoch += u32::from(quorum != placed.config.quorum);
            placed.config.quorum = quorum;
            placed.config.skip = quorum < placed.config.workers;
        }
        2 => {
            placed.members.remove(&(placed.config.workers - 1));
        }
        3 => {
            placed.members = jobs().swap_remove(job).members;
        }
        _ => {
            if placed.config.tables.len() > 1 {
                placed.config.tables.pop();
            } else {
                // Table 255 is small enough for five workers, 3 for up to four.
                placed.config.tables.push(TableId(match placed.config.job.0 {
                    1 => 7,
                    2 => 3,
                    _ => 255,
                }));
            }
        }
    }
}
