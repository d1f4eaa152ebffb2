//! The randomized Hadamard transform by itself: forward or inverse, in place or not.

/// Defines the transform's kernels for one instruction set, with leaves of `LEAF` vectors `Floats`.
macro_rules! kernels {
    ($wide:expr, $features:literal) => {
        use $crate::arch::hadamard::{Source, leaf_len, transform};
        use $crate::scalar::rht as scalar;
        use $crate::signs::Signs;

        #[target_feature(enable = $features)]
        pub(crate) fn forward(x: &mut [f32], scale: f32, signs: Signs) {
            if x.len() < leaf_len::<Floats, LEAF>() {
                return scalar::forward(x, scale, signs);
            }
            let (p, len, rotation) = (x.as_mut_ptr(), x.len(), (scale, signs));
            let source = Some(Source::One(p));
            // SAFETY: the length is a power of two (the caller checked) of at least the minimum;
            // this function has the vector's features.
            unsafe { transform::<Floats, LEAF, $wide>(source, p, None, len, rotation, [&[]; 2], |_, _| {}) };
        }

        #[target_feature(enable = $features)]
        pub(crate) fn forward_into(x: &[f32], out: &mut [f32], scale: f32, signs: Signs) {
            let (len, rotation) = (out.len(), (scale, signs));
            if x.len() != len || len < leaf_len::<Floats, LEAF>() {
                scalar::pad(x, out);
                return forward(out, scale, signs);
            }
            let (source, p) = (Some(Source::One(x.as_ptr())), out.as_mut_ptr());
            // SAFETY: as in `forward`; x is as long as out.
            unsafe { transform::<Floats, LEAF, $wide>(source, p, None, len, rotation, [&[]; 2], |_, _| {}) };
        }

        #[target_feature(enable = $features)]
        pub(crate) fn forward_sum(x: &[f32], e: &[f32], out: &mut [f32], scale: f32, signs: Signs) {
            let (len, rotation) = (out.len(), (scale, signs));
            if x.len() != len || e.len() != len || len < leaf_len::<Floats, LEAF>() {
                scalar::pad_sum(x, e, out);
                return forward(out, scale, signs);
            }
            let (source, p) = (Some(Source::Sum(x.as_ptr(), e.as_ptr())), out.as_mut_ptr());
            // SAFETY: as in `forward`; x and e are as long as out.
            unsafe { transform::<Floats, LEAF, $wide>(source, p, None, len, rotation, [&[]; 2], |_, _| {}) };
        }

        #[target_feature(enable = $features)]
        pub(crate) fn inverse(x: &mut [f32], scale: f32, signs: Signs) {
            if x.len() < leaf_len::<Floats, LEAF>() {
                return scalar::inverse(x, scale, signs);
            }
            let (p, len, rotation) = (x.as_mut_ptr(), x.len(), (scale, signs));
            // SAFETY: as in `forward`.
            unsafe { transform::<Floats, LEAF, $wide>(None, p, Some(p), len, rotation, [&[]; 2], |_, _| {}) };
        }

        #[target_feature(enable = $features)]
        pub(crate) fn inverse_into(x: &mut [f32], out: &mut [f32], scale: f32, signs: Signs) {
            let (len, rotation) = (x.len(), (scale, signs));
            if out.len() != len || len < leaf_len::<Floats, LEAF>() {
                inverse(x, scale, signs);
                out.copy_from_slice(&x[..out.len()]);
                return;
            }
            let (p, target) = (x.as_mut_ptr(), Some(out.as_mut_ptr()));
            // SAFETY: as in `forward`; out is as long as x.
            unsafe { transform::<Floats, LEAF, $wide>(None, p, target, len, rotation, [&[]; 2], |_, _| {}) };
        }
    };
}
pub(super) use kernels;
