//! Policies: what to compress, and how much. Pure: inputs are measurements, outputs are choices; no I/O, clock or randomness.
//!
//! - [`layerwise`]: for each layer one of several compressions, so that all together cost the least and lose no more than a
//!   bound (L-GreCo, sections 3 and 4).
//! - [`thc`]: what a lookup table costs and loses, in closed form.
//! - [`accordion`]: which layers are in a critical regime, as a source of that bound.
//! - [`buckets`]: what a byte costs in time, by bucket, so that time is the objective.
//! - [`threshold`]: from which size on compression pays at all (SlimGC, section 3.3).
//! - [`row`]: how well communication is hidden behind computing (AQGB, section 3).
//! - [`ratio`]: how much of a gradient is sent so that it is there in time (AQGB, section 4.3).
#![forbid(unsafe_code)]

pub mod accordion;
pub mod buckets;
pub mod error;
pub mod layerwise;
pub mod ratio;
pub mod row;
pub mod thc;
pub mod threshold;

pub use error::AdaptError;
