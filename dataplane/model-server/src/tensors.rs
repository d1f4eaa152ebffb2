//! The tensors of a model, and the blocks in which they travel: each has a scale of its own.
//!
//! A tensor of small numbers beside one of large numbers keeps its precision, because no scale is shared between tensors.
//! Within a tensor a scale covers at most [`BLOCK`] coordinates, so that one outlier costs only its own block.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Most coordinates of one scale.
pub const BLOCK: usize = 1 << 13;
/// Most tensors of a model.
pub const MAX_TENSORS: usize = 1 << 14;
/// [`Tensor::bits`] of floats as they are.
pub const EXACT: u8 = 32;

/// A tensor, as neighbouring coordinates of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u8)", into = "(u64, u8)")]
pub struct Tensor {
    /// The number of coordinates.
    pub length: u64,
    /// Bits of a pulled coordinate: 2 to 16, or [`EXACT`].
    pub bits: u8,
}

impl From<(u64, u8)> for Tensor {
    fn from((length, bits): (u64, u8)) -> Self {
        Self { length, bits }
    }
}

impl From<Tensor> for (u64, u8) {
    fn from(tensor: Tensor) -> Self {
        (tensor.length, tensor.bits)
    }
}

/// The part of a tensor that has one scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorBlock {
    /// Which coordinates.
    pub range: Range<usize>,
    /// The tensor's bits.
    pub bits: u8,
}

/// The blocks of the coordinates in `range` of a model, counted from the beginning of `range`. A block ends where its
/// tensor does, [`BLOCK`] coordinates after another began, and at the ends of `range`.
#[must_use]
pub fn blocks(tensors: &[Tensor], range: &Range<u64>) -> Vec<TensorBlock> {
    let mut blocks = Vec::new();
    let mut begin = 0;
    for tensor in tensors {
        let (from, to) = (begin.max(range.start), (begin + tensor.length).min(range.end));
        begin += tensor.length;
        // A tensor that is not rounded has no scale, and needs no blocks.
        let size = if tensor.bits == EXACT { u64::MAX } else { BLOCK as u64 };
        let mut at = from;
        while at < to {
            let end = at.saturating_add(size).min(to);
            let range = (at - range.start) as usize..(end - range.start) as usize;
            blocks.push(TensorBlock { range, bits: tensor.bits });
            at = end;
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_block_is_of_one_tensor() {
        let tensors = [(10, 8), (3, EXACT), (BLOCK as u64 + 5, 4)].map(Tensor::from);
        let of = |from, to| {
            blocks(&tensors, &(from..to)).into_iter().map(|b| (b.range, b.bits)).collect::<Vec<_>>()
        };
        let end = 13 + BLOCK + 5;
        assert_eq!(
            of(0, end as u64),
            [(0..10, 8), (10..13, EXACT), (13..13 + BLOCK, 4), (13 + BLOCK..end, 4)]
        );
        assert_eq!(of(5, 12), [(0..5, 8), (5..7, EXACT)]);
    }

    proptest! {
        #[test]
        fn blocks_cover_everything_once(
            lengths in prop::collection::vec((1_u64..20_000, prop_oneof![Just(8_u8), Just(EXACT)]), 1..20),
            from in 0.0_f64..1.0,
            to in 0.0_f64..1.0,
        ) {
            let tensors: Vec<Tensor> = lengths.into_iter().map(Tensor::from).collect();
            let total: u64 = tensors.iter().map(|t| t.length).sum();
            let ends = [(from * total as f64) as u64, (to * total as f64) as u64];
            let range = ends[0].min(ends[1])..ends[0].max(ends[1]);
            let mut next = 0;
            for block in blocks(&tensors, &range) {
                prop_assert_eq!(block.range.start, next);
                prop_assert!(!block.range.is_empty());
                prop_assert!(block.range.len() <= BLOCK || block.bits == EXACT);
                next = block.range.end;
            }
            prop_assert_eq!(next as u64, range.end - range.start);
        }
    }
}
