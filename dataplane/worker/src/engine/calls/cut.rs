//! Cuts tensors into partitions, and these into groups that are computed together.

use crate::Span;
use crate::engine::compressor::PACKET;
use thc_codec::partition::{self, MAX_PARTITION, Partition};
use thc_protocol::wire::Choice;

/// Coordinates that are computed in one go if partitions are smaller: a hundred microseconds or less, and 64
/// packets of 8-bit lanes, as many as go to the kernel in one piece. No group lies across a multiple of it,
/// or of a larger partition's size.
pub(in crate::engine) const GROUP: usize = 1 << 16;

/// Coordinates from which on a tensor is larger than the caches of a core.
pub(super) const FAR: usize = 1 << 22;

/// RESULTs that a kernel takes in one piece at most: 64 KiB with its headers.
const RESULTS: usize = 62;

/// Coordinates of a group, in a job with partitions of 2^`block` whose server has `ports` ports. With one
/// port these are as many whole partitions as have RESULTs that come in one piece; each of several ports has
/// 64 slots in a row.
pub(in crate::engine) fn group_len(block: u8, ports: u8) -> usize {
    let partition = 1 << block;
    if ports > 1 || partition > GROUP / 4 {
        return GROUP.max(partition);
    }
    RESULTS * PACKET / partition * partition
}

/// A tensor as its spans cut it (P4): each partition, and how it travels.
pub(super) fn cut(plan: &[Span], block: u8) -> Vec<(Choice, Partition)> {
    let mut parts = Vec::new();
    let mut begin = 0;
    for &Span { length, choice } in plan {
        let end = begin + length;
        while begin < end {
            // No partition lies across a multiple of the largest.
            let piece = (MAX_PARTITION - begin % MAX_PARTITION).min(end - begin);
            let number = parts.len() as u32;
            parts.extend(partition::split(piece, block).map(|part| {
                let moved = Partition { index: number + part.index, offset: begin + part.offset, ..part };
                (choice, moved)
            }));
            begin += piece;
        }
    }
    parts
}
