//! How calls and sessions fail.

use crate::wire::{Change, Norm};
use crate::{Rank, Round, SlotId, TableId, WorkerId};
use std::fmt;
use std::time::Duration;

/// A call fails on all workers alike; the session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// P19.
    #[error(
        "worker {worker} has a NaN or an infinity in its gradient: this all-reduce failed on every worker"
    )]
    NonFinite {
        /// The worker, the highest number if several.
        worker: Rank,
    },
    /// P19: the slot holds a maximum that no worker may have sent.
    #[error(
        "the norm of partition {partition} is {value:#010x}, which no worker may send: a packet was damaged on the \
         way, and this all-reduce failed on every worker"
    )]
    Norm {
        /// The partition, the first if several.
        partition: u32,
        /// The maximum, as it came.
        value: u32,
    },
}

/// A session ends; workers must join anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// P14.
    #[error(
        "workers called different all-reduces: {} here, but {who} called {} where others called {}: {}",
        OptionalCall(*mine), Call(*refused), Call(*slot), Difference(*refused, *slot)
    )]
    Mismatch {
        /// This worker's call on that slot, if it has one already.
        mine: Option<Norm>,
        /// Who was refused.
        who: Who,
        /// What the others have.
        slot: Norm,
        /// What it has.
        refused: Norm,
    },
    /// The aggregator answers, but not all workers have sent.
    #[error("still missing after {} s: {}; check that all run, or raise the timeout", seconds(*waited), Workers(*missing))]
    Missing {
        /// One bit per worker that is not in the slot all wait for.
        missing: u64,
        /// How long nothing has moved.
        waited: Duration,
    },
    /// P25: members have left, or ended, and have not sent what this worker waits for.
    #[error("{} left or ended before all-reduce #{call} of the session was done: all workers must join anew", Workers(*members))]
    Left {
        /// One bit per member that has left and is not in the slot this worker waits for.
        members: u64,
        /// The number of the call of that slot, from 0.
        call: u64,
        /// How long nothing has moved.
        waited: Duration,
    },
    /// The aggregator answers, but not all racks have sent.
    #[error("still missing after {} s: {}; check that all run, or raise the timeout", seconds(*waited), OfRacks(*missing))]
    MissingRacks {
        /// One bit per rack that is not in the slot all wait for.
        missing: u64,
        /// How long nothing has moved.
        waited: Duration,
    },
    /// P19: the maximum of a partition is below this worker's own norm.
    #[error(
        "the largest norm of partition {partition} came back as {:e}, below this worker's own {:e}: a packet was \
         damaged on the way, join anew", f32::from_bits(*maximum), f32::from_bits(*own)
    )]
    NormLost {
        /// The partition.
        partition: u32,
        /// This worker's value, f32 bits.
        own: u32,
        /// The maximum, f32 bits.
        maximum: u32,
    },
    /// Nothing comes back.
    #[error("the parameter server has not answered for {} s: check that it runs and that this host reaches it", seconds(*waited))]
    Silent {
        /// How long.
        waited: Duration,
    },
    /// A slot has gone on although this worker still needs it, which no honest packet can cause (P18).
    #[error(
        "slot {slot} of the aggregator is in round {current}, but round {round} has not been finished here: packets were changed on their way or forged; all workers must join anew"
    )]
    Overtaken {
        /// The slot.
        slot: SlotId,
        /// The round that this worker waits for.
        round: Round,
        /// The slot's.
        current: Round,
    },
    /// The session has a new incarnation (P24).
    #[error("{}: all workers must join anew", Restarted(*worker))]
    Reforming {
        /// The worker that restarted, or [`WorkerId::NONE`] if that is not known.
        worker: WorkerId,
    },
    /// The server was restarted with another configuration of the job (P24).
    #[error(
        "the parameter server was restarted with another configuration ({change}): all workers must join anew"
    )]
    Changed {
        /// What differs.
        change: Change,
    },
}

/// Who has called another all-reduce than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// This member of the same aggregator.
    Worker(WorkerId),
    /// This member of this rack; all of the rack's if it is `None`.
    OfRack(WorkerId, Option<WorkerId>),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Worker(worker) => write!(f, "worker {worker}"),
            Who::OfRack(rack, Some(worker)) => write!(f, "worker {worker} of rack {rack}"),
            Who::OfRack(rack, None) => write!(f, "rack {rack}"),
        }
    }
}

