//! Stochastic quantization of whole groups. Coordinates before the first and after the last take the definition.

use std::hint::black_box;

use crate::arch::groups::{COMPLETE, GROUP, LARGE, SMALL, split, word};
use crate::arch::vector::{Quarter, Vector};
use crate::grid::{Bounds, Grid};
use crate::rounding::Rounding;
use crate::scalar::quantize as scalar;

/// The constants of a slice.
pub(super) struct Constants<V: Vector> {
    end: V,
    scale: V,
    bias: V,
    step: V,
    lo: V,
    k1: V::Bits,
    stratum: V::Bits,
    cells: V::Cells,
}

/// `None` if these kernels do not take the table.
#[inline(always)]
pub(super) unsafe fn kind<V: Vector>(grid: &Grid) -> Option<u8> {
    match (grid.narrow(), grid.granularity < V::SMALL_BELOW) {
        (true, true) => Some(SMALL),
        (true, false) => V::TAKES_LARGE.then_some(LARGE),
        (false, _) => None,
    }
}

#[inline(always)]
pub(super) unsafe fn constants<V: Vector>(grid: &Grid, span: &Bounds, rounding: Rounding) -> Constants<V> {
    // SAFETY: the caller has V's features.
    unsafe {
        // In memory, which aligns the stack to a vector: what does not fit the registers is spilled to there, and costs two
        // accesses where it lies across cache lines.
        black_box(Constants {
            end: V::splat(span.end),
            scale: V::splat(span.scale),
            bias: V::splat(span.bias),
            step: V::splat(span.step),
            lo: V::splat(span.lo),
            k1: V::splat_bits(rounding.k1),
            stratum: V::splat_bits(rounding.stratum),
            cells: V::cells(grid, span),
        })
    }
}

/// The number + k0 of each of the words from those of coordinate `first` on.
#[inline(always)]
pub(super) unsafe fn words_from<V: Vector>(first: u64, rounding: Rounding) -> V::Bits {
    // SAFETY: the caller has V's features.
    unsafe { V::count_from(word(first).wrapping_add(rounding.k0)) }
}

/// Indices and values of a vector of positions on the grid; `draw` is 1 + their draws.
#[inline(always)]
unsafe fn round<V: Vector, const KIND: u8>(c: &Constants<V>, q: V, draw: V) -> (V::Bits, V) {
    // SAFETY: the caller has V's features.
    unsafe {
        let cell = q.floor();
        if KIND == COMPLETE {
            // Slope 1, and start 1 − T[z], which is exact; at the last index the sum is 1, which no draw is below.
            let threshold = q.add(V::splat(1.0).sub(V::floats(cell)));
            let index = V::round_up(&c.cells, cell, draw, threshold);
            return (index, V::floats(index).mul(c.step).add(c.lo));
        }
        let (lower, slope, start) = V::look_up::<KIND>(&c.cells, cell);
        let index = V::round_up(&c.cells, lower, draw, q.mul_add(slope, start));
        (index, V::value(&c.cells, index))
    }
}

/// Indices of half a group, the vectors of `x` from number `from` on, which become the residual if that is wanted. Its
/// quarters have the numbers `FIRST` and `SECOND`.
#[inline(always)]
unsafe fn half<V: Vector, const R: usize, const KIND: u8, const FIRST: usize, const SECOND: usize>(
    c: &Constants<V>,
    x: &mut [V; R],
    from: usize,
    words: &Quarter<V>,
    residual: bool,
) -> V::Half {
    let vectors = GROUP / 4 / V::LANES;
    // SAFETY: the caller has V's features.
    unsafe {
        let (mut draws, mut q, mut values) = ([c.end; 8], [c.end; 8], [c.end; 8]);
        for i in 0..vectors {
            draws[i] = V::draws::<FIRST>(words[i]);
            draws[vectors + i] = V::draws::<SECOND>(words[i]);
        }
        for i in 0..2 * vectors {
            q[i] = x[from + i].mul_add(c.scale, c.bias).clamp::<KIND>(c.end);
        }
        let half;
        if KIND == SMALL && V::BY_BYTES {
            let first = |of: &[V; 8]| [of[0], of[1], of[2], of[3]];
            let some;
            (half, some) = V::half_by_bytes(&c.cells, &first(&q), &first(&draws));
            values[..4].copy_from_slice(&some);
        } else {
            let (mut first, mut second) = (*words, *words);
            for i in 0..vectors {
                (first[i], values[i]) = round::<V, KIND>(c, q[i], draws[i]);
                (second[i], values[vectors + i]) = round::<V, KIND>(c, q[vectors + i], draws[vectors + i]);
            }
            half = V::half(&first, &second);
        }
        if residual {
            for i in 0..2 * vectors {
                x[from + i] = x[from + i].sub(values[i]);
            }
        }
        half
    }
}

