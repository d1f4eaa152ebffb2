//! Aggregation: table lookup by byte permutation, 16 packed bytes at a time.

use std::arch::aarch64::*;

use crate::scalar::aggregate as scalar;

/// Packed bytes per step.
const STEP: usize = 16;

#[target_feature(enable = "neon")]
#[inline]
fn load(x: &[u8]) -> uint8x16_t {
    assert!(x.len() == 16);
    // SAFETY: x has 16 bytes.
    unsafe { vld1q_u8(x.as_ptr()) }
}

#[target_feature(enable = "neon")]
#[inline]
fn store(x: &mut [u8], v: uint8x16_t) {
    assert!(x.len() == 16);
    // SAFETY: x has 16 bytes.
    unsafe { vst1q_u8(x.as_mut_ptr(), v) }
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

#[target_feature(enable = "neon")]
pub(crate) fn lookup_set4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = load(table);
    let (mut outs, ins) = (lanes.chunks_exact_mut(2 * STEP), packed.chunks_exact(STEP));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        for (out, v) in out.chunks_exact_mut(16).zip(values(t, packed)) {
            store(out, v);
        }
    }
    scalar::lookup_set4(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "neon")]
pub(crate) fn lookup_add4(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = load(table);
    let (mut outs, ins) = (lanes.chunks_exact_mut(2 * STEP), packed.chunks_exact(STEP));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        for (out, v) in out.chunks_exact_mut(16).zip(values(t, packed)) {
            let sum = vaddq_u8(load(out), v);
            store(out, sum);
        }
    }
    scalar::lookup_add4(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "neon")]
pub(crate) fn lookup_set4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = load(table);
    let (mut outs, ins) = (lanes.chunks_exact_mut(4 * STEP), packed.chunks_exact(STEP));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        for (out, v) in out.chunks_exact_mut(16).zip(values_wide(t, packed)) {
            store(out, v);
        }
    }
    scalar::lookup_set4_wide(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "neon")]
pub(crate) fn lookup_add4_wide(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = load(table);
    let (mut outs, ins) = (lanes.chunks_exact_mut(4 * STEP), packed.chunks_exact(STEP));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        for (out, v) in out.chunks_exact_mut(16).zip(values_wide(t, packed)) {
            let sum =
                vaddq_u16(vreinterpretq_u16_u8(vrev16q_u8(load(out))), vreinterpretq_u16_u8(vrev16q_u8(v)));
            store(out, vrev16q_u8(vreinterpretq_u8_u16(sum)));
        }
    }
    scalar::lookup_add4_wide(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "neon")]
#[inline]
fn load_words(x: &[u8]) -> uint32x4_t {
    vreinterpretq_u32_u8(vrev32q_u8(load(x)))
}

#[target_feature(enable = "neon")]
#[inline]
fn store_words(x: &mut [u8], v: uint32x4_t) {
    store(x, vrev32q_u8(vreinterpretq_u8_u32(v)));
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
pub(crate) fn lookup_set4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = [load(&table.map(|v| v << 4)), load(table)];
    let (mut outs, ins) = (lanes.chunks_exact_mut(16), packed.chunks_exact(16));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        store(out, values_half(t, packed));
    }
    scalar::lookup_set4_half(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "neon")]
pub(crate) fn lookup_add4_half(lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
    let t = [load(&table.map(|v| v << 4)), load(table)];
    let (mut outs, ins) = (lanes.chunks_exact_mut(16), packed.chunks_exact(16));
    let tail = ins.remainder();
    for (out, packed) in outs.by_ref().zip(ins) {
        let sum = vaddq_u8(load(out), values_half(t, packed));
        store(out, sum);
    }
    scalar::lookup_add4_half(outs.into_remainder(), table, tail);
}

#[target_feature(enable = "neon")]
pub(crate) fn set8_wide(lanes: &mut [u8], values: &[u8]) {
    scalar::set8_wide(lanes, values);
}

#[target_feature(enable = "neon")]
pub(crate) fn add8_wide(lanes: &mut [u8], values: &[u8]) {
    scalar::add8_wide(lanes, values);
}

#[target_feature(enable = "neon")]
pub(crate) fn raw_add(lanes: &mut [u8], payload: &[u8]) {
    let (mut outs, ins) = (lanes.chunks_exact_mut(STEP), payload.chunks_exact(STEP));
    let tail = ins.remainder();
    for (out, words) in outs.by_ref().zip(ins) {
        let sum = vaddq_u32(load_words(out), load_words(words));
        store_words(out, sum);
    }
    scalar::raw_add(outs.into_remainder(), tail);
}

#[target_feature(enable = "neon")]
pub(crate) fn max_u32(lanes: &mut [u8], payload: &[u8]) {
    let (mut outs, ins) = (lanes.chunks_exact_mut(STEP), payload.chunks_exact(STEP));
    let tail = ins.remainder();
    for (out, words) in outs.by_ref().zip(ins) {
        let max = vmaxq_u32(load_words(out), load_words(words));
        store_words(out, max);
    }
    scalar::max_u32(outs.into_remainder(), tail);
}
