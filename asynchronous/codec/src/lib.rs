//! Quantizers of asynchronous training (Yu, Wu, Huang: Double Quantization for Communication-Efficient
//! Distributed Optimization; "the paper" here).
//!
//! - [`lattice`] rounds a vector onto multiples of a scale, at random so that the mean is right;
//! - [`sparsify`] keeps coordinates at random, so that the mean is right;
//! - [`positions`] writes which were kept in few bits.
//!
//! The all-reduce uses none of these. They use the random stream, the norms and the choice of an instruction set of
//! [`thc_codec`], whose rule holds here, too: the functions in the private `scalar` module define every result,
//! and vector kernels reproduce them bit for bit.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod arch;
mod domain;
pub mod lattice;
pub mod positions;
mod scalar;
pub mod sparsify;
