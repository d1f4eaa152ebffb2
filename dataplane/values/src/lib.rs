//! Values as users write them: in a file as text or as a number, as a flag as text.
//!
//! Options of servers, jobs and workers read times, sizes, fractions and secrets by these types, so that they
//! are written alike everywhere and a wrong one gets the same answer.
#![forbid(unsafe_code)]

mod fraction;
mod interval;
mod secret;
mod size;
mod textual;

pub use fraction::Fraction;
pub use interval::Interval;
pub use secret::Secret;
pub use size::Size;
pub use textual::{Textual, deserialize};

/// What [`textual!`] is made of.
#[doc(hidden)]
pub use serde;
