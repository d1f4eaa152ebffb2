//! Stochastic quantization of whole groups. Coordinates before the first and after the last take the definition.

use std::hint::black_box;

use crate::arch::groups::{COMPLETE, GROUP, LARGE, SMALL, split, word};
use crate::arch::vector::{Indices, Vector};
use crate::grid::{Bounds, Grid};
use crate::rounding::Rounding;
use crate::scalar::quantize as scalar;

/// The constants of a slice.
struct Constants<V: Vector> {
    end: V,
    scale: V,
    bias: V,
    step: V,
    lo: V,
    k1: V::Bits,
    stratum: V::Bits,
    cells: V::Cells,
}

/// Indices and residuals of a vector of coordinates; `draw` is 1 + their draws.
#[inline(always)]
unsafe fn quantize<V: Vector, const KIND: u8>(c: &Constants<V>, x: V, draw: V) -> (V::Bits, V) {
    // SAFETY: the caller has V's features.
    unsafe {
        let q = x.mul_add(c.scale, c.bias).clamp(c.end);
        let cell = q.floor();
        if KIND == COMPLETE {
            // Slope 1, and start 1 − T[z], which is exact; at the last index the sum is 1, which no draw is below.
            let threshold = q.add(V::splat(1.0).sub(V::floats(cell)));
            let index = V::round_up(cell, draw, threshold);
            return (index, x.sub(V::floats(index).mul(c.step).add(c.lo)));
        }
        let (lower, slope, start) = V::look_up::<KIND>(&c.cells, cell);
        let index = V::round_up(lower, draw, q.mul_add(slope, start));
        (index, x.sub(V::value(&c.cells, index)))
    }
}

/// Indices of the quarter `QUARTER` of a group, which becomes the residual.
#[inline(always)]
unsafe fn quarter<V: Vector, const KIND: u8, const QUARTER: usize>(
    c: &Constants<V>,
    x: &mut [f32; GROUP],
    words: &[V::Bits; 4],
) -> [V::Bits; 4] {
    let mut indices = *words;
    for i in 0..GROUP / 4 / V::LANES {
        // SAFETY: the quarter has GROUP / 4 coordinates; the caller has V's features.
        unsafe {
            let x = x.as_mut_ptr().add(QUARTER * (GROUP / 4) + i * V::LANES);
            let residual;
            (indices[i], residual) = quantize::<V, KIND>(c, V::load(x), V::draws::<QUARTER>(words[i]));
            residual.store(x);
        }
    }
    indices
}

/// Indices of a group, which becomes the residual. `at` is the number + k0 of its first words.
#[inline(always)]
unsafe fn group<V: Vector, const KIND: u8>(
    c: &Constants<V>,
    x: &mut [f32; GROUP],
    at: &mut V::Bits,
) -> Indices<V> {
    // SAFETY: the caller has V's features.
    unsafe {
        let lanes = V::splat_bits(V::LANES as u32);
        let mut words = [*at; 4];
        for words in &mut words[..GROUP / 4 / V::LANES] {
            *words = V::words(*at, c.k1, c.stratum);
            *at = V::add_bits(*at, lanes);
        }
        [
            quarter::<V, KIND, 0>(c, x, &words),
            quarter::<V, KIND, 1>(c, x, &words),
            quarter::<V, KIND, 2>(c, x, &words),
            quarter::<V, KIND, 3>(c, x, &words),
        ]
    }
}

/// `indices` of whole groups.
#[inline(always)]
unsafe fn groups<V: Vector, const KIND: u8, const PACKED: bool>(
    c: &Constants<V>,
    x: &mut [f32],
    mut at: V::Bits,
    out: &mut [u8],
) {
    let groups = x.as_chunks_mut::<GROUP>().0.iter_mut();
    // SAFETY: the caller has V's features.
    unsafe {
        if PACKED {
            for (x, out) in groups.zip(out.as_chunks_mut().0) {
                V::store_packed4(&group::<V, KIND>(c, x, &mut at), out);
            }
        } else {
            for (x, out) in groups.zip(out.as_chunks_mut().0) {
                V::store_indices(&group::<V, KIND>(c, x, &mut at), out);
            }
        }
    }
}

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn indices<V: Vector, const PACKED: bool>(
    grid: &Grid,
    span: &Bounds,
    x: &mut [f32],
    rounding: Rounding,
    first: u64,
    out: &mut [u8],
) {
    let complete = !PACKED && grid.complete();
    let small = grid.granularity < V::SMALL_BELOW;
    if !(complete || grid.narrow() && (small || V::TAKES_LARGE)) {
        return scalar::indices::<PACKED>(grid, span, x, rounding, first, out);
    }
    let [(x0, out0, first), (x1, out1, at), (x2, out2, rest)] = split(x, out, 1 + usize::from(PACKED), first);
    scalar::indices::<PACKED>(grid, span, x0, rounding, first, out0);
    // SAFETY: the caller has V's features.
    unsafe {
        // In memory, which aligns the stack to a vector: what does not fit the registers is spilled to there, and costs two
        // accesses where it lies across cache lines.
        let c = black_box(Constants {
            end: V::splat(span.end),
            scale: V::splat(span.scale),
            bias: V::splat(span.bias),
            step: V::splat(span.step),
            lo: V::splat(span.lo),
            k1: V::splat_bits(rounding.k1),
            stratum: V::splat_bits(rounding.stratum),
            cells: V::cells(grid, span),
        });
        let at = V::count_from(word(at).wrapping_add(rounding.k0));
        if complete {
            groups::<V, COMPLETE, PACKED>(&c, x1, at, out1);
        } else if small {
            groups::<V, SMALL, PACKED>(&c, x1, at, out1);
        } else if V::TAKES_LARGE {
            groups::<V, LARGE, PACKED>(&c, x1, at, out1);
        }
    }
    scalar::indices::<PACKED>(grid, span, x2, rounding, rest, out2);
}
