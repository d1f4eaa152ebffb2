//! Scalar norms. See `crate::norm` for the definition of the order of additions.

/// Number of partial sums: four vectors of eight doubles.
pub const PARTIAL_SUMS: usize = 32;

/// Adds partial sums pairwise, halves onto halves.
#[must_use]
pub fn reduce(mut lanes: [f64; PARTIAL_SUMS]) -> f64 {
    let mut width = PARTIAL_SUMS / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Adds the squares of `x`, which begins at a multiple of [`PARTIAL_SUMS`].
pub(crate) fn add_squares(lanes: &mut [f64; PARTIAL_SUMS], x: &[f32]) {
    for chunk in x.chunks(PARTIAL_SUMS) {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(*v) * f64::from(*v);
        }
    }
}

/// Adds the squares of `x + e`, each sum rounded to `f32` as the transform will see it.
pub(crate) fn add_squares_sum(lanes: &mut [f64; PARTIAL_SUMS], x: &[f32], e: &[f32]) {
    for (x, e) in x.chunks(PARTIAL_SUMS).zip(e.chunks(PARTIAL_SUMS)) {
        for ((lane, a), b) in lanes.iter_mut().zip(x).zip(e) {
            let v = f64::from(a + b);
            *lane += v * v;
        }
    }
}

/// Sum of squares of `x`.
pub(crate) fn squares(x: &[f32]) -> f64 {
    let mut lanes = [0.0; PARTIAL_SUMS];
    add_squares(&mut lanes, x);
    reduce(lanes)
}

/// Sum of squares of `x + e`.
pub(crate) fn squares_sum(x: &[f32], e: &[f32]) -> f64 {
    let mut lanes = [0.0; PARTIAL_SUMS];
    add_squares_sum(&mut lanes, x, e);
    reduce(lanes)
}

/// Largest bit pattern of |x|: floats of one sign order like integers, NaN above all.
#[inline(always)]
pub(crate) fn max_abs_bits(x: &[f32]) -> u32 {
    x.iter().fold(0, |max, v| max.max(v.to_bits() & 0x7FFF_FFFF))
}
