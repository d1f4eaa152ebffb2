//! Aggregation: table lookup by byte shuffle.

use std::arch::x86_64::*;

use crate::arch::aggregates;

/// Bytes of a vector.
const VECTOR: usize = 32;
/// Bytes of indices whose values fill a vector.
const PACKED: usize = VECTOR / 2;
const PACKED_WIDE: usize = VECTOR / 4;

/// The table repeated for each 128-bit part.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn broadcast(table: &[u8; 16]) -> __m256i {
    // SAFETY: the table has 16 bytes.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
}

/// Table values of 16 packed bytes: 32 lanes of 8 bits.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn values(table: __m256i, packed: &[u8]) -> [__m256i; 1] {
    assert!(packed.len() == PACKED);
    // SAFETY: packed has 16 bytes.
    let w = unsafe { _mm_loadu_si128(packed.as_ptr().cast()) };
    let w = _mm256_cvtepu8_epi16(w);
    // 0x00HL becomes 0x0L0H: in memory order the high nibble, which is the first lane, then the low.
    let nibbles = _mm256_and_si256(
        _mm256_set1_epi8(15),
        _mm256_or_si256(_mm256_srli_epi16::<4>(w), _mm256_slli_epi16::<8>(w)),
    );
    [_mm256_shuffle_epi8(table, nibbles)]
}

/// Table values of 8 packed bytes: 16 big-endian lanes of 16 bits, as host-order numbers.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn values_wide(table: __m256i, packed: &[u8]) -> [__m256i; 1] {
    assert!(packed.len() == PACKED_WIDE);
    // SAFETY: packed has 8 bytes.
    let w = unsafe { _mm_loadl_epi64(packed.as_ptr().cast()) };
    let w = _mm256_cvtepu8_epi32(w);
    // 0x000000HL becomes 0x800L800H: a set top bit makes the shuffle give 0.
    let nibbles = _mm256_and_si256(
        _mm256_set1_epi32(0x000F_000F),
        _mm256_or_si256(_mm256_srli_epi32::<4>(w), _mm256_slli_epi32::<16>(w)),
    );
    let nibbles = _mm256_or_si256(nibbles, _mm256_set1_epi16(i16::MIN));
    [_mm256_shuffle_epi8(table, nibbles)]
}

/// Shuffle that reverses the bytes of each element of `WIDTH` bytes.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn reverse<const WIDTH: u8>() -> __m256i {
    let mut order = [0_u8; 16];
    for i in 0..16 {
        order[i as usize] = i / WIDTH * WIDTH + (WIDTH - 1 - i % WIDTH);
    }
    broadcast(&order)
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn load(lanes: &[u8]) -> __m256i {
    assert!(lanes.len() == VECTOR);
    // SAFETY: lanes has 32 bytes.
    unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn store(lanes: &mut [u8], v: __m256i) {
    assert!(lanes.len() == VECTOR);
    // SAFETY: lanes has 32 bytes.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), v) }
}

/// Table values of 32 packed bytes as lanes of 4 bits; `t` has those of the upper lanes, then those of the lower ones.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn values_half(t: [__m256i; 2], packed: &[u8]) -> __m256i {
    let (w, low) = (load(packed), _mm256_set1_epi8(15));
    let upper = _mm256_shuffle_epi8(t[0], _mm256_and_si256(_mm256_srli_epi16::<4>(w), low));
    _mm256_add_epi8(upper, _mm256_shuffle_epi8(t[1], _mm256_and_si256(w, low)))
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn to_wire16(v: __m256i) -> __m256i {
    // A value of one byte in big endian sits in the upper byte of the host's word.
    _mm256_slli_epi16::<8>(v)
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn add8(lanes: __m256i, v: __m256i) -> __m256i {
    _mm256_add_epi8(lanes, v)
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn add16(lanes: __m256i, v: __m256i) -> __m256i {
    let swap = reverse::<2>();
    _mm256_shuffle_epi8(_mm256_add_epi16(_mm256_shuffle_epi8(lanes, swap), v), swap)
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn add32(lanes: __m256i, words: __m256i) -> __m256i {
    let swap = reverse::<4>();
    let words = _mm256_add_epi32(_mm256_shuffle_epi8(lanes, swap), _mm256_shuffle_epi8(words, swap));
    _mm256_shuffle_epi8(words, swap)
}

aggregates::kernels!("avx2,fma");
