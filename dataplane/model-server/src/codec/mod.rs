//! Quantizers of asynchronous training (Yu, Wu, Huang: Double Quantization for Communication-Efficient
//! Distributed Optimization; "the paper" here).
//!
//! - [`lattice`] rounds a vector onto multiples of a scale, at random so that the mean is right;
//! - [`sparsify`] keeps coordinates at random, so that the mean is right;
//! - [`positions`] writes which were kept.
//!
//! The all-reduce uses none of these. They use the random stream and the norms of [`thc_codec`].

mod kernels;
pub mod lattice;
pub mod positions;
pub mod sparsify;
