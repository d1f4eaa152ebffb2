//! Aggregation: table lookup by byte permutation, 16 packed bytes at a time.

use std::arch::aarch64::*;

use crate::arch::aggregates;

/// Bytes of a vector.
const VECTOR: usize = 16;
/// Bytes of indices at a time, whose values fill two vectors, or four.
const PACKED: usize = VECTOR;
const PACKED_WIDE: usize = VECTOR;

#[target_feature(enable = "neon")]
#[inline]
fn load(x: &[u8]) -> uint8x16_t {
    assert!(x.len() == VECTOR);
    // SAFETY: x has 16 bytes.
    unsafe { vld1q_u8(x.as_ptr()) }
}

#[target_feature(enable = "neon")]
#[inline]
fn store(x: &mut [u8], v: uint8x16_t) {
    assert!(x.len() == VECTOR);
    // SAFETY: x has 16 bytes.
    unsafe { vst1q_u8(x.as_mut_ptr(), v) }
}

#[target_feature(enable = "neon")]
#[inline]
fn broadcast(table: &[u8; 16]) -> uint8x16_t {
    load(table)
}

/// Table values of 16 packed bytes, in the order of the coordinates.
#[target_feature(enable = "neon")]
#[inline]
fn values(table: uint8x16_t, packed: &[u8]) -> [uint8x16_t; 2] {
    let w = load(packed);
    let first = vqtbl1q_u8(table, vshrq_n_u8::<4>(w));
    let second = vqtbl1q_u8(table, vandq_u8(w, vdupq_n_u8(15)));
    [vzip1q_u8(first, second), vzip2q_u8(first, second)]
}

/// `values` as big-endian 16-bit words.
#[target_feature(enable = "neon")]
#[inline]
fn values_wide(table: uint8x16_t, packed: &[u8]) -> [uint8x16_t; 4] {
    let [a, b] = values(table, packed);
    let zero = vdupq_n_u8(0);
    [vzip1q_u8(zero, a), vzip2q_u8(zero, a), vzip1q_u8(zero, b), vzip2q_u8(zero, b)]
}

/// Table values of 16 packed bytes as lanes of 4 bits; `t` has those of the upper lanes, then those of the lower ones.
#[target_feature(enable = "neon")]
#[inline]
fn values_half(t: [uint8x16_t; 2], packed: &[u8]) -> uint8x16_t {
    let w = load(packed);
    let upper = vqtbl1q_u8(t[0], vshrq_n_u8::<4>(w));
    vaddq_u8(upper, vqtbl1q_u8(t[1], vandq_u8(w, vdupq_n_u8(15))))
}

#[target_feature(enable = "neon")]
#[inline]
fn to_wire16(v: uint8x16_t) -> uint8x16_t {
    // They are in wire order already.
    v
}

#[target_feature(enable = "neon")]
#[inline]
fn add8(lanes: uint8x16_t, v: uint8x16_t) -> uint8x16_t {
    vaddq_u8(lanes, v)
}

#[target_feature(enable = "neon")]
#[inline]
fn add16(lanes: uint8x16_t, v: uint8x16_t) -> uint8x16_t {
    let sum = vaddq_u16(vreinterpretq_u16_u8(vrev16q_u8(lanes)), vreinterpretq_u16_u8(vrev16q_u8(v)));
    vrev16q_u8(vreinterpretq_u8_u16(sum))
}

/// Big-endian words as numbers.
#[target_feature(enable = "neon")]
#[inline]
fn numbers(words: uint8x16_t) -> uint32x4_t {
    vreinterpretq_u32_u8(vrev32q_u8(words))
}

#[target_feature(enable = "neon")]
#[inline]
fn add32(lanes: uint8x16_t, words: uint8x16_t) -> uint8x16_t {
    vrev32q_u8(vreinterpretq_u8_u32(vaddq_u32(numbers(lanes), numbers(words))))
}

aggregates::kernels!("neon");
