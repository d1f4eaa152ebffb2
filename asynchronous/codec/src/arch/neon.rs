//! Rounding onto a lattice, four coordinates at a time.

use std::arch::aarch64::*;

use thc_codec::norm::{PARTIAL_SUMS, reduce};
use thc_codec::rounding::{MULTIPLIERS, Rounding};

use crate::domain::{Lattice, UNIFORMS};
use crate::scalar;

/// Coordinates per vector.
const LANES: usize = 4;

/// Index + k0 of the first four coordinates, from `first`.
#[target_feature(enable = "neon")]
#[inline]
fn counter(first: u32, rounding: Rounding) -> uint32x4_t {
    // SAFETY: the array has four words.
    let iota = unsafe { vld1q_u32([0, 1, 2, 3].as_ptr()) };
    vaddq_u32(iota, vdupq_n_u32(first.wrapping_add(rounding.key()[0])))
}

/// The top 24 bits of `Rounding::word` of four coordinates whose index + k0 is given, as floats.
#[target_feature(enable = "neon")]
#[inline]
fn uniforms(rounding: Rounding, x: uint32x4_t) -> float32x4_t {
    let x = vmulq_n_u32(veorq_u32(x, vshrq_n_u32::<17>(x)), MULTIPLIERS[0]);
    let x = vaddq_u32(veorq_u32(x, vshrq_n_u32::<11>(x)), vdupq_n_u32(rounding.key()[1]));
    let x = vmulq_n_u32(x, MULTIPLIERS[1]);
    let x = vmulq_n_u32(veorq_u32(x, vshrq_n_u32::<15>(x)), MULTIPLIERS[2]);
    vcvtq_f32_u32(vshrq_n_u32::<8>(veorq_u32(x, vshrq_n_u32::<14>(x))))
}

/// The multiple below, and how far `x` is above it.
#[target_feature(enable = "neon")]
#[inline]
fn place(lattice: &Lattice, x: float32x4_t) -> (float32x4_t, float32x4_t) {
    let (lo, hi) = (vdupq_n_f32(lattice.lo), vdupq_n_f32(lattice.hi));
    let q = vmulq_n_f32(x, lattice.per);
    // Comparisons, not vmaxq: they send NaN to the lower end.
    let q = vbslq_f32(vcgtq_f32(q, lo), q, lo);
    let q = vbslq_f32(vcltq_f32(q, hi), q, hi);
    let below = vrndmq_f32(q);
    (below, vsubq_f32(q, below))
}

#[target_feature(enable = "neon")]
pub(crate) fn codes(lattice: &Lattice, x: &[f32], rounding: Rounding, first: u64, out: &mut [u16]) {
    let done = x.len() / LANES * LANES;
    let (xs, x_tail) = x.split_at(done);
    let (outs, out_tail) = out.split_at_mut(done);
    let (half, mut at) = (vdupq_n_s32(lattice.half), counter(first as u32, rounding));
    for (x, out) in xs.chunks_exact(LANES).zip(outs.chunks_exact_mut(LANES)) {
        // SAFETY: the chunk has four floats.
        let (below, above) = place(lattice, unsafe { vld1q_f32(x.as_ptr()) });
        let up = vcltq_f32(uniforms(rounding, at), vmulq_n_f32(above, UNIFORMS));
        let code = vreinterpretq_u32_s32(vaddq_s32(vcvtq_s32_f32(below), half));
        // True is −1 in every lane. SAFETY: the chunk has four words.
        unsafe { vst1_u16(out.as_mut_ptr(), vmovn_u32(vsubq_u32(code, up))) };
        at = vaddq_u32(at, vdupq_n_u32(LANES as u32));
    }
    scalar::codes(lattice, x_tail, rounding, first.wrapping_add(done as u64), out_tail);
}

#[target_feature(enable = "neon")]
pub(crate) fn values(lattice: &Lattice, codes: &[u16], out: &mut [f32]) {
    let half = vdupq_n_s32(lattice.half);
    let (mut outs, ins) = (out.chunks_exact_mut(LANES), codes.chunks_exact(LANES));
    let tail = ins.remainder();
    for (out, codes) in outs.by_ref().zip(ins) {
        // SAFETY: the chunks have four floats and four words.
        unsafe {
            let code = vreinterpretq_s32_u32(vmovl_u16(vld1_u16(codes.as_ptr())));
            let steps = vcvtq_f32_s32(vsubq_s32(code, half));
            vst1q_f32(out.as_mut_ptr(), vmulq_n_f32(steps, lattice.delta));
        }
    }
    scalar::values(lattice, tail, outs.into_remainder());
}

#[target_feature(enable = "neon")]
pub(crate) fn spread(lattice: &Lattice, x: &[f32]) -> f64 {
    let one = vdupq_n_f32(1.0);
    let mut sums = [vdupq_n_f64(0.0); PARTIAL_SUMS / 2];
    let chunks = x.chunks_exact(PARTIAL_SUMS);
    let tail = chunks.remainder();
    for chunk in chunks {
        for (sums, x) in sums.chunks_exact_mut(2).zip(chunk.chunks_exact(LANES)) {
            // SAFETY: the chunk has four floats.
            let (_, above) = place(lattice, unsafe { vld1q_f32(x.as_ptr()) });
            let term = vmulq_f32(above, vsubq_f32(one, above));
            sums[0] = vaddq_f64(sums[0], vcvt_f64_f32(vget_low_f32(term)));
            sums[1] = vaddq_f64(sums[1], vcvt_high_f64_f32(term));
        }
    }
    let mut lanes = [0.0; PARTIAL_SUMS];
    for (lanes, sum) in lanes.chunks_exact_mut(2).zip(sums) {
        // SAFETY: the chunk has two doubles.
        unsafe { vst1q_f64(lanes.as_mut_ptr(), sum) };
    }
    scalar::add_spread(&mut lanes, lattice, tail);
    reduce(lanes)
}

#[target_feature(enable = "neon")]
pub(crate) fn draw(x: &[f32], scale: f32, rounding: Rounding, first: u32, out: &mut Vec<u32>) {
    let done = x.len() / LANES * LANES;
    let (xs, tail) = x.split_at(done);
    let mut at = counter(first, rounding);
    for (i, x) in xs.chunks_exact(LANES).enumerate() {
        // SAFETY: the chunk has four floats.
        let chance = vmulq_n_f32(vabsq_f32(unsafe { vld1q_f32(x.as_ptr()) }), scale);
        let drawn = vcltq_f32(uniforms(rounding, at), chance);
        if vmaxvq_u32(drawn) != 0 {
            let mut lanes = [0; LANES];
            // SAFETY: the array has four words.
            unsafe { vst1q_u32(lanes.as_mut_ptr(), drawn) };
            let base = first.wrapping_add((i * LANES) as u32);
            for (lane, drawn) in lanes.iter().enumerate() {
                if *drawn != 0 {
                    out.push(base.wrapping_add(lane as u32));
                }
            }
        }
        at = vaddq_u32(at, vdupq_n_u32(LANES as u32));
    }
    scalar::draw(tail, scale, rounding, first.wrapping_add(done as u32), out);
}
