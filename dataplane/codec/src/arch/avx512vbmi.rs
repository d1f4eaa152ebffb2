//! Kernels for AVX-512 with the VBMI extension, too (Ice Lake and later, Zen 4). Kernels that do not gain
//! from it are those of `avx512`.

pub(super) mod aggregate;
pub(super) use super::avx512::{block, norm, pack, peak, quantize, rht};
