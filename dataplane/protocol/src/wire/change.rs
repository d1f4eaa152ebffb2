//! In what two WELCOMEs differ.

use super::Welcome;
use super::norm::finalize;
use crate::Policy;
use std::fmt;

/// What a WELCOME says that must be equal for a session to go on (P24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in Welcome")]
pub enum Field {
    Workers,
    Quorum,
    Lane,
    Policy,
    Deadline,
    DataSlots,
    NormSlots,
    Shards,
    Shares,
    Bits,
    Width,
    Granularity,
    Fraction,
    Threshold,
    Values,
    Table,
    Seed,
    Block,
    Features,
    Tables,
    Racks,
    AllWorkers,
    AllQuorum,
    RackNumber,
    RackSizes,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::Workers => "workers",
            Field::Quorum => "quorum",
            Field::Lane => "lane",
            Field::Policy => "policy",
            Field::Deadline => "deadline",
            Field::DataSlots => "data slots",
            Field::NormSlots => "norm slots",
            Field::Shards => "shards",
            Field::Shares => "shares",
            Field::Bits => "bits",
            Field::Width => "bits per index",
            Field::Granularity => "granularity",
            Field::Fraction => "fraction",
            Field::Threshold => "t_p",
            Field::Values => "table values",
            Field::Table => "table id",
            Field::Seed => "seed",
            Field::Block => "block size",
            Field::Features => "features",
            Field::Tables => "further tables",
            Field::Racks => "racks",
            Field::AllWorkers => "workers of all racks",
            Field::AllQuorum => "quorum of all racks",
            Field::RackNumber => "number of the rack",
            Field::RackSizes => "sizes of racks",
        })
    }
}

/// How a job differs from its earlier form: the first field that differs, and how many more do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The first field that differs.
    pub field: Field,
    /// The old value: the number, µs for a deadline, the bits of a fraction, and 0 where a number says
    /// nothing.
    pub was: u64,
    /// What it is.
    pub is: u64,
    /// How many other fields differ.
    pub others: u8,
}

impl Change {
    /// How `is` differs from `was`; `None` if a session of the one may go on as one of the other.
    #[must_use]
    pub fn compare(was: &Welcome, is: &Welcome) -> Option<Change> {
        let both = fields(was).into_iter().zip(fields(is));
        let mut differ = both.filter(|(a, b)| a.1 != b.1);
        let (before, after) = differ.next()?;
        Some(Change { field: before.0, was: before.1, is: after.1, others: differ.count() as u8 })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { field, was, is, others } = *self;
        match field {
            Field::Values | Field::Seed | Field::Shares | Field::Tables | Field::RackSizes => {
                write!(f, "other {field}")?;
            }
            Field::Fraction | Field::Threshold => {
                write!(f, "{field} {} instead of {}", f64::from_bits(is), f64::from_bits(was))?;
            }
            Field::Policy => {
                let name = |code| if code == 0 { "reliable" } else { "best-effort" };
                write!(f, "{field} {} instead of {}", name(is), name(was))?;
            }
            Field::Deadline => write!(f, "{field} {is} µs instead of {was} µs")?,
            _ => write!(f, "{field} {is} instead of {was}")?,
        }
        match others {
            0 => Ok(()),
            1 => f.write_str(", and one difference more"),
            n => write!(f, ", and {n} differences more"),
        }
    }
}

/// What an operator chooses comes first, what follows from it later.
fn fields(w: &Welcome) -> [(Field, u64); 25] {
    let table = w.tables.first();
    let of_racks = |value: fn(&super::Rack) -> u64| w.rack.as_ref().map_or(0, value);
    let half = |from: usize| u64::from_be_bytes(super::bytes(&table.values, from));
    [
        (Field::Workers, w.workers.into()),
        (Field::Quorum, w.quorum.into()),
        (Field::Lane, table.form.sums().into()),
        (Field::Policy, u64::from(w.policy == Policy::BestEffort)),
        (Field::Deadline, w.deadline.as_micros() as u64),
        (Field::DataSlots, w.data_slots.into()),
        (Field::NormSlots, w.norm_slots.into()),
        (Field::Shards, w.shards.into()),
        (Field::Shares, w.shares.digest()),
        (Field::Bits, table.bits.into()),
        (Field::Width, table.form.width().into()),
        (Field::Granularity, table.granularity.into()),
        (Field::Fraction, table.fraction.to_bits()),
        (Field::Threshold, table.t_p.to_bits()),
        (Field::Values, finalize(half(0)) ^ half(8)),
        (Field::Table, table.id.0.into()),
        (Field::Seed, w.job_seed),
        (Field::Block, w.block.into()),
        (Field::Features, w.features.into()),
        (Field::Tables, w.tables.digest_rest()),
        (Field::Racks, of_racks(|rack| rack.racks.into())),
        (Field::AllWorkers, of_racks(|rack| rack.workers.into())),
        (Field::AllQuorum, of_racks(|rack| rack.quorum.into())),
        (Field::RackNumber, of_racks(|rack| u64::from(rack.rack.0) << 16 | u64::from(rack.first.0))),
        (Field::RackSizes, of_racks(|rack| rack.layout)),
    ]
}
