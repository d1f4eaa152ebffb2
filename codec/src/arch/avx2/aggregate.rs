//! Aggregation: table lookup by byte shuffle.

use std::arch::x86_64::*;

use crate::scalar::aggregate as scalar;

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
fn values(table: __m256i, packed: &[u8]) -> __m256i {
    assert!(packed.len() == 16);
    // SAFETY: packed has 16 bytes.
    let w = unsafe { _mm_loadu_si128(packed.as_ptr().cast()) };
    let w = _mm256_cvtepu8_epi16(w);
    // 0x00HL becomes 0x0L0H: in memory order the high nibble, which is the first lane, then the low.
    let nibbles = _mm256_and_si256(
        _mm256_set1_epi8(15),
        _mm256_or_si256(_mm256_srli_epi16::<4>(w), _mm256_slli_epi16::<8>(w)),
    );
    _mm256_shuffle_epi8(table, nibbles)
}

/// Table values of 8 packed bytes: 16 big-endian lanes of 16 bits, as host-order numbers.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn values_wide(table: __m256i, packed: &[u8]) -> __m256i {
    assert!(packed.len() == 8);
    // SAFETY: packed has 8 bytes.
    let w = unsafe { _mm_loadl_epi64(packed.as_ptr().cast()) };
    let w = _mm256_cvtepu8_epi32(w);
    // 0x000000HL becomes 0x800L800H: a set top bit makes the shuffle give 0.
    let nibbles = _mm256_and_si256(
        _mm256_set1_epi32(0x000F_000F),
        _mm256_or_si256(_mm256_srli_epi32::<4>(w), _mm256_slli_epi32::<16>(w)),
    );
    let nibbles = _mm256_or_si256(nibbles, _mm256_set1_epi16(i16::MIN));
    _mm256_shuffle_epi8(table, nibbles)
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
    assert!(lanes.len() == 32);
    // SAFETY: lanes has 32 bytes.
    unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn store(lanes: &mut [u8], v: __m256i) {
    assert!(lanes.len() == 32);
    // SAFETY: lanes has 32 bytes.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), v) }
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn lookup_set4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = broadcast(table);
    let (mut outs, ins) = (lanes.chunks_exact_mut(32), packed.chunks_exact(16));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        store(out, values(t, packed));
    }
    scalar::lookup_set4(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn lookup_add4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = broadcast(table);
    let (mut outs, ins) = (lanes.chunks_exact_mut(32), packed.chunks_exact(16));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        let sum = _mm256_add_epi8(load(out), values(t, packed));
        store(out, sum);
    }
    scalar::lookup_add4(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn lookup_set4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = broadcast(table);
    let (mut outs, ins) = (lanes.chunks_exact_mut(32), packed.chunks_exact(8));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        // A value of one byte in big endian sits in the upper byte of the host's word.
        store(out, _mm256_slli_epi16::<8>(values_wide(t, packed)));
    }
    scalar::lookup_set4_wide(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn lookup_add4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let (t, swap) = (broadcast(table), reverse::<2>());
    let (mut outs, ins) = (lanes.chunks_exact_mut(32), packed.chunks_exact(8));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        let sum = _mm256_add_epi16(_mm256_shuffle_epi8(load(out), swap), values_wide(t, packed));
        store(out, _mm256_shuffle_epi8(sum, swap));
    }
    scalar::lookup_add4_wide(outs.into_remainder(), table, tail);
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
pub(crate) fn lookup_set4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = [broadcast(&table.map(|v| v << 4)), broadcast(table)];
    let (mut outs, ins) = (lanes.chunks_exact_mut(32), packed.chunks_exact(32));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        store(out, values_half(t, packed));
    }
    scalar::lookup_set4_half(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn lookup_add4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = [broadcast(&table.map(|v| v << 4)), broadcast(table)];
    let (mut outs, ins) = (lanes.chunks_exact_mut(32), packed.chunks_exact(32));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        let sum = _mm256_add_epi8(load(out), values_half(t, packed));
        store(out, sum);
    }
    scalar::lookup_add4_half(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn set8_wide(lanes: &mut [u8], values: &[u8]) {
    scalar::set8_wide(lanes, values);
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn add8_wide(lanes: &mut [u8], values: &[u8]) {
    scalar::add8_wide(lanes, values);
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn raw_add(lanes: &mut [u8], payload: &[u8]) {
    let swap = reverse::<4>();
    let (mut outs, ins) = (lanes.chunks_exact_mut(32), payload.chunks_exact(32));
    let tail = ins.remainder();
    for (out, words) in outs.by_ref().zip(ins) {
        let sum =
            _mm256_add_epi32(_mm256_shuffle_epi8(load(out), swap), _mm256_shuffle_epi8(load(words), swap));
        store(out, _mm256_shuffle_epi8(sum, swap));
    }
    scalar::raw_add(outs.into_remainder(), tail);
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn max_u32(lanes: &mut [u8], payload: &[u8]) {
    let swap = reverse::<4>();
    let (mut outs, ins) = (lanes.chunks_exact_mut(32), payload.chunks_exact(32));
    let tail = ins.remainder();
    for (out, words) in outs.by_ref().zip(ins) {
        let max =
            _mm256_max_epu32(_mm256_shuffle_epi8(load(out), swap), _mm256_shuffle_epi8(load(words), swap));
        store(out, _mm256_shuffle_epi8(max, swap));
    }
    scalar::max_u32(outs.into_remainder(), tail);
}
