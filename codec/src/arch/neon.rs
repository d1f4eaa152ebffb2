//! Kernels for NEON, which every 64-bit ARM processor has.

pub(super) mod aggregate;
pub(super) mod lattice;
pub(super) mod norm;
pub(super) mod quantize;
pub(super) mod rht;
