//! Kernels for AVX-512 with the VBMI extension besides (Ice Lake and later, Zen 4). What does not gain by it is that of
//! `avx512`.

pub(super) mod aggregate;
pub(super) use super::avx512::{block, lattice, norm, pack, peak, quantize, requantize, rht, scales};
