//! Rows as in a switch's tables, and what they mean for the shards: [`View`] is a function of the [`Store`].

mod entry;
mod program;
mod statics;
mod store;
mod view;

#[cfg(test)]
mod tests;

pub use entry::Entry;
pub use program::{
    Counter, CounterKind, MatchTable, Program, ProgramField, set_addresses, set_forms, set_room,
};
pub use statics::StaticRows;
pub use store::{Key, MulticastGroup, Replica, RowChange, Store};
pub use view::{Held, JobView, Levels, Used, View, ViewChanges, check, control_kinds, lookup};
