//! Aggregation: table lookup by byte shuffle.

use std::arch::x86_64::*;

use crate::arch::aggregates;

/// Bytes of a vector.
const VECTOR: usize = 64;
/// Bytes of indices whose values fill a vector.
const PACKED: usize = VECTOR / 2;
const PACKED_WIDE: usize = VECTOR / 4;

/// The table repeated for each 128-bit part.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
pub(in crate::arch) fn broadcast(table: &[u8; 16]) -> __m512i {
    // SAFETY: the table has 16 bytes.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
}

/// Table values of 32 packed bytes: 64 lanes of 8 bits.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn values(table: __m512i, packed: &[u8]) -> [__m512i; 1] {
    assert!(packed.len() == PACKED);
    // SAFETY: packed has 32 bytes.
    let w = unsafe { _mm256_loadu_si256(packed.as_ptr().cast()) };
    let w = _mm512_cvtepu8_epi16(w);
    // 0x00HL becomes 0x0L0H: in memory order the high nibble, which is the first lane, then the low.
    let nibbles = _mm512_ternarylogic_epi32::<0xE0>(
        _mm512_set1_epi8(15),
        _mm512_srli_epi16::<4>(w),
        _mm512_slli_epi16::<8>(w),
    );
    [_mm512_shuffle_epi8(table, nibbles)]
}

/// Table values of 16 packed bytes: 32 big-endian lanes of 16 bits, as host-order numbers.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn values_wide(table: __m512i, packed: &[u8]) -> [__m512i; 1] {
    assert!(packed.len() == PACKED_WIDE);
    // SAFETY: packed has 16 bytes.
    let w = unsafe { _mm_loadu_si128(packed.as_ptr().cast()) };
    let w = _mm512_cvtepu8_epi32(w);
    // 0x000000HL becomes 0x800L800H: a set top bit makes the shuffle give 0.
    let nibbles = _mm512_ternarylogic_epi32::<0xE0>(
        _mm512_set1_epi32(0x000F_000F),
        _mm512_srli_epi32::<4>(w),
        _mm512_slli_epi32::<16>(w),
    );
    let nibbles = _mm512_or_si512(nibbles, _mm512_set1_epi16(i16::MIN));
    [_mm512_shuffle_epi8(table, nibbles)]
}

/// Shuffle that reverses the bytes of each element of `WIDTH` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn reverse<const WIDTH: u8>() -> __m512i {
    let mut order = [0_u8; 16];
    for i in 0..16 {
        order[i as usize] = i / WIDTH * WIDTH + (WIDTH - 1 - i % WIDTH);
    }
    broadcast(&order)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
pub(in crate::arch) fn load(lanes: &[u8]) -> __m512i {
    assert!(lanes.len() == VECTOR);
    // SAFETY: lanes has 64 bytes.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
pub(in crate::arch) fn store(lanes: &mut [u8], v: __m512i) {
    assert!(lanes.len() == VECTOR);
    // SAFETY: lanes has 64 bytes.
    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), v) }
}

/// Table values of 64 packed bytes as lanes of 4 bits; `t` has those of the upper lanes, then those of the lower ones.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn values_half(t: [__m512i; 2], packed: &[u8]) -> __m512i {
    let (w, low) = (load(packed), _mm512_set1_epi8(15));
    let upper = _mm512_shuffle_epi8(t[0], _mm512_and_si512(_mm512_srli_epi16::<4>(w), low));
    _mm512_add_epi8(upper, _mm512_shuffle_epi8(t[1], _mm512_and_si512(w, low)))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn to_wire16(v: __m512i) -> __m512i {
    // A value of one byte in big endian sits in the upper byte of the host's word.
    _mm512_slli_epi16::<8>(v)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn add8(lanes: __m512i, v: __m512i) -> __m512i {
    _mm512_add_epi8(lanes, v)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn add16(lanes: __m512i, v: __m512i) -> __m512i {
    let swap = reverse::<2>();
    _mm512_shuffle_epi8(_mm512_add_epi16(_mm512_shuffle_epi8(lanes, swap), v), swap)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn add32(lanes: __m512i, words: __m512i) -> __m512i {
    let swap = reverse::<4>();
    let words = _mm512_add_epi32(_mm512_shuffle_epi8(lanes, swap), _mm512_shuffle_epi8(words, swap));
    _mm512_shuffle_epi8(words, swap)
}

aggregates::kernels!("avx512f,avx512bw,avx512dq,avx512vl");
