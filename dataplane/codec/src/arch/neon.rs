//! Kernels for NEON, which every 64-bit ARM processor has.

pub(super) mod aggregate;
pub(super) mod block;
pub(super) mod norm;
pub(super) mod pack;
pub(super) mod peak {
    //! For benchmarks.

    /// `crate::peak::run` with these vectors.
    #[target_feature(enable = "neon")]
    pub(crate) fn run(rounds: u32) -> f32 {
        // SAFETY: this function has the vector's features.
        unsafe { crate::arch::ports::run::<super::rht::Floats, { crate::arguments::OPERATIONS }>(rounds) }
    }
}
pub(super) mod quantize;
pub(super) mod rht;
