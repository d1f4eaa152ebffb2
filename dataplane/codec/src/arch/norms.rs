//! Norms on vectors of any width.
//!
//! An instruction set has `Sums`, the 32 partial sums as vectors of doubles; `zero`, such sums; `load`, which makes vectors of a chunk of
//! 32 floats; `add`, vector by vector; `add_squares`, of a chunk to the sums; and `store`, the sums in their order.

/// Defines the kernels of norms for one instruction set.
macro_rules! kernels {
    ($features:literal) => {
        #[target_feature(enable = $features)]
        pub(crate) fn squares(x: &[f32]) -> f64 {
            let mut sums = zero();
            let chunks = x.chunks_exact(PARTIAL_SUMS);
            let tail = chunks.remainder();
            for x in chunks {
                $crate::arch::prefetch::prefetch_ahead::<PARTIAL_SUMS>(x.as_ptr());
                add_squares(&mut sums, load(x));
            }
            let mut lanes = store(sums);
            scalar::add_squares(&mut lanes, tail);
            scalar::reduce(lanes)
        }

        #[target_feature(enable = $features)]
        pub(crate) fn squares_sum(x: &[f32], e: &[f32]) -> f64 {
            let mut sums = zero();
            let (xs, es) = (x.chunks_exact(PARTIAL_SUMS), e.chunks_exact(PARTIAL_SUMS));
            let (x_tail, e_tail) = (xs.remainder(), es.remainder());
            for (x, e) in xs.zip(es) {
                $crate::arch::prefetch::prefetch_ahead::<PARTIAL_SUMS>(x.as_ptr());
                $crate::arch::prefetch::prefetch_ahead::<PARTIAL_SUMS>(e.as_ptr());
                add_squares(&mut sums, add(load(x), load(e)));
            }
            let mut lanes = store(sums);
            scalar::add_squares_sum(&mut lanes, x_tail, e_tail);
            scalar::reduce(lanes)
        }
    };
}
pub(super) use kernels;
