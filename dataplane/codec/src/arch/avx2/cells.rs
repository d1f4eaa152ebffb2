//! A [`Grid`] in the registers of AVX2, and how its cells are looked up.

use std::arch::x86_64::*;

use crate::grid::{Bounds, FEW, Grid};

/// 16 floats, one for each index: entries 0 to 7 and 8 to 15.
type Entries = [__m256; 2];

/// The arrays of a [`Grid`] in registers.
pub(in crate::arch) struct Cells {
    pub(super) slope: Entries,
    pub(super) start: Entries,
    pub(super) value: Entries,
    /// [`Grid::lower_nibbles`].
    pub(super) lower: [__m256i; 4],
    /// [`Grid::lower`] of cells 0 to 15, 16 to 31 and so on, each twice.
    pub(super) lower_bytes: [__m256i; 4],
    /// `true` if there are no cells from [`FEW`] on.
    pub(super) few: bool,
    pub(super) slope_bytes: [__m256i; 4],
    pub(super) start_bytes: [__m256i; 4],
    pub(super) value_bytes: [__m256i; 4],
}

impl Cells {
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    pub(super) fn new(grid: &Grid, span: &Bounds) -> Cells {
        let nibbles = grid.lower_nibbles.as_ptr().cast::<__m256i>();
        // SAFETY: `lower_nibbles` has 32 words.
        let lower = |i: usize| unsafe { _mm256_loadu_si256(nibbles.add(i)) };
        // SAFETY: the arrays have 256 floats.
        let floats = |x: &[f32; 256], i: usize| unsafe { _mm256_loadu_ps(x.as_ptr().add(8 * i)) };
        let (step, lo) = (_mm256_set1_ps(span.step), _mm256_set1_ps(span.lo));
        let value = |i| _mm256_add_ps(_mm256_mul_ps(floats(&grid.point, i), step), lo);
        let [a, b, c, d, ..] = grid.lower.as_chunks().0 else { unreachable!("there are 256 cells") };
        let first = |x: &[f32; 256]| std::array::from_fn(|i| x[i]);
        Cells {
            slope: [floats(&grid.slope, 0), floats(&grid.slope, 1)],
            start: [floats(&grid.start, 0), floats(&grid.start, 1)],
            value: [value(0), value(1)],
            lower: [lower(0), lower(1), lower(2), lower(3)],
            lower_bytes: [sixteen(a), sixteen(b), sixteen(c), sixteen(d)],
            few: grid.granularity < FEW,
            slope_bytes: apart(first(&grid.slope)),
            start_bytes: apart(first(&grid.start)),
            value_bytes: apart(std::array::from_fn(|i| grid.point[i] * span.step + span.lo)),
        }
    }

    /// The lower index of cells of up to 255, and the slope and start of its threshold.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    pub(super) fn look_up(&self, cell: __m256i) -> (__m256i, __m256, __m256) {
        // Eight cells share a word of `lower`.
        let shift = _mm256_and_si256(_mm256_slli_epi32::<2>(cell), _mm256_set1_epi32(28));
        let lower = _mm256_srlv_epi32(lower_word(self.lower, cell), shift);
        let lower = _mm256_and_si256(lower, _mm256_set1_epi32(15));
        (lower, entry(self.slope, lower), entry(self.start, lower))
    }
}

/// `if_set` in the lanes where bit `BIT` of `index` is set, else `if_clear`. `UP` is 31 − BIT.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn select<const UP: i32>(index: __m256i, if_clear: __m256i, if_set: __m256i) -> __m256i {
    _mm256_castps_si256(_mm256_blendv_ps(
        _mm256_castsi256_ps(if_clear),
        _mm256_castsi256_ps(if_set),
        _mm256_castsi256_ps(_mm256_slli_epi32::<UP>(index)),
    ))
}

/// The entries of indices of up to 15.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(super) fn entry(entries: Entries, index: __m256i) -> __m256 {
    _mm256_castsi256_ps(select::<28>(
        index,
        _mm256_castps_si256(_mm256_permutevar8x32_ps(entries[0], index)),
        _mm256_castps_si256(_mm256_permutevar8x32_ps(entries[1], index)),
    ))
}

/// The word of `lower` that holds a cell's entry: entry `cell / 8` of 32.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn lower_word(lower: [__m256i; 4], cell: __m256i) -> __m256i {
    // The permutation looks at three bits of the index.
    let at = _mm256_srli_epi32::<3>(cell);
    let first = _mm256_permutevar8x32_epi32(lower[0], at);
    let second = _mm256_permutevar8x32_epi32(lower[1], at);
    let third = _mm256_permutevar8x32_epi32(lower[2], at);
    let fourth = _mm256_permutevar8x32_epi32(lower[3], at);
    select::<27>(at, select::<28>(at, first, second), select::<28>(at, third, fourth))
}

/// The low bytes of four vectors: byte 16l + 4v + i is that of number 4l + i of vector v.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(super) fn bytes([a, b, c, d]: [__m256i; 4]) -> __m256i {
    _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d))
}

/// Undoes `bytes` for floats whose bytes, from the lowest on, are in four vectors.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn floats_of_bytes([a, b, c, d]: [__m256i; 4]) -> [__m256; 4] {
    let (low, low_end) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
    let (high, high_end) = (_mm256_unpacklo_epi8(c, d), _mm256_unpackhi_epi8(c, d));
    [
        _mm256_unpacklo_epi16(low, high),
        _mm256_unpackhi_epi16(low, high),
        _mm256_unpacklo_epi16(low_end, high_end),
        _mm256_unpackhi_epi16(low_end, high_end),
    ]
    .map(|v| _mm256_castsi256_ps(v))
}

/// The entries of 32 indices of up to 15 in a table whose bytes are apart.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(super) fn entries(table: &[__m256i; 4], index: __m256i) -> [__m256; 4] {
    let [a, b, c, d] = *table;
    let of = |bytes| _mm256_shuffle_epi8(bytes, index);
    floats_of_bytes([of(a), of(b), of(c), of(d)])
}

/// The bytes of 16 floats: first the lowest bytes of all, twice, and so on.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn apart(floats: [f32; 16]) -> [__m256i; 4] {
    let byte = |at: usize| sixteen(&floats.map(|v| v.to_bits().to_le_bytes()[at]));
    [byte(0), byte(1), byte(2), byte(3)]
}

/// 16 bytes in each half.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(super) fn sixteen(bytes: &[u8; 16]) -> __m256i {
    // SAFETY: there are 16 bytes.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}