/// Racks by their bits, in words.
pub struct OfRacks(pub u64);

impl fmt::Display for OfRacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("workers of ")?;
        list(f, "rack", self.0)
    }
}

/// `worker 3` or `workers 3, 4`, by bits.
fn list(f: &mut fmt::Formatter<'_>, what: &str, bits: u64) -> fmt::Result {
    write!(f, "{what}{}", if bits.count_ones() == 1 { "" } else { "s" })?;
    let mut separator = " ";
    for number in (0..64).filter(|n| bits >> n & 1 == 1) {
        write!(f, "{separator}{number}")?;
        separator = ", ";
    }
    Ok(())
}

struct Restarted(WorkerId);

impl fmt::Display for Restarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == WorkerId::NONE {
            f.write_str("the session has ended")
        } else {
            write!(f, "worker {} has restarted", self.0)
        }
    }
}

fn seconds(d: Duration) -> String {
    format!("{:.1}", d.as_secs_f64())
}

/// Lists the workers of a bitmap: "worker 2", "workers 2, 3".
#[derive(Clone, Copy, Debug)]
pub struct Workers(pub u64);

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, "worker", self.0)
    }
}

struct Call(Norm);

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Norm { call, length, key, .. } = self.0;
        write!(f, "all-reduce #{call} of {length} coordinates (tensor {key:#x}, {})", How(self.0))
    }
}

/// How coordinates travel.
struct How(Norm);

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.0.table;
        match self.0.mode {
            0 => write!(f, "table {table}"),
            1 if table == TableId(0) => f.write_str("uncompressed"),
            1 => write!(f, "uncompressed, table {table}"),
            mode => write!(f, "mode {mode}, table {table}"),
        }
    }
}

/// The fields that differ, as the refused worker has them and as the others do.
struct Difference(Norm, Norm);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference(a, b) = self;
        let fields = [
            ("number", u64::from(a.call), u64::from(b.call)),
            ("length", a.length.into(), b.length.into()),
            ("tensor", a.key.into(), b.key.into()),
            ("mode", a.mode.into(), b.mode.into()),
            ("table", a.table.0.into(), b.table.0.into()),
        ];
        let mut separator = "they differ in ";
        for (name, a, b) in fields.into_iter().filter(|(_, a, b)| a != b) {
            match name {
                "tensor" => write!(f, "{separator}{name} ({a:#x}, {b:#x})")?,
                _ => write!(f, "{separator}{name} ({a}, {b})")?,
            }
            separator = ", ";
        }
        match separator {
            ", " => Ok(()),
            // What a tag stands for beside these fields (P3).
            _ if a.tag != b.tag => f.write_str("their plans cut the tensor into other spans"),
            // Their tags differ, or nobody would have been refused.
            _ => f.write_str("a NORM was changed on its way"),
        }
    }
}

struct OptionalCall(Option<Norm>);

impl fmt::Display for OptionalCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(norm) => Call(norm).fmt(f),
            None => f.write_str("nothing yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_names_every_field_that_differs() {
        let others = Norm { tag: 1, value: 7, length: 100, call: 3, table: TableId(1), mode: 0, key: 0xAB };
        let told = |refused: Norm| {
            let error =
                SessionError::Mismatch { mine: None, who: Who::Worker(WorkerId(2)), slot: others, refused };
            error.to_string()
        };
        let table = told(Norm { table: TableId(2), ..others });
        assert!(table.ends_with("(tensor 0xab, table 1): they differ in table (2, 1)"), "{table}");
        let raw = told(Norm { mode: 1, ..others });
        assert!(
            raw.ends_with("they differ in mode (1, 0)") && raw.contains("uncompressed, table 1"),
            "{raw}"
        );
        let all = told(Norm { tag: 3, value: 1, length: 5, call: 4, table: TableId(0), mode: 1, key: 0x10 });
        assert!(
            all.ends_with(
                "in number (4, 3), length (5, 100), tensor (0x10, 0xab), mode (1, 0), table (0, 1)"
            )
        );
        let none = told(others);
        assert!(none.ends_with("a NORM was changed on its way"), "{none}");
        let spans = told(Norm { tag: 2, ..others });
        assert!(spans.ends_with("their plans cut the tensor into other spans"), "{spans}");
    }
}
