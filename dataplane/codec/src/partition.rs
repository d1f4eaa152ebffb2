//! How a tensor is cut into partitions, the unit of the transform (P4).
//!
//! Full partitions of the job's *block* come first, 2^10 to 2^20 coordinates each. The rest follows in
//! descending powers of two down to one packet of 1024, so padding stays below 1024 coordinates whatever the
//! tensor's length.

use std::ops::RangeInclusive;

/// log₂ of the coordinates that a full partition can have.
pub const BLOCKS: RangeInclusive<u8> = 10..=20;

/// log₂ of the coordinates of a full partition unless a job says otherwise: 32 KiB, which stay in the
/// first-level cache of common processors. With smaller ones, norms would bring the bytes up above 0.56 per
/// coordinate.
pub const DEFAULT_BLOCK: u8 = 13;

/// Largest partition, in coordinates (4 MiB of `f32`, the paper's partition size).
pub const MAX_PARTITION: usize = 1 << 20;

/// Smallest partition, in coordinates: one DATA packet.
pub const MIN_PARTITION: usize = 1024;

/// One partition of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Partition {
    /// Position among the tensor's partitions, from 0.
    pub index: u32,
    /// First coordinate of the tensor that it holds.
    pub offset: usize,
    /// Coordinates of the tensor that it holds.
    pub len: usize,
    /// Coordinates that are transformed: a power of two, `len` plus the zeros after it.
    pub padded: usize,
}

/// Cuts a tensor of `len` coordinates into full partitions of 2^`block` (the nearest of [`BLOCKS`]) and the rest. No
/// partitions for `len` 0; only the last may be padded.
pub fn split(len: usize, block: u8) -> impl Iterator<Item = Partition> {
    let full = 1 << block.clamp(*BLOCKS.start(), *BLOCKS.end());
    let mut index = 0;
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = len - offset;
        if rest == 0 {
            return None;
        }
        let padded = if rest < MIN_PARTITION { MIN_PARTITION } else { (1 << rest.ilog2()).min(full) };
        let partition = Partition { index, offset, len: rest.min(padded), padded };
        index += 1;
        offset += partition.len;
        Some(partition)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zero_gives_none_and_small_gives_one_packet() {
        assert_eq!(split(0, 20).count(), 0);
        for len in [1, 1023, 1024] {
            let all: Vec<_> = split(len, 13).collect();
            assert_eq!(all.len(), 1);
            assert_eq!((all[0].len, all[0].padded), (len, 1024));
        }
    }

    #[test]
    fn rest_descends_by_powers_of_two() {
        let lens = |len, block| split(len, block).map(|p| p.padded).collect::<Vec<_>>();
        let long = 2 * MAX_PARTITION + (1 << 19) + 4096 + 5;
        assert_eq!(lens(long, 20), [MAX_PARTITION, MAX_PARTITION, 1 << 19, 4096, MIN_PARTITION]);
        assert_eq!(lens(20_000, 13), [8192, 8192, 2048, 1024, 1024]);
        assert_eq!(lens(20_000, 10), [1024; 20]);
        assert_eq!((lens(5000, 0), lens(5000, 255)), (lens(5000, 10), lens(5000, 20)));
    }

    proptest! {
        #[test]
        fn covers_the_tensor_once_with_little_padding(len in 0usize..5_000_000, block in BLOCKS) {
            let all: Vec<_> = split(len, block).collect();
            let mut next = 0;
            for (i, p) in all.iter().enumerate() {
                prop_assert_eq!(p.index as usize, i);
                prop_assert_eq!(p.offset, next);
                prop_assert!(p.len > 0 && p.len <= p.padded);
                prop_assert!(p.padded.is_power_of_two());
                prop_assert!((MIN_PARTITION..=1 << block).contains(&p.padded));
                prop_assert!(i + 1 == all.len() || p.len == p.padded);
                prop_assert!(p.padded - p.len < MIN_PARTITION);
                next += p.len;
            }
            prop_assert_eq!(next, len);
        }
    }
}
