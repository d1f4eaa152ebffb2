//! The part of a gradient that is sent, and its time.

use thc_policy::ratio::RatioLimits;

/// A way in which gradients travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// All bits to everybody
    Plain,
    /// 4 bits to everybody (QSGD)
    Fixed4,
    /// To everybody in two stages, as much as there is time for (AQGB)
    Aqgb,
}

/// Bytes of an f32.
pub const WORD: f64 = 4.0;

impl Scheme {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "32 bit",
            Self::Fixed4 => "4 bit",
            Self::Aqgb => "AQGB",
        }
    }

    /// The part of the bytes of what is not delivered yet, `size`, that the first stage sends: `left` until the next block is
    /// produced, nothing after the last.
    pub fn first(self, control: &RatioLimits, size: f64, bandwidth: f64, left: Option<f64>) -> f64 {
        match self {
            Self::Plain => 1.0,
            Self::Fixed4 => 0.125,
            Self::Aqgb => control.first(size, bandwidth, left),
        }
    }
}
