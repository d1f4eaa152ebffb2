//! Blocks in one go: forward transform, quantizing, inverse transform of the residual; dequantizing, inverse transform.
//!
//! A group of some 2^11 coordinates is quantized just after, or estimated just before, the transform works on
//! it in the first-level cache. So only the outermost pass goes over the whole block.

/// Defines the kernels of blocks for one instruction set.
macro_rules! kernels {
    ($wide:expr, $features:literal) => {
        #[target_feature(enable = $features)]
        pub(crate) fn compress(
            how: &crate::arguments::Compressing<'_>,
            x: &[f32],
            fed: crate::arguments::Fed<'_>,
            next: [&[f32]; 2],
            work: &mut [f32],
            out: &mut [u8],
        ) {
            use crate::arch::hadamard::{Source, leaf_len, transform};
            use crate::arguments::Fed;
            let len = work.len();
            assert!(len.is_power_of_two() && len >= leaf_len::<Floats, LEAF>() && x.len() == len);
            let (source, target) = match fed {
                Fed::Without => (Source::One(x.as_ptr()), None),
                Fed::InPlace(e) => {
                    assert!(e.len() == len);
                    let e = e.as_mut_ptr();
                    (Source::Sum(x.as_ptr(), e), Some(e))
                }
                Fed::Beside(kept, left) => {
                    assert!(kept.len() == len && left.len() == len);
                    (Source::Sum(x.as_ptr(), kept.as_ptr()), Some(left.as_mut_ptr()))
                }
            };
            let work = work.as_mut_ptr();
            let between = |at: usize, count: usize| {
                // SAFETY: the group lies in `work`, and nobody else looks at it meanwhile.
                let x = unsafe { std::slice::from_raw_parts_mut(work.add(at), count) };
                let out = &mut out[at / 2..(at + count) / 2];
                quantize::packed4(how.grid, &how.span, x, how.rounding, at as u64, out);
            };
            // SAFETY: the length is a power of two of at least the minimum, and that of all memory; this function has the
            // vector's features.
            unsafe {
                let rotation = (how.scale, how.signs);
                transform::<Floats, LEAF, $wide>(Some(source), work, target, len, rotation, next, between);
            }
        }

        #[target_feature(enable = $features)]
        pub(crate) fn decompress(how: &crate::arguments::Estimating<'_>, next: &[f32], out: &mut [f32]) {
            use crate::arch::hadamard::{leaf_len, transform};
            let len = out.len();
            assert!(len.is_power_of_two() && len >= leaf_len::<Floats, LEAF>());
            let x = out.as_mut_ptr();
            let between = |mut at: usize, count: usize| {
                let end = at + count;
                while at < end {
                    let (count, sums) = how.together(at, end - at);
                    // SAFETY: as above.
                    let x = unsafe { std::slice::from_raw_parts_mut(x.add(at), count) };
                    match how.wide {
                        false => quantize::dequantize8(sums, how.step, how.lo, x),
                        true => quantize::dequantize16(sums, how.step, how.lo, x),
                    }
                    at += count;
                }
            };
            // SAFETY: as above.
            unsafe {
                let rotation = (how.scale, how.signs);
                transform::<Floats, LEAF, $wide>(None, x, Some(x), len, rotation, [next, &[]], between);
            }
        }
    };
}
pub(super) use kernels;
