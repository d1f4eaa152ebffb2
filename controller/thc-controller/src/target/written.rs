//! The outcome of a write to a switch.

use p4runtime_proto::v1::Update;

/// An update that a switch has refused, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedUpdate {
    /// What was to be done.
    pub update: Update,
    /// What the switch says.
    pub why: String,
}

/// What became of updates.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// All were made.
    All,
    /// These updates were refused. The others of their request were made, those of later requests were not
    /// tried.
    But(Vec<RefusedUpdate>),
    /// Some were refused, and the switch does not say which: its answer.
    NotAll(String),
}
