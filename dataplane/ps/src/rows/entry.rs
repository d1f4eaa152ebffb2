//! The action of a row.

use std::fmt;

/// The action of a row. Its parameters may be secrets, so `Debug` does not show them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// Number of the action.
    pub action: u32,
    /// Values in the order of the action's parameters.
    pub params: Vec<u128>,
    /// The controller's own, kept for it.
    pub metadata: Vec<u8>,
    /// The controller's own, kept for it.
    pub controller_metadata: u64,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "action {} with {} parameters", self.action, self.params.len())
    }
}
