//! The schemes with their parameters, which are the same in all figures.

use thc_baselines::{
    Bits, Dgc, OneBit, PowerSgd, Qsgd, Scheme, SignSgd, TernGrad, Tfp, Thc, TopK, TwoBit, Uncompressed,
    UniformThc, tfp::Format,
};
use thc_codec::partition::{BLOCKS, split};
use thc_codec::table::choose_complete;

use super::feedback::WithFeedback;
use super::sparse_loco::SparseLoCo;
use crate::error::Result;

/// A scheme that figures name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Named {
    /// Exact means of 32-bit floats.
    Exact,
    /// THC by bit budget, granularity and 1/p.
    Thc { bits: u8, granularity: u16, inverse: u16 },
    /// Uniform THC of 4 bits, with the rotation and with error feedback or without.
    Uniform { rotated: bool, feedback: bool },
    /// TopK by the inverse of the share that is sent up, and down.
    TopK { inverse: u16, down: u16 },
    /// DGC of 10 %, momentum 0.9.
    Dgc,
    /// TernGrad.
    TernGrad,
    /// QSGD by bits of a coordinate up and down, with one norm for each 512 coordinates.
    Qsgd { up: u32, down: u32 },
    /// SignSGD with majority vote.
    SignSgd,
    /// 1-bit SGD.
    OneBit,
    /// 2-bit quantization with a threshold of so many thousandths.
    TwoBit { thousandths: u32 },
    /// TFP of so many bits.
    Tfp { bits: u32 },
    /// TFP of so many bits, always rounded at random, so that no width needs error feedback, as AQGB sends it.
    Truncated { bits: u32 },
    /// PowerSGD of a rank.
    PowerSgd { rank: u8 },
    /// THC's values, all that a lane of so many bits has room for, added up on a ring of so many workers.
    Lanes { bits: u8, workers: u8 },
    /// SparseLoCo by the inverse of the share that is sent.
    SparseLoCo { inverse: u16 },
}

impl Named {
    /// THC with the parameters of the paper's testbed (section 8): g = 30, p = 1/32.
    pub const THC: Self = Self::Thc { bits: 4, granularity: 30, inverse: 32 };

    /// The same for a tensor that may be too short for it: a matrix has no rank above its sides.
    pub fn of_length(self, length: usize) -> Self {
        match self {
            Self::PowerSgd { rank } => {
                let rows = (length as f64).sqrt().ceil().max(1.0) as usize;
                Self::PowerSgd { rank: rank.min(rows.min(length.div_ceil(rows)) as u8).max(1) }
            }
            other => other,
        }
    }

    /// As figures write it.
    pub fn label(self) -> String {
        match self {
            Self::Exact => "no compression".to_owned(),
            Self::Thc { bits: 4, granularity, inverse } => format!("THC, g = {granularity}, p = 1/{inverse}"),
            Self::Thc { bits, granularity, inverse } => {
                format!("THC, {bits} bits, g = {granularity}, p = 1/{inverse}")
            }
            Self::Uniform { rotated, feedback } => {
                let [rotation, feedback] = [(rotated, "rotation"), (feedback, "feedback")]
                    .map(|(has, what)| format!("{} {what}", if has { "with" } else { "without" }));
                format!("uniform THC {rotation}, {feedback}")
            }
            Self::TopK { inverse, down } if inverse == down => format!("TopK 1/{inverse}"),
            Self::TopK { inverse, down } => format!("TopK 1/{inverse} up and 1/{down} down"),
            Self::Dgc => "DGC 10 %".to_owned(),
            Self::TernGrad => "TernGrad".to_owned(),
            Self::Qsgd { up, down } => format!("QSGD, {up} and {down} bits"),
            Self::SignSgd => "SignSGD".to_owned(),
            Self::OneBit => "1-bit SGD".to_owned(),
            Self::TwoBit { thousandths } => format!("2-bit, threshold {}", f64::from(thousandths) / 1000.0),
            Self::Tfp { bits } => format!("TFP, {bits} bits"),
            Self::Truncated { bits } => format!("TFP at random, {bits} bits"),
            Self::PowerSgd { rank } => format!("PowerSGD, rank {rank}"),
            Self::Lanes { bits, .. } => format!("THC on a ring, lanes of {bits} bits"),
            Self::SparseLoCo { inverse } => format!("SparseLoCo 1/{inverse}"),
        }
    }

    /// Whether an outer step that it averages has no momentum of its own: what it keeps back is one.
    pub fn takes_the_place_of_momentum(self) -> bool {
        matches!(self, Self::SparseLoCo { .. })
    }

    /// Bits of so many coordinates that all workers of a ring pass on while sums are added up, and that one of them gets of the complete sums;
    /// nothing where a server averages.
    pub fn on_a_ring(self, length: usize) -> Option<Bits> {
        let Self::Lanes { bits, workers } = self else { return None };
        // Each part of a sum is passed on n − 1 times, and as often when it is complete; norms go before in the same way.
        let coordinates = split(length, *BLOCKS.end()).map(|part| u64::from(bits) * part.padded as u64 + 32);
        let passed = (u64::from(workers) - 1) * coordinates.sum::<u64>();
        Some(Bits { up: passed, down: passed / u64::from(workers) })
    }

    /// The scheme.
    pub fn scheme(self) -> Result<Box<dyn Scheme>> {
        let levels = |bits: u32| (1 << (bits - 1)) - 1;
        Ok(match self {
            Self::Exact => Box::new(Uncompressed),
            Self::Thc { bits, granularity, inverse } => {
                Box::new(Thc::new(bits, granularity, 1.0 / f64::from(inverse))?)
            }
            Self::Uniform { rotated, feedback: false } => Box::new(UniformThc { bits: 4, rotated }),
            Self::Uniform { rotated, feedback: true } => {
                Box::new(WithFeedback(UniformThc { bits: 4, rotated }))
            }
            Self::TopK { inverse, down } => {
                Box::new(TopK { ratio: 1.0 / f64::from(inverse), down: 1.0 / f64::from(down) })
            }
            Self::Dgc => Box::new(Dgc { ratio: 0.1, momentum: 0.9 }),
            Self::TernGrad => Box::new(TernGrad { layer: None, clip: Some(2.5) }),
            Self::Qsgd { up, down } => {
                Box::new(Qsgd { levels: levels(up), down_levels: levels(down), bucket: Some(512) })
            }
            Self::SignSgd => Box::new(SignSgd),
            Self::OneBit => Box::new(OneBit { column: None }),
            Self::TwoBit { thousandths } => Box::new(TwoBit { threshold: thousandths as f32 / 1000.0 }),
            Self::Tfp { bits } => Box::new(Tfp::narrow(bits)),
            Self::Truncated { bits } => {
                let format = match bits {
                    0..=8 => Format::F8,
                    9..=16 => Format::F16,
                    _ => Format::F32,
                };
                Box::new(Tfp { format, random: true, ..Tfp::narrow(bits) })
            }
            Self::PowerSgd { rank } => Box::new(PowerSgd { rank: rank.into() }),
            Self::Lanes { bits, workers } => {
                Box::new(Thc::with_table(choose_complete(bits, workers.into())?.table))
            }
            Self::SparseLoCo { inverse } => Box::new(SparseLoCo { inverse: inverse.into() }),
        })
    }
}
