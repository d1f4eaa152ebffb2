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

/// A count with its noun, such as `1 worker` or `2 workers`.
#[must_use]
pub fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
