//! Partitions with their norms.

use std::ops::Range;
use thc_codec::partition::Partition;
use thc_protocol::wire::Choice;

/// A partition, how it travels, and the largest norm of its workers, f32 bits.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Measured {
    pub part: Partition,
    /// The group in which it is computed.
    pub group: u32,
    /// Its first coordinate among the padded ones of its group.
    pub start: usize,
    pub choice: Choice,
    pub norm: u32,
    /// True if the other workers went on without it: then all of it stays in the error feedback.
    pub left_out: bool,
    /// `true` if its tensor is larger than caches.
    pub far: bool,
}

impl Measured {
    /// The place of its coordinates in the group that begins at `offset` of the tensor.
    pub fn place(&self, offset: usize) -> Range<usize> {
        self.part.offset - offset..self.part.offset - offset + self.part.len
    }

    /// The place of its padded coordinates among those of its group.
    pub fn padded_range(&self) -> Range<usize> {
        self.start..self.start + self.part.padded
    }
}
