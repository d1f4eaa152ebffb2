//! Aggregation: table lookup by byte shuffle.

use std::arch::x86_64::*;

use crate::scalar::aggregate as scalar;

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
fn values(table: __m512i, packed: &[u8]) -> __m512i {
    assert!(packed.len() == 32);
    // SAFETY: packed has 32 bytes.
    let w = unsafe { _mm256_loadu_si256(packed.as_ptr().cast()) };
    let w = _mm512_cvtepu8_epi16(w);
    // 0x00HL becomes 0x0L0H: in memory order the high nibble, which is the first lane, then the low.
    let nibbles = _mm512_ternarylogic_epi32::<0xE0>(
        _mm512_set1_epi8(15),
        _mm512_srli_epi16::<4>(w),
        _mm512_slli_epi16::<8>(w),
    );
    _mm512_shuffle_epi8(table, nibbles)
}

/// Table values of 16 packed bytes: 32 big-endian lanes of 16 bits, as host-order numbers.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn values_wide(table: __m512i, packed: &[u8]) -> __m512i {
    assert!(packed.len() == 16);
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
    _mm512_shuffle_epi8(table, nibbles)
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
    assert!(lanes.len() == 64);
    // SAFETY: lanes has 64 bytes.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
pub(in crate::arch) fn store(lanes: &mut [u8], v: __m512i) {
    assert!(lanes.len() == 64);
    // SAFETY: lanes has 64 bytes.
    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), v) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn lookup_set4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = broadcast(table);
    let (mut outs, ins) = (lanes.chunks_exact_mut(64), packed.chunks_exact(32));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        store(out, values(t, packed));
    }
    scalar::lookup_set4(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn lookup_add4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = broadcast(table);
    let (mut outs, ins) = (lanes.chunks_exact_mut(64), packed.chunks_exact(32));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        let sum = _mm512_add_epi8(load(out), values(t, packed));
        store(out, sum);
    }
    scalar::lookup_add4(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn lookup_set4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = broadcast(table);
    let (mut outs, ins) = (lanes.chunks_exact_mut(64), packed.chunks_exact(16));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        // A value of one byte in big endian sits in the upper byte of the host's word.
        store(out, _mm512_slli_epi16::<8>(values_wide(t, packed)));
    }
    scalar::lookup_set4_wide(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn lookup_add4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let (t, swap) = (broadcast(table), reverse::<2>());
    let (mut outs, ins) = (lanes.chunks_exact_mut(64), packed.chunks_exact(16));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        let sum = _mm512_add_epi16(_mm512_shuffle_epi8(load(out), swap), values_wide(t, packed));
        store(out, _mm512_shuffle_epi8(sum, swap));
    }
    scalar::lookup_add4_wide(outs.into_remainder(), table, tail);
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
pub(crate) fn lookup_set4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = [broadcast(&table.map(|v| v << 4)), broadcast(table)];
    let (mut outs, ins) = (lanes.chunks_exact_mut(64), packed.chunks_exact(64));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        store(out, values_half(t, packed));
    }
    scalar::lookup_set4_half(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn lookup_add4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = [broadcast(&table.map(|v| v << 4)), broadcast(table)];
    let (mut outs, ins) = (lanes.chunks_exact_mut(64), packed.chunks_exact(64));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        let sum = _mm512_add_epi8(load(out), values_half(t, packed));
        store(out, sum);
    }
    scalar::lookup_add4_half(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn set8_wide(lanes: &mut [u8], values: &[u8]) {
    scalar::set8_wide(lanes, values);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn add8_wide(lanes: &mut [u8], values: &[u8]) {
    scalar::add8_wide(lanes, values);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn raw_add(lanes: &mut [u8], payload: &[u8]) {
    let swap = reverse::<4>();
    let (mut outs, ins) = (lanes.chunks_exact_mut(64), payload.chunks_exact(64));
    let tail = ins.remainder();
    for (out, words) in outs.by_ref().zip(ins) {
        let sum =
            _mm512_add_epi32(_mm512_shuffle_epi8(load(out), swap), _mm512_shuffle_epi8(load(words), swap));
        store(out, _mm512_shuffle_epi8(sum, swap));
    }
    scalar::raw_add(outs.into_remainder(), tail);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn max_u32(lanes: &mut [u8], payload: &[u8]) {
    let swap = reverse::<4>();
    let (mut outs, ins) = (lanes.chunks_exact_mut(64), payload.chunks_exact(64));
    let tail = ins.remainder();
    for (out, words) in outs.by_ref().zip(ins) {
        let max =
            _mm512_max_epu32(_mm512_shuffle_epi8(load(out), swap), _mm512_shuffle_epi8(load(words), swap));
        store(out, _mm512_shuffle_epi8(max, swap));
    }
    scalar::max_u32(outs.into_remainder(), tail);
}
