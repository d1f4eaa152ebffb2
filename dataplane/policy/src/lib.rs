//! Policies that decide what to compress, and how much. They are pure functions from measurements to choices, without I/O,
//! clock or randomness.
//!
//! - [`layerwise`] chooses a compression for each layer, so that all layers together cost the least and lose no more than
//!   a bound (L-GreCo, sections 3 and 4).
//! - [`thc`] computes the cost and the error of a lookup table in closed form.
//! - [`threshold`] finds the size from which on compression pays (SlimGC, section 3.3).
//! - [`ratio`] decides how much of a gradient to send so that it arrives in time (AQGB, section 4.3).
#![forbid(unsafe_code)]

pub mod error;
pub mod layerwise;
pub mod ratio;
pub mod thc;
pub mod threshold;

pub use error::AdaptError;
