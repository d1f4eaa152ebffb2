//! The operations that kernels need of an instruction set.

use crate::grid::{Bounds, Grid};
use crate::scalar::norm::PARTIAL_SUMS;

/// The indices of a quarter of a group: as many vectors as 16 coordinates take.
pub(in crate::arch) type Quarter<V> = [<V as Vector>::Bits; 4];

/// A vector of floats, and what an instruction set does with it and with as many bits.
///
/// # Safety
///
/// `Sums` are 32 doubles.
///
/// Each method is compiled for the target features of its instruction set. Only functions with these features may
/// call it, or `inline(always)` functions that only such functions call. Memory behind a pointer must be valid for a
/// whole vector, and may lie at any address.
pub(super) unsafe trait Vector: Copy {
    /// As many bits as the floats have, as numbers of 32 bits or as bytes.
    type Bits: Copy;
    /// The 32 partial sums of [`norm`](crate::norm): doubles without padding, in their order.
    type Sums: Copy;
    /// A [`Grid`] as [`look_up`](Self::look_up) and [`value`](Self::value) take it.
    type Cells;
    /// The indices of half a group.
    type Half: Copy;

    /// Number of floats: 4, 8 or 16.
    const LANES: usize;
    /// Number of registers: 16 or 32.
    const REGISTERS: usize;
    /// The granularity below which tables are [`SMALL`](crate::arch::groups::SMALL).
    const SMALL_BELOW: u8;
    /// `true` if `look_up` takes tables that are [`LARGE`](crate::arch::groups::LARGE).
    const TAKES_LARGE: bool;
    /// `true` if `half_by_bytes` takes the place of `look_up`, `round_up` and `value` for tables that are SMALL.
    const BY_BYTES: bool = false;

    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Stores to memory that is aligned to a vector, past the caches where the processor can. `prefetch::fence` orders such
    /// stores before later ones.
    #[inline(always)]
    unsafe fn stream(self, to: *mut f32) {
        // SAFETY: passed on.
        unsafe { self.store(to) };
    }
    /// All lanes equal.
    unsafe fn splat(v: f32) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// `self` times `factor` plus `other`, rounded once.
    unsafe fn mul_add(self, factor: Self, other: Self) -> Self;
    /// Flips the sign of lane i where bit `at` + i of `word` is set. `at` is a multiple of LANES below 64.
    unsafe fn flip(self, word: &u64, at: usize) -> Self;
    /// `positive` in the lanes where bit `at` + i of `words` is not set, and `negative`, which is −`positive`, where it is.
    /// `at` is a multiple of LANES. Another word follows that of bit `at`.
    #[inline(always)]
    unsafe fn signed(positive: Self, _negative: Self, words: *const u64, at: usize) -> Self {
        // SAFETY: passed on.
        unsafe { positive.flip(&*words.add(at / 64), at % 64) }
    }
    /// Butterflies between lanes at distance LANES/2, .., 2, 1 if `descending`, else 1, 2, .., LANES/2.
    unsafe fn transform_lanes(self, descending: bool) -> Self;

    /// Adds the squares of 32 floats, or of their sums with 32 others.
    unsafe fn add_squares(sums: &mut Self::Sums, x: &[f32; PARTIAL_SUMS], e: Option<&[f32; PARTIAL_SUMS]>);

    unsafe fn splat_bits(v: u32) -> Self::Bits;
    /// `first` plus the number of the lane.
    unsafe fn count_from(first: u32) -> Self::Bits;
    /// Adds numbers of 32 bits.
    unsafe fn add_bits(a: Self::Bits, b: Self::Bits) -> Self::Bits;
    /// [`Rounding::word`](crate::rounding::Rounding::word) XOR `stratum` of the words whose number + k0 is `x`.
    unsafe fn words(x: Self::Bits, k1: Self::Bits, stratum: Self::Bits) -> Self::Bits;
    /// 1 + the draws in words rotated right by `BYTES` bytes.
    unsafe fn draws<const BYTES: usize>(words: Self::Bits) -> Self;
    /// At least 0 and at most `end`; 0 for NaN. Numbers below 0 and NaN may stay if `look_up::<KIND>` takes the cells
    /// that `floor` makes of them for the first.
    unsafe fn clamp<const KIND: u8>(self, end: Self) -> Self;
    /// Floats to numbers, rounded down.
    unsafe fn floor(self) -> Self::Bits;
    /// Numbers below 2^24 to floats.
    unsafe fn floats(numbers: Self::Bits) -> Self;
    unsafe fn cells(grid: &Grid, span: &Bounds) -> Self::Cells;
    /// The index of each grid cell, and its slope and start. `KIND` is SMALL or LARGE.
    unsafe fn look_up<const KIND: u8>(cells: &Self::Cells, cell: Self::Bits) -> (Self::Bits, Self, Self);
    /// The value of each index.
    unsafe fn value(cells: &Self::Cells, index: Self::Bits) -> Self;
    /// Adds 1 to the indices of coordinates whose draw is below the threshold.
    unsafe fn round_up(cells: &Self::Cells, index: Self::Bits, draw: Self, threshold: Self) -> Self::Bits;
    /// The indices and values of four vectors, half a group, of positions on the grid and draws.
    #[inline(always)]
    unsafe fn half_by_bytes(_: &Self::Cells, _: &[Self; 4], _: &[Self; 4]) -> (Self::Half, [Self; 4]) {
        unreachable!("no instruction set without BY_BYTES comes here")
    }
    /// Two quarters of a group.
    unsafe fn half(first: &Quarter<Self>, second: &Quarter<Self>) -> Self::Half;
    /// Writes the indices of a group, one per byte.
    unsafe fn store_indices(halves: [Self::Half; 2], out: &mut [u8; 64]);
    /// Writes the indices of a group, two per byte, the first in the high half.
    unsafe fn store_packed4(halves: [Self::Half; 2], out: &mut [u8; 32]);

    /// Indices of `WIDTH` bits in the low bits of a word to indices of 4 bits.
    #[inline(always)]
    unsafe fn open<const WIDTH: u32>(closed: u64) -> u64 {
        crate::scalar::pack::open::<WIDTH>(closed)
    }

    unsafe fn load_bits(from: *const u8) -> Self::Bits;
    unsafe fn store_bits(v: Self::Bits, to: *mut u8);
    /// A table of 16 bytes as the next three take it.
    unsafe fn broadcast(table: &[u8; 16]) -> Self::Bits;
    /// The table's values of as many bytes of indices as a vector has, in lanes of 8 bits.
    unsafe fn values(table: Self::Bits, packed: *const u8) -> [Self::Bits; 2];
    /// The table's values in lanes of 16 bits, as [`add16`](Self::add16) takes them.
    unsafe fn values_wide(table: Self::Bits, packed: *const u8) -> [Self::Bits; 4];
    /// The tables' values in lanes of 4 bits; `tables` are for the upper and for the lower lanes.
    unsafe fn values_half(tables: [Self::Bits; 2], packed: *const u8) -> Self::Bits;
    /// Results of `values_wide` in wire order.
    unsafe fn to_wire16(values: Self::Bits) -> Self::Bits;
    /// Adds bytes.
    unsafe fn add8(lanes: Self::Bits, values: Self::Bits) -> Self::Bits;
    /// Adds results of `values_wide` to 16-bit lanes in wire order.
    unsafe fn add16(lanes: Self::Bits, values: Self::Bits) -> Self::Bits;
}
