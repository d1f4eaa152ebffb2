//! Kernels for AVX-512 with the F, BW, DQ and VL extensions (Skylake server and later, Zen 4).

pub(super) mod aggregate;
pub(super) mod block;
pub(super) mod norm;
pub(super) mod pack;
pub(super) mod peak {
    //! For benchmarks.

    /// `crate::peak::run` with these vectors.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(crate) fn run(rounds: u32) -> f32 {
        // SAFETY: this function has the vector's features.
        unsafe { crate::arch::ports::run::<super::rht::Floats, { crate::arguments::OPERATIONS }>(rounds) }
    }
}
pub(super) mod quantize;
pub(super) mod rht;
