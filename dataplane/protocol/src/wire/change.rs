//! In what two WELCOMEs differ.

use super::Welcome;
use super::tables::{ROW_LEN, Row};
use crate::Policy;
use std::fmt;

/// The difference between a job and its earlier form: the first field that differs, and the number of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The first field that differs, in words.
    pub field: &'static str,
    was: Value,
    is: Value,
    /// Number of other fields that differ.
    pub others: u8,
}

/// A field's value, as a message shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Number(u64),
    /// f64 bits.
    Real(u64),
    Policy(Policy),
    Micros(u64),
    /// Values of which a message says only that they differ: `true` where they do.
    Whole(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => number.fmt(f),
            Value::Real(bits) => f64::from_bits(*bits).fmt(f),
            Value::Policy(Policy::Reliable) => f.write_str("reliable"),
            Value::Policy(Policy::BestEffort) => f.write_str("best-effort"),
            Value::Micros(micros) => write!(f, "{micros} µs"),
            Value::Whole(_) => f.write_str("other"),
        }
    }
}

impl Change {
    /// Returns the difference of `is` from `was`; `None` if a session of the one may go on as one of the other (P24 incarnations).
    pub fn compare(was: &Welcome, is: &Welcome) -> Option<Change> {
        let all = fields(was, is);
        let mut differ = all.into_iter().filter(|(_, was, is)| was != is);
        let (field, was, is) = differ.next()?;
        Some(Change { field, was, is, others: differ.count() as u8 })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { field, was, is, others } = self;
        match is {
            Value::Whole(_) => write!(f, "other {field}")?,
            _ => write!(f, "{field} {is} instead of {was}")?,
        }
        match others {
            0 => Ok(()),
            1 => f.write_str(", and one difference more"),
            n => write!(f, ", and {n} differences more"),
        }
    }
}

/// The further tables as WELCOME has them, so that a t_p that is no number is equal to itself.
fn rows(w: &Welcome) -> impl Iterator<Item = [u8; ROW_LEN]> {
    w.tables[1..].iter().map(|table| Row::new(table).to_bytes())
}

/// Every field that must be equal for a session to go on (P24), with its two values. What an operator chooses comes first,
/// what follows from it later.
fn fields(was: &Welcome, is: &Welcome) -> [(&'static str, Value, Value); 25] {
    let both = |field, value: &dyn Fn(&Welcome) -> Value| (field, value(was), value(is));
    let number = |field, value: fn(&Welcome) -> u64| both(field, &|w| Value::Number(value(w)));
    let real = |field, value: fn(&Welcome) -> f64| both(field, &|w| Value::Real(value(w).to_bits()));
    let whole = |field, same: bool| (field, Value::Whole(false), Value::Whole(!same));
    let of_racks = |field, value: fn(&super::Rack) -> u64| {
        both(field, &|w| Value::Number(w.rack.as_ref().map_or(0, value)))
    };
    let layout = |w: &Welcome| w.rack.map(|rack| rack.layout);
    [
        number("workers", |w| w.workers.into()),
        number("quorum", |w| w.quorum.into()),
        number("lane", |w| w.tables.first().form.sums().into()),
        both("policy", &|w| Value::Policy(w.policy)),
        both("deadline", &|w| Value::Micros(w.deadline.as_micros() as u64)),
        number("data slots", |w| w.data_slots.into()),
        number("norm slots", |w| w.norm_slots.into()),
        number("shards", |w| w.shards.into()),
        whole("shares", was.shares == is.shares),
        number("bits", |w| w.tables.first().bits.into()),
        number("bits per index", |w| w.tables.first().form.width().into()),
        number("granularity", |w| w.tables.first().granularity.into()),
        real("fraction", |w| w.tables.first().fraction),
        real("t_p", |w| w.tables.first().t_p),
        whole("table values", was.tables.first().values == is.tables.first().values),
        number("table id", |w| w.tables.first().id.0.into()),
        whole("seed", was.job_seed == is.job_seed),
        number("block size", |w| w.block.into()),
        number("features", |w| w.features.into()),
        whole("further tables", rows(was).eq(rows(is))),
        of_racks("racks", |rack| rack.racks.into()),
        of_racks("workers of all racks", |rack| rack.workers.into()),
        of_racks("quorum of all racks", |rack| rack.quorum.into()),
        of_racks("number of the rack", |rack| u64::from(rack.rack.0) << 16 | u64::from(rack.first.0)),
        whole("sizes of racks", layout(was) == layout(is)),
    ]
}
