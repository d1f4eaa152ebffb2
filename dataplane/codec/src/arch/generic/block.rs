//! Blocks in one go: forward transform, quantizing, inverse transform of the residual; dequantizing, inverse transform.
//!
//! A leaf is quantized in registers, between its forward transform and its inverse. A group of some 2^9 coordinates is
//! estimated in the first-level cache just before the inverse transform works on it. So only the outer passes go over the
//! whole block.

use super::hadamard::{Target, leaf_len, transform};
use super::passes::{Between, Source, leaf_vectors};
use super::quantize::{self, Constants};
use super::rht;
use crate::arch::groups::{GROUP, LARGE, SMALL};
use crate::arch::vector::{Quarter, Vector};
use crate::arguments::{Compressing, Estimating, Feedback};
use crate::scalar::quantize as scalar;

/// Quantizes each leaf to `out`.
struct Quantize<'a, V: Vector> {
    constants: &'a Constants<V>,
    kind: u8,
    /// The words of the next leaf's groups, and the number + k0 of those that follow.
    words: [Quarter<V>; 2],
    at: V::Bits,
    out: &'a mut [u8],
}

impl<V: Vector> Quantize<'_, V> {
    /// Words take long, one step after the other, and need nothing of a leaf: those of the next are made meanwhile.
    #[inline(always)]
    unsafe fn prepare<const R: usize>(&mut self) {
        // SAFETY: the caller has V's features.
        unsafe {
            self.words[0] = quantize::words::<V>(self.constants, &mut self.at);
            if R * V::LANES > GROUP {
                self.words[1] = quantize::words::<V>(self.constants, &mut self.at);
            }
        }
    }

    #[inline(always)]
    unsafe fn leaf<const R: usize, const KIND: u8>(&mut self, x: &mut [V; R], at: usize, residual: bool) {
        let (vectors, out) = (GROUP / V::LANES, &mut self.out.as_chunks_mut().0[at / GROUP..]);
        assert!(R * V::LANES <= 2 * GROUP);
        // SAFETY: the caller has V's features.
        unsafe {
            let halves = quantize::group::<V, R, KIND>(self.constants, x, 0, &self.words[0], residual);
            V::store_packed4(halves, &mut out[0]);
            // No loop: if the compiler does not unroll it, the leaf is in memory.
            if R > vectors {
                let halves =
                    quantize::group::<V, R, KIND>(self.constants, x, vectors, &self.words[1], residual);
                V::store_packed4(halves, &mut out[1]);
            }
            self.prepare::<R>();
        }
    }
}

impl<V: Vector> Between<V> for Quantize<'_, V> {
    const TAKES: bool = true;

    #[inline(always)]
    unsafe fn work<const R: usize>(&mut self, x: &mut [V; R], at: usize, inverse: bool) {
        // SAFETY: the caller has V's features.
        unsafe {
            match (self.kind, inverse) {
                (SMALL, false) => self.leaf::<R, SMALL>(x, at, false),
                (SMALL, true) => self.leaf::<R, SMALL>(x, at, true),
                (_, false) => self.leaf::<R, LARGE>(x, at, false),
                (_, true) => self.leaf::<R, LARGE>(x, at, true),
            }
        }
    }
}

impl<V: Vector> Between<V> for &Estimating<'_> {
    #[inline(always)]
    fn make(&mut self, x: &mut [f32], at: usize) {
        let mut done = 0;
        while done < x.len() {
            let (count, sums) = self.together(at + done, x.len() - done);
            let x = &mut x[done..done + count];
            match self.wide {
                false => scalar::dequantize8(sums, self.step, self.lo, x),
                true => scalar::dequantize16(sums, self.step, self.lo, x),
            }
            done += count;
        }
    }
}

/// The steps of `compress` one after the other, for tables that these kernels do not take.
#[inline(always)]
unsafe fn in_steps<V: Vector>(
    how: &Compressing<'_>,
    x: &[f32],
    fed: Feedback<'_>,
    work: &mut [f32],
    out: &mut [u8],
) {
    // SAFETY: the caller has V's features.
    unsafe {
        match &fed {
            None => rht::forward_into::<V>(x, work, how.scale, how.signs),
            Some((kept, _)) => rht::forward_sum::<V>(x, kept, work, how.scale, how.signs),
        }
        scalar::indices::<true>(how.grid, &how.span, work, how.rounding, 0, out);
        if let Some((_, left)) = fed {
            rht::inverse_into::<V>(work, left, how.scale, how.signs);
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
    assert!(len.is_power_of_two() && len >= leaf_len::<V, Quantize<'_, V>>() && x.len() == len);
    // SAFETY: the caller has V's features.
    let Some(kind) = (unsafe { quantize::kind::<V>(how.grid) }) else {
        // SAFETY: as above.
        return unsafe { in_steps::<V>(how, x, fed, work, out) };
    };
    let (source, target) = match fed {
        None => (Source::One(x.as_ptr()), None),
        Some((kept, left)) => {
            assert!(kept.len() == len && left.len() == len);
            let target = Target { to: left.as_mut_ptr(), far: how.far };
            (Source::Sum(x.as_ptr(), kept.as_ptr()), Some(target))
        }
    };
    let rotation = (how.scale, how.signs);
    // SAFETY: the length is a power of two of at least the minimum, and that of all memory; the caller has V's features.
    unsafe {
        let constants = &quantize::constants::<V>(how.grid, &how.span, how.rounding);
        let at = quantize::words_from::<V>(0, how.rounding);
        let mut quantize = Quantize { constants, kind, words: [[at; 4]; 2], at, out };
        match leaf_vectors::<V, Quantize<'_, V>>() {
            8 => quantize.prepare::<8>(),
            _ => quantize.prepare::<16>(),
        }
        transform::<V, _>(Some(source), work.as_mut_ptr(), target, len, rotation, next, quantize);
    }
}

/// # Safety
///
/// The caller has V's features.
#[inline(always)]
pub(in crate::arch) unsafe fn decompress<V: Vector>(
    how: &Estimating<'_>,
    next: &[f32],
    work: &mut [f32],
    out: &mut [f32],
) {
    let (to, len) = (out.as_mut_ptr(), out.len());
    assert!(len.is_power_of_two() && len >= leaf_len::<V, &Estimating<'_>>());
    // What goes past the caches is made in memory that is in them.
    let (x, next) = match work.get_mut(..len).filter(|_| how.far) {
        Some(work) => (work.as_mut_ptr(), &[][..]),
        None => (to, next),
    };
    let target = Target { to, far: how.far };
    // SAFETY: as above.
    unsafe { transform::<V, _>(None, x, Some(target), len, (how.scale, how.signs), [next, &[]], how) };
}
