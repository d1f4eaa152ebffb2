//! Scales. `crate::scales` documents the arithmetic.
//!
//! Every operation is on one coordinate, so these loops are the vector kernels, too, when they are compiled for an instruction set
//! (`crate::arch::each_alone`): they must be inlined there.

use crate::arguments::Power;

/// Larger means count as this: their squares shall be finite.
const LARGEST: f32 = 1e18;

#[inline(always)]
fn take_in(known: &mut f32, mean: f32, kept: f32, fresh: f32) {
    // Comparisons, not `clamp`: these are what vectors have.
    let mean = if mean > LARGEST { LARGEST } else { mean };
    let mean = if mean < -LARGEST { -LARGEST } else { mean };
    let square = mean * mean;
    let found = if *known > 0.0 { *known * kept + square * fresh } else { square };
    *known = if square > 0.0 { found } else { *known };
}

/// Takes the squares of a mean in.
#[inline(always)]
pub(crate) fn learn(known: &mut [f32], mean: &[f32], kept: f32, fresh: f32) {
    for (known, mean) in known.iter_mut().zip(mean) {
        take_in(known, *mean, kept, fresh);
    }
}

/// Multiplies a mean by its scales, and takes its squares in.
#[inline(always)]
pub(crate) fn restore_and_learn(known: &mut [f32], mean: &mut [f32], scale: &[f32], kept: f32, fresh: f32) {
    for ((known, mean), scale) in known.iter_mut().zip(mean).zip(scale) {
        *mean *= *scale;
        take_in(known, *mean, kept, fresh);
    }
}

/// The scales of mean squares whose mean is `usual`, above 0.
#[inline(always)]
pub(crate) fn derive(squares: &[f32], usual: f32, floor: f32, power: Power, scales: &mut [f32]) {
    let root = usual.sqrt();
    let share = |square: f32| (square / usual + floor).sqrt();
    let pairs = squares.iter().zip(scales);
    match power {
        Power::One => pairs.for_each(|(square, scale)| *scale = share(*square) * root),
        Power::Half => pairs.for_each(|(square, scale)| *scale = share(*square).sqrt() * root),
        Power::ThreeQuarters => pairs.for_each(|(square, scale)| {
            let r = share(*square).sqrt();
            *scale = r * r.sqrt() * root;
        }),
    }
}

/// Number `i` of what is left of `x` when its second half has been added onto its first one so many times.
pub(crate) fn halve(x: &[f32], i: usize, times: u32) -> f32 {
    let Some(before) = times.checked_sub(1) else { return x[i] };
    let half = x.len() >> times;
    let sum = halve(x, i, before) + halve(x, i + half, before);
    let odd = (x.len() >> before) % 2 == 1;
    if i == 0 && odd { sum + halve(x, 2 * half, before) } else { sum }
}

/// What is left of `x`, of at least 8, when its second half has been added onto its first one three times.
#[inline(always)]
pub(crate) fn halve_thrice(x: &[f32], out: &mut [f32]) {
    let [a, b, c] = [2, 4, 8].map(|part| x.len() / part);
    let out = &mut out[..c];
    let from = |first: usize| &x[first..first + c];
    let [x0, x1, x2, x3] = [0, a, b, a + b].map(from);
    let [x4, x5, x6, x7] = [c, a + c, b + c, a + b + c].map(from);
    for i in 0..c {
        out[i] = ((x0[i] + x1[i]) + (x2[i] + x3[i])) + ((x4[i] + x5[i]) + (x6[i] + x7[i]));
    }
    // What is left over where counts are odd goes onto the first number.
    out[0] = halve(x, 0, 3);
}
