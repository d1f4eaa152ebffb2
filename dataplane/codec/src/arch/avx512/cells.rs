//! A [`Grid`] in the registers of AVX-512, and how its cells are looked up.

use std::arch::x86_64::*;

use crate::grid::{Bounds, FEW, Grid};

/// The granularity below which tables are [`SMALL`](crate::arch::groups::SMALL): cell 31 is that of what is below 0.
pub(super) const SMALL_BELOW: u8 = FEW - 1;

/// The arrays of a [`Grid`] in registers.
pub(in crate::arch) struct Cells {
    /// By index, or of a small table by cell: entries 0 to 15 and 16 to 31.
    slope: [__m512; 2],
    start: [__m512; 2],
    pub(super) value: __m512,
    /// The index of each cell: of a small table one per word, else eight per word, 4 bits each.
    lower: [__m512i; 2],
    /// 1, which the compiler must not know, or it would make two steps of an addition under a mask.
    pub(super) one: __m512i,
}

impl Cells {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    pub(super) fn new(grid: &Grid, span: &Bounds) -> Cells {
        // SAFETY: there are 16 bytes, 16 words, and 16 floats more.
        let bytes = |i| unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(grid.lower.as_ptr().add(i).cast())) };
        // SAFETY: as above.
        let nibbles = |i| unsafe { _mm512_loadu_si512(grid.lower_nibbles.as_ptr().add(i).cast()) };
        // SAFETY: as above.
        let floats = |x: &[f32], i| unsafe { _mm512_loadu_ps(x[i..i + 16].as_ptr()) };
        let small = grid.granularity < SMALL_BELOW;
        let (slope, start): (&[f32], &[f32]) =
            if small { (&grid.slope_of_cell, &grid.start_of_cell) } else { (&grid.slope, &grid.start) };
        let value = _mm512_mul_ps(floats(&grid.point, 0), _mm512_set1_ps(span.step));
        let lower = if small {
            [bytes(0), _mm512_maskz_mov_epi32(0x7FFF, bytes(16))]
        } else {
            [nibbles(0), nibbles(16)]
        };
        Cells {
            slope: [floats(slope, 0), floats(slope, 16)],
            start: [floats(start, 0), floats(start, 16)],
            value: _mm512_add_ps(value, _mm512_set1_ps(span.lo)),
            lower,
            one: _mm512_set1_epi32(1),
        }
    }

    /// The lower index of cells of a small table, and the slope and start of its threshold. All bits of the number of a cell
    /// below 0 are set; the permutation looks at five.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    pub(super) fn look_up_small(&self, cell: __m512i) -> (__m512i, __m512, __m512) {
        let Cells { slope, start, lower, .. } = self;
        (
            _mm512_permutex2var_epi32(lower[0], cell, lower[1]),
            _mm512_permutex2var_ps(slope[0], cell, slope[1]),
            _mm512_permutex2var_ps(start[0], cell, start[1]),
        )
    }

    /// What [`look_up_small`](Self::look_up_small) gives, of other tables.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    pub(super) fn look_up_large(&self, cell: __m512i) -> (__m512i, __m512, __m512) {
        let word = _mm512_permutex2var_epi32(self.lower[0], _mm512_srli_epi32::<3>(cell), self.lower[1]);
        // Rotation takes its count modulo 32.
        let lower = _mm512_rorv_epi32(word, _mm512_slli_epi32::<2>(cell));
        let lower = _mm512_and_si512(lower, _mm512_set1_epi32(15));
        (lower, _mm512_permutexvar_ps(lower, self.slope[0]), _mm512_permutexvar_ps(lower, self.start[0]))
    }
}
