//! Scales, by which the coordinates of a gradient are divided before they are compressed. They come from the
//! mean squares of past means.
//!
//! Every operation below is one operation on 32-bit floats, rounded separately and in this order, so that all
//! ranks have the same bits on any device. Of each coordinate v is the mean square, 0 while nothing is known:
//!
//! ```text
//! m = mean, between -10^18 and 10^18; s = m · m
//! v = v · kept + s · fresh        where s > 0 and v > 0
//! v = s                           where s > 0 and v is not: the first one says all
//!                                 elsewhere v stays: a row without gradient says nothing of those that it will have
//! ```
//!
//! Of a parameter of n coordinates V = sum / n is the mean of all v. The sum is taken by halves: while there is more than one number, the second
//! half is added onto the first, number by number, and where the count is odd the last number onto the first.
//!
//! ```text
//! share = √(v / V + floor)
//! scale = share · √V              Power::One
//!         √share · √V             Power::Half
//!         r · √r · √V, r = √share Power::ThreeQuarters
//!         1                       if V is not above 0
//! ```

use crate::arch;
pub use crate::arguments::Power;
use crate::error::CodecError;
use crate::isa::Isa;

/// Takes a mean's squares into `known`, with weight `kept` for the known and `fresh` for the new values. If
/// there is a `scale`, the gradients were divided by it, so the mean is first multiplied by it.
///
/// # Errors
/// [`CodecError::Length`] if one is not as long as another.
pub fn learn(
    known: &mut [f32],
    mean: &mut [f32],
    scale: Option<&[f32]>,
    kept: f32,
    fresh: f32,
) -> Result<(), CodecError> {
    CodecError::check_len("the mean", known.len(), mean.len())?;
    match scale {
        Some(scale) => {
            CodecError::check_len("the scales", known.len(), scale.len())?;
            arch::scales::restore_and_learn(Isa::current(), known, mean, scale, kept, fresh);
        }
        None => arch::scales::learn(Isa::current(), known, mean, kept, fresh),
    }
    Ok(())
}

/// The scales of one parameter, whose mean squares are `squares`.
///
/// # Errors
/// [`CodecError::Length`] if `scales` are not as many.
pub fn derive(squares: &[f32], floor: f32, power: Power, scales: &mut [f32]) -> Result<(), CodecError> {
    CodecError::check_len("the scales", squares.len(), scales.len())?;
    let isa = Isa::current();
    // The scales are not there yet: room enough for partial sums.
    let usual = total(isa, squares, scales) / squares.len() as f32;
    if usual > 0.0 {
        arch::scales::derive(isa, squares, usual, floor, power, scales);
    } else {
        scales.fill(1.0);
    }
    Ok(())
}

/// The sum of `x` by halves; three at a time, to read memory once. `work` is at least as long.
fn total(isa: Isa, x: &[f32], work: &mut [f32]) -> f32 {
    if x.len() < 8 {
        return if x.is_empty() { 0.0 } else { crate::scalar::scales::halve(x, 0, x.len().ilog2()) };
    }
    let (eighth, rest) = work.split_at_mut(x.len() / 8);
    arch::scales::halve_thrice(isa, x, eighth);
    total(isa, eighth, rest)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::signs::mix;

    fn squares(len: usize) -> Vec<f32> {
        (0..len as u64).map(|i| (mix(i) >> 40) as f32 * 2f32.powi((mix(i) % 40) as i32 - 60)).collect()
    }

    /// As it is defined.
    fn by_halves(mut x: Vec<f32>) -> f32 {
        while x.len() > 1 {
            let half = x.len() / 2;
            let mut folded: Vec<f32> = x[..half].iter().zip(&x[half..2 * half]).map(|(a, b)| a + b).collect();
            if x.len() % 2 == 1 {
                folded[0] += x[2 * half];
            }
            x = folded;
        }
        x[0]
    }

    #[test]
    fn sums_are_taken_by_halves() {
        for len in (1..300).chain([1023, 1024, 4095, 65_537, 1_000_003]) {
            let x = squares(len);
            for isa in Isa::available() {
                let found = total(isa, &x, &mut vec![0.0; len]);
                assert_eq!(found.to_bits(), by_halves(x.clone()).to_bits(), "{len}, {}", isa.name());
            }
        }
    }

    #[test]
    fn rows_without_gradient_keep_what_they_know() {
        let mut known = [0.0, 4.0, 4.0, 0.0, 4.0, 1.0];
        let mut mean = [3.0, 0.0, -2.0, 0.0, f32::NAN, 1e30];
        learn(&mut known, &mut mean, None, 0.5, 0.25).unwrap();
        assert_eq!(known, [9.0, 4.0, 3.0, 0.0, 4.0, 0.5 + 0.25 * (1e18 * 1e18)]);
        let mut mean = [1.5, 0.0, -1.0, 0.0, 0.0, 0.0];
        learn(&mut known, &mut mean, Some(&[2.0; 6]), 0.5, 0.25).unwrap();
        assert_eq!(mean, [3.0, 0.0, -2.0, 0.0, 0.0, 0.0]);
        assert_eq!(known[..3], [0.5 * 9.0 + 0.25 * 9.0, 4.0, 2.5]);
    }

    #[test]
    fn powers_are_of_the_usual_size() {
        // The mean is 16, of coordinates of 64, 0, 0, 0.
        for (power, large, small) in [(Power::One, 4.0 * 2.0, 4.0), (Power::Half, 4.0 * 2f32.sqrt(), 4.0)] {
            let mut scales = [7.0; 4];
            derive(&[64.0, 0.0, 0.0, 0.0], 0.0, power, &mut scales).unwrap();
            assert_eq!(scales, [large, 0.0, 0.0, 0.0]);
            derive(&[16.0; 4], 0.0, power, &mut scales).unwrap();
            assert_eq!(scales, [small; 4]);
        }
        let mut scales = [7.0; 4];
        derive(&[64.0, 0.0, 0.0, 0.0], 0.0, Power::ThreeQuarters, &mut scales).unwrap();
        assert!((scales[0] - 4.0 * 2f32.powf(0.75)).abs() < 1e-6);
        derive(&[0.0; 4], 0.1, Power::One, &mut scales).unwrap();
        assert_eq!(scales, [1.0; 4]);
        derive(&[], 0.1, Power::One, &mut []).unwrap();
    }

    #[test]
    fn lengths_are_checked() {
        assert!(learn(&mut [0.0; 2], &mut [0.0; 3], None, 0.9, 0.1).is_err());
        assert!(learn(&mut [0.0; 2], &mut [0.0; 2], Some(&[1.0]), 0.9, 0.1).is_err());
        assert!(derive(&[0.0; 2], 0.1, Power::Half, &mut [0.0; 3]).is_err());
    }
}