/// The words of a group. `at` is the number + k0 of the first ones, and then that of the next group's.
#[inline(always)]
pub(super) unsafe fn words<V: Vector>(c: &Constants<V>, at: &mut V::Bits) -> Quarter<V> {
    // SAFETY: the caller has V's features.
    unsafe {
        let mut words = [*at; 4];
        for i in 0..GROUP / 4 / V::LANES {
            words[i] = V::words(*at, c.k1, c.stratum);
            *at = V::add_bits(*at, V::splat_bits(V::LANES as u32));
        }
        words
    }
}

/// Indices of a group, the vectors of `x` from number `from` on, which become the residual if that is wanted.
#[inline(always)]
pub(super) unsafe fn group<V: Vector, const R: usize, const KIND: u8>(
    c: &Constants<V>,
    x: &mut [V; R],
    from: usize,
    words: &Quarter<V>,
    residual: bool,
) -> [V::Half; 2] {
    // SAFETY: the caller has V's features.
    unsafe {
        [
            half::<V, R, KIND, 0, 1>(c, x, from, words, residual),
            half::<V, R, KIND, 2, 3>(c, x, from + GROUP / 2 / V::LANES, words, residual),
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
    let groups = x.as_chunks_mut::<GROUP>().0.iter_mut().zip(out.chunks_exact_mut(GROUP >> u8::from(PACKED)));
    for (x, out) in groups {
        // SAFETY: the group has its vectors; the caller has V's features.
        unsafe {
            let (x, mut a) = (x.as_mut_ptr(), [c.end; 16]);
            for i in 0..GROUP / V::LANES {
                a[i] = V::load(x.add(i * V::LANES));
            }
            let halves = group::<V, 16, KIND>(c, &mut a, 0, &words::<V>(c, &mut at), true);
            for i in 0..GROUP / V::LANES {
                a[i].store(x.add(i * V::LANES));
            }
            if PACKED {
                out.as_chunks_mut().0.iter_mut().for_each(|out| V::store_packed4(halves, out));
            } else {
                out.as_chunks_mut().0.iter_mut().for_each(|out| V::store_indices(halves, out));
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
    // SAFETY: the caller has V's features.
    let kind = unsafe { if !PACKED && grid.complete() { Some(COMPLETE) } else { kind::<V>(grid) } };
    let Some(kind) = kind else {
        return scalar::indices::<PACKED>(grid, span, x, rounding, first, out);
    };
    let [(x0, out0, first), (x1, out1, at), (x2, out2, rest)] = split(x, out, 1 + usize::from(PACKED), first);
    scalar::indices::<PACKED>(grid, span, x0, rounding, first, out0);
    // SAFETY: the caller has V's features.
    unsafe {
        let (c, at) = (constants::<V>(grid, span, rounding), words_from::<V>(at, rounding));
        match kind {
            COMPLETE => groups::<V, COMPLETE, PACKED>(&c, x1, at, out1),
            SMALL => groups::<V, SMALL, PACKED>(&c, x1, at, out1),
            _ => groups::<V, LARGE, PACKED>(&c, x1, at, out1),
        }
    }
    scalar::indices::<PACKED>(grid, span, x2, rounding, rest, out2);
}
