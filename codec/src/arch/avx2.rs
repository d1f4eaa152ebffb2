//! Kernels for AVX2 with FMA (Haswell and later, Zen).

pub(super) mod aggregate;
pub(super) mod lattice;
pub(super) mod norm;
pub(super) mod quantize;
pub(super) mod rht;
