//! Errors of calls and sessions.

use crate::wire::{Change, Norm};
use crate::{Rank, Round, SlotId, TableId, WorkerId};
use std::fmt;
use std::time::Duration;

/// A call fails on all workers alike; the session continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name them")]
pub enum CallError {
    /// P19 non-finite gradients; `worker` is the highest number if several have one.
    #[error(
        "worker {worker} has a NaN or an infinity in its gradient, or a norm beyond f32: this all-reduce failed on every worker"
    )]
    NonFinite { worker: Rank },
    /// P19 non-finite gradients: the slot holds a maximum that no worker may send. `value` has f32 bits.
    #[error(
        "the norm of partition {partition} is {value:#010x}, which no worker may send: a packet was damaged on the \
         way, and this all-reduce failed on every worker"
    )]
    Norm { partition: u32, value: u32 },
}

/// A session ends; workers must join anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages name them")]
pub enum SessionError {
    /// P14 different collectives. `mine` is this worker's NORM in that slot, `slot` that of the others, `refused` that of `who`.
    #[error(
        "workers called different all-reduces: {} here, but {who} called {} where others called {}: {}",
        mine.as_ref().map_or("nothing yet".to_owned(), call_of), call_of(refused), call_of(slot), difference(refused, slot)
    )]
    Mismatch { mine: Option<Norm>, who: Who, slot: Norm, refused: Norm },
    /// The aggregator answers, but not all workers have sent: `missing` has a bit for each that has not.
    #[error("still missing after {} s: {}; check that all run, or raise timeout and patience", seconds(*waited), Workers(*missing))]
    Missing { missing: u64, waited: Duration },
    /// P25 LEAVE: `members` (one bit each) have left and have not sent what this worker waits for, a packet of `call`.
    #[error("{} left or ended before all-reduce #{call} of the session was done: all workers must join anew", Workers(*members))]
    Left { members: u64, call: u64, waited: Duration },
    /// The root answers, but not all racks have sent: `missing` has a bit for each that has not.
    #[error("still missing after {} s: {}; check that all run, or raise timeout and patience", seconds(*waited), OfRacks(*missing))]
    MissingRacks { missing: u64, waited: Duration },
    /// P19 non-finite gradients: the maximum of a partition is below this worker's own norm; both are f32 bits.
    #[error(
        "the largest norm of partition {partition} came back as {:e}, below this worker's own {:e}: a packet was \
         damaged on the way, join anew", f32::from_bits(*maximum), f32::from_bits(*own)
    )]
    NormLost { partition: u32, own: u32, maximum: u32 },
    /// The aggregator has been silent for this time.
    #[error("the parameter server has not answered for {} s: check that it runs and that this host reaches it", seconds(*waited))]
    Silent { waited: Duration },
    /// P18 window: a slot has taken a newer round although this worker still needs it, which no honest packet can cause.
    #[error(
        "slot {slot} of the aggregator is in round {current}, but round {round} has not been finished here: packets were changed on their way or forged; all workers must join anew"
    )]
    Overtaken { slot: SlotId, round: Round, current: Round },
    /// P24 incarnations: `worker` has restarted, or [`WorkerId::NONE`] if that is not known.
    #[error("{}: all workers must join anew", restarted(*worker))]
    Reforming { worker: WorkerId },
    /// P24 incarnations: the job has been configured anew.
    #[error(
        "the parameter server was restarted with another configuration ({change}): all workers must join anew"
    )]
    Changed { change: Change },
}

/// A worker, or a rack, that has called another all-reduce than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A member of the same aggregator.
    Worker(WorkerId),
    /// A rack, and its member; `None` stands for all of its members.
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

/// Lists the racks of a bitmap: "workers of rack 2", "workers of racks 2, 3".
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

fn restarted(worker: WorkerId) -> String {
    match worker {
        WorkerId::NONE => "the session has ended".to_owned(),
        _ => format!("worker {worker} has restarted"),
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

fn call_of(norm: &Norm) -> String {
    let Norm { call, length, key, table, mode, .. } = norm;
    let how = match mode {
        0 => format!("table {table}"),
        1 if *table == TableId(0) => "uncompressed".to_owned(),
        1 => format!("uncompressed, table {table}"),
        _ => format!("mode {mode}, table {table}"),
    };
    format!("all-reduce #{call} of {length} coordinates (tensor {key:#x}, {how})")
}

/// The fields that differ, as the refused worker has them and as the others do.
fn difference(refused: &Norm, slot: &Norm) -> String {
    let differs = |name, a: u64, b: u64| (a != b).then(|| format!("{name} ({a}, {b})"));
    let fields = [
        differs("number", refused.call.into(), slot.call.into()),
        differs("length", refused.length.into(), slot.length.into()),
        (refused.key != slot.key).then(|| format!("tensor ({:#x}, {:#x})", refused.key, slot.key)),
        differs("mode", refused.mode.into(), slot.mode.into()),
        differs("table", refused.table.0.into(), slot.table.0.into()),
    ];
    let fields: Vec<String> = fields.into_iter().flatten().collect();
    match fields.as_slice() {
        // A tag also covers the number of partitions (P3 NORM payload).
        [] if refused.tag != slot.tag => "their plans cut the tensor into other spans".to_owned(),
        // An aggregator refuses only NORMs with another tag.
        [] => "a NORM was changed on its way".to_owned(),
        _ => format!("they differ in {}", fields.join(", ")),
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
