//! Values as users write them: in a file as text or as a number, as a flag as text.
//!
//! All programs read times, sizes, fractions and secrets by these types, so that they are written alike everywhere.

mod fraction;
mod interval;
mod secret;
mod size;
mod textual;

pub use fraction::Fraction;
pub use interval::Interval;
pub use secret::Secret;
pub use size::Size;
pub(crate) use textual::{deserialize, textual};
