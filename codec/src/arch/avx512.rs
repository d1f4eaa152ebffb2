//! Kernels for AVX-512 with the F, BW, DQ and VL extensions (Skylake server and later, Zen 4).

pub(super) mod aggregate;
pub(super) mod lattice;
pub(super) mod norm;
pub(super) mod quantize;
pub(super) mod rht;
