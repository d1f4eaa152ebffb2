//! Values as users write them: in a file as text or as a number, as a flag as text.
//!
//! Options of servers, jobs and workers read times, sizes, fractions and secrets by these types, so they are written alike
//! everywhere, and a wrong one gets the same answer.

mod fraction;
mod interval;
mod secret;
mod size;
mod textual;

pub use fraction::Fraction;
pub use interval::Interval;
pub use secret::Secret;
pub use size::Size;
pub(crate) use textual::textual;
pub use textual::{Textual, deserialize};
