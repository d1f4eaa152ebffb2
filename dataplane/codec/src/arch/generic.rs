//! Kernels that are written once for all instruction sets.

pub(super) mod aggregate;
pub(super) mod block;
mod hadamard;
pub(super) mod norm;
pub(super) mod pack;
mod passes;
pub(super) mod quantize;
pub(super) mod rht;
