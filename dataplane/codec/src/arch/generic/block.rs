//! Blocks in one go: forward transform, quantizing, inverse transform of the residual; dequantizing, inverse transform.
//!
//! A group of some 2^11 coordinates is quantized just after, or estimated just before, the transform works on
//! it in the first-level cache. So only the outermost pass goes over the whole block.

use super::hadamard::{Between, leaf_len, transform};
use super::passes::Source;
use super::quantize;
use crate::arch::vector::Vector;
use crate::arguments::{Compressing, Estimating, Feedback};
use crate::scalar::quantize as scalar;

/// Quantizes each group to `out`.
struct Quantize<'a> {
    how: &'a Compressing<'a>,
    out: &'a mut [u8],
}

impl<V: Vector> Between<V> for Quantize<'_> {
    #[inline(always)]
    unsafe fn work(&mut self, x: &mut [f32], at: usize) {
        let Compressing { grid, span, rounding, .. } = self.how;
        let out = &mut self.out[at / 2..(at + x.len()) / 2];
        // SAFETY: the caller has V's features.
        unsafe { quantize::indices::<V, true>(grid, span, x, *rounding, at as u64, out) };
    }
}

impl<V: Vector> Between<V> for &Estimating<'_> {
    #[inline(always)]
    unsafe fn work(&mut self, x: &mut [f32], first: usize) {
        let mut done = 0;
        while done < x.len() {
            let (count, sums) = self.together(first + done, x.len() - done);
            let x = &mut x[done..done + count];
            match self.wide {
                false => scalar::dequantize8(sums, self.step, self.lo, x),
                true => scalar::dequantize16(sums, self.step, self.lo, x),
            }
            done += count;
        }
    }
}

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn compress<V: Vector>(
    how: &Compressing<'_>,
    x: &[f32],
    fed: Feedback<'_>,
    next: [&[f32]; 2],
    work: &mut [f32],
    out: &mut [u8],
) {
    let len = work.len();
    assert!(len.is_power_of_two() && len >= leaf_len::<V>() && x.len() == len);
    let (source, target) = match fed {
        None => (Source::One(x.as_ptr()), None),
        Some((kept, left)) => {
            assert!(kept.len() == len && left.len() == len);
            (Source::Sum(x.as_ptr(), kept.as_ptr()), Some(left.as_mut_ptr()))
        }
    };
    let rotation = (how.scale, how.signs);
    // SAFETY: the length is a power of two of at least the minimum, and that of all memory; the caller has V's features.
    unsafe {
        transform::<V>(Some(source), work.as_mut_ptr(), target, len, rotation, next, Quantize { how, out });
    }
}

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn decompress<V: Vector>(how: &Estimating<'_>, next: &[f32], out: &mut [f32]) {
    let (x, len) = (out.as_mut_ptr(), out.len());
    assert!(len.is_power_of_two() && len >= leaf_len::<V>());
    // SAFETY: as above.
    unsafe { transform::<V>(None, x, Some(x), len, (how.scale, how.signs), [next, &[]], how) };
}
