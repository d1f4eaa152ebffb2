//! The definition of every result, in plain Rust. Vector kernels must reproduce it bit for bit.

pub(crate) mod aggregate;
pub(crate) mod block;
pub(crate) mod norm;
pub(crate) mod pack;
pub(crate) mod quantize;
pub(crate) mod rht;
