//! The definition of every result, in plain Rust. `crate::lattice` and `crate::sparsify` document the arithmetic.

use thc_codec::norm::{PARTIAL_SUMS, reduce};
use thc_codec::rounding::Rounding;

use crate::domain::{Lattice, UNIFORMS};

/// The position of `x` on the lattice: the multiple below it, and its distance above that, in [0, 1].
#[inline(always)]
fn place(lattice: &Lattice, x: f32) -> (i32, f32) {
    let q = x * lattice.per;
    // Comparisons, not `clamp`: they send NaN to the lower end.
    let q = if q > lattice.lo { q } else { lattice.lo };
    let q = if q < lattice.hi { q } else { lattice.hi };
    // The floor: a conversion rounds towards zero.
    let toward_zero = q as i32;
    let below = toward_zero - i32::from(toward_zero as f32 > q);
    (below, q - below as f32)
}

/// One code per coordinate.
pub(crate) fn codes(lattice: &Lattice, x: &[f32], rounding: Rounding, first: u64, out: &mut [u16]) {
    for (i, (x, out)) in x.iter().zip(out).enumerate() {
        let (below, above) = place(lattice, *x);
        let word = rounding.word(first.wrapping_add(i as u64));
        let up = ((word >> 8) as f32) < above * UNIFORMS;
        *out = (below + lattice.half + i32::from(up)) as u16;
    }
}

/// The values of codes.
pub(crate) fn values(lattice: &Lattice, codes: &[u16], out: &mut [f32]) {
    for (code, out) in codes.iter().zip(out) {
        *out = (i32::from(*code) - lattice.half) as f32 * lattice.delta;
    }
}

/// Adds f (1 − f) of `x`, which begins at a multiple of [`PARTIAL_SUMS`].
pub(crate) fn add_spread(lanes: &mut [f64; PARTIAL_SUMS], lattice: &Lattice, x: &[f32]) {
    for chunk in x.chunks(PARTIAL_SUMS) {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            let (_, above) = place(lattice, *x);
            *lane += f64::from(above * (1.0 - above));
        }
    }
}

/// Sum of f (1 − f), in steps squared.
pub(crate) fn spread(lattice: &Lattice, x: &[f32]) -> f64 {
    let mut lanes = [0.0; PARTIAL_SUMS];
    add_spread(&mut lanes, lattice, x);
    reduce(lanes)
}

/// Appends the numbers of the coordinates that are drawn, each with probability |x| · scale.
pub(crate) fn draw(x: &[f32], scale: f32, rounding: Rounding, first: u32, out: &mut Vec<u32>) {
    for (i, x) in x.iter().enumerate() {
        let at = first.wrapping_add(i as u32);
        if ((rounding.word(u64::from(at)) >> 8) as f32) < x.abs() * scale {
            out.push(at);
        }
    }
}
