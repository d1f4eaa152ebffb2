//! Kernels whose coordinates are independent of each other: their definition, compiled for each instruction
//! set. The compiler vectorizes such loops, and neither fuses nor reorders operations that Rust rounds one by
//! one.

/// The kernels of scales, with these features.
macro_rules! scales {
    ($features:literal) => {
        use crate::arguments::Power;
        use crate::scalar::scales as scalar;

        #[target_feature(enable = $features)]
        pub(crate) fn learn(known: &mut [f32], mean: &[f32], kept: f32, fresh: f32) {
            scalar::learn(known, mean, kept, fresh);
        }

        #[target_feature(enable = $features)]
        pub(crate) fn restore_and_learn(
            known: &mut [f32],
            mean: &mut [f32],
            scale: &[f32],
            kept: f32,
            fresh: f32,
        ) {
            scalar::restore_and_learn(known, mean, scale, kept, fresh);
        }

        #[target_feature(enable = $features)]
        pub(crate) fn derive(squares: &[f32], usual: f32, floor: f32, power: Power, scales: &mut [f32]) {
            scalar::derive(squares, usual, floor, power, scales);
        }

        #[target_feature(enable = $features)]
        pub(crate) fn halve_thrice(x: &[f32], out: &mut [f32]) {
            scalar::halve_thrice(x, out);
        }
    };
}
pub(super) use scales;
