//! What of a gradient is sent, and when.

use clap::ValueEnum;
use serde::Serialize;
use thc_adapt::ratio::RatioLimits;

/// How gradients travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// All bits to everybody
    Plain,
    /// 4 bits to everybody (QSGD)
    Fixed4,
    /// To everybody in two stages, as much as there is time for (AQGB)
    Aqgb,
    /// THC through an aggregator at the switch's place: 4 bits up, 8 down
    Thc,
    /// THC, and then again what it lost, call by call, while there is time
    ThcTwoStage,
}

/// Bytes of an f32.
pub const WORD: f64 = 4.0;
/// Bytes down per coordinate, headers included, of THC's usual table, and of indices of 8 bits: the direction that bounds.
const THC: f64 = 1072.0 / 1024.0 + 68.0 / 8192.0;
const THC8: f64 = 2.0 * 1072.0 / 1024.0 + 68.0 / 8192.0;
/// Calls that follow the first one of a block at most: with one it takes 17 to 25 bits of the 32 that it would take whole.
const REFINEMENTS: u32 = 1;

impl Scheme {
    /// As in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "32 bit",
            Self::Fixed4 => "4 bit",
            Self::Aqgb => "AQGB",
            Self::Thc => "THC",
            Self::ThcTwoStage => "THC, two stages",
        }
    }

    /// Whether workers send to each other, and not to an aggregator.
    pub fn is_broadcast(self) -> bool {
        matches!(self, Self::Plain | Self::Fixed4 | Self::Aqgb)
    }

    /// The part of the bytes of what is not delivered yet, `size`, that the first stage sends: `left` until the next block is
    /// produced, nothing after the last.
    pub fn first(self, control: &RatioLimits, size: f64, bandwidth: f64, left: Option<f64>) -> f64 {
        match self {
            Self::Plain => 1.0,
            Self::Fixed4 => 0.125,
            Self::Aqgb => control.first(size, bandwidth, left),
            Self::Thc => THC / WORD,
            Self::ThcTwoStage => {
                let wide = left.is_some_and(|left| size * THC8 / WORD <= bandwidth * left);
                if wide { THC8 / WORD } else { THC / WORD }
            }
        }
    }

    /// The part of what the first stage left that a second one sends, if it is there in time. Of THC that is a call of the
    /// block's full size; `calls` have been made.
    pub fn second(
        self,
        control: &RatioLimits,
        size: f64,
        bandwidth: f64,
        left: f64,
        calls: u32,
    ) -> Option<f64> {
        match self {
            Self::Plain | Self::Fixed4 | Self::Thc => None,
            Self::Aqgb => control.second(size, bandwidth, left),
            Self::ThcTwoStage => {
                let ratio = THC / WORD;
                (calls < REFINEMENTS && size * ratio <= bandwidth * left).then_some(ratio)
            }
        }
    }
}
