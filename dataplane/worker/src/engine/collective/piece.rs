//! The pieces of a tensor, and what a thread needs for a group of partitions of one.

use std::ops::Range;
use thc_codec::buffer::Buffer;
use thc_codec::partition::MAX_PARTITION;

/// Coordinates of a piece, the last one of a tensor aside.
pub const PIECE: usize = MAX_PARTITION;

/// Neighbouring partitions that are computed together.
pub(super) struct Group {
    pub(super) parts: Range<usize>,
    /// Coordinates of the tensor.
    pub(super) range: Range<usize>,
}

/// Memory of one thread for one group of partitions at a time.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) work: Option<Buffer>,
    pub(super) packed: Vec<u8>,
    pub(super) bytes: Vec<u8>,
    pub(super) counts: Vec<u16>,
}

impl Scratch {
    pub(super) fn work(&mut self, coordinates: usize) -> &mut [f32] {
        if self.work.as_ref().is_none_or(|work| work.len() < coordinates) {
            self.work = Some(Buffer::zeroed(coordinates));
        }
        self.work.as_deref_mut().map_or(&mut [], |work| &mut work[..coordinates])
    }
}

/// A group's part of a piece, its error feedback before and after, and its words.
pub(super) struct Share<'d> {
    pub(super) group: &'d Group,
    pub(super) x: &'d [f32],
    pub(super) fed: Option<(&'d [f32], &'d mut [f32])>,
    pub(super) words: &'d mut [u32],
}

/// The first `length` of `all`, which keeps the rest.
pub(super) fn take<'d, T>(all: &mut &'d mut [T], length: usize) -> &'d mut [T] {
    let (first, rest) = std::mem::take(all).split_at_mut(length);
    *all = rest;
    first
}

/// The place of a group in chunks of error feedback: no group lies across two.
pub(super) fn chunk<'d>(chunks: &'d [Buffer], range: &Range<usize>) -> &'d [f32] {
    &chunks[range.start / PIECE][range.start % PIECE..][..range.len()]
}
