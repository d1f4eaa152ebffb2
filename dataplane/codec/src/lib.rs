//! THC numeric kernels: transform, quantizer, lookup tables, packing.
//!
//! Everything here works on plain slices and knows nothing of packets, sockets or
//! threads. One all-reduce of one partition uses the modules in this order:
//!
//! 1. [`partition`] cuts a tensor; [`norm::l2_sum`] gives the norm of gradient + error feedback;
//! 2. [`rht`] rotates it with the signs of [`signs::SignKey`], which all workers share;
//! 3. [`quantizer::Quantizer`] turns coordinates into indices of a [`table::LookupTable`], with the
//!    worker's private [`rounding::Rounding`], and leaves the residual for [`feedback::ErrorFeedback`];
//! 4. [`aggregate`] is what a parameter server does with the packed indices of every worker;
//! 5. [`quantizer::dequantize8`] and [`rht::inverse`] turn the sums into the mean gradient.
//!
//! [`sums`] packs sums into fewer bits than their lanes have, between 4 and 5.
//!
//! [`block`] has steps 2, 3 and 5 for one block that fits the first cache, without leaving it.
//!
//! A crate with kernels of its own chooses them by [`isa::Isa::level`], and adds up in the order of [`norm`] with
//! [`norm::PARTIAL_SUMS`] and [`norm::reduce`].
//!
//! The functions in the private `scalar` module define every result; vector kernels reproduce
//! them bit for bit, so workers on different processors stay in step.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod arch;
mod arguments;

pub mod aggregate;
pub mod block;
pub mod buffer;
pub mod definitions;
pub mod error;
pub mod feedback;
mod grid;
pub mod isa;
pub mod lanes;
pub mod norm;
pub mod packing;
pub mod partition;
pub mod quantizer;
pub mod rht;
pub mod rounding;
mod scalar;
pub mod signs;
pub mod sums;
pub mod table;

pub use error::CodecError;
