//! The schemes with their parameters.

use thc_baselines::{Qsgd, Scheme, TernGrad, Thc, TopK, Uncompressed, UniformThc};

use crate::error::Result;

/// A scheme that tables name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Named {
    /// Exact means of 32-bit floats.
    Exact,
    /// THC by bit budget, granularity and 1/p.
    Thc { bits: u8, granularity: u16, inverse: u16 },
    /// Uniform THC of 4 bits.
    Uniform { rotated: bool },
    /// TopK by the inverse of the share that is sent.
    TopK { inverse: u16 },
    /// TernGrad, clipped at 2.5 standard deviations or not at all.
    TernGrad { clipped: bool },
    /// QSGD by bits of a coordinate up and down, with one norm for each 512 coordinates.
    Qsgd { up: u32, down: u32 },
}

impl Named {
    /// THC with the parameters of the paper's testbed (section 8): g = 30, p = 1/32.
    pub const THC: Self = Self::Thc { bits: 4, granularity: 30, inverse: 32 };

    /// The scheme.
    pub fn scheme(self) -> Result<Box<dyn Scheme>> {
        let levels = |bits: u32| (1 << (bits - 1)) - 1;
        Ok(match self {
            Self::Exact => Box::new(Uncompressed),
            Self::Thc { bits, granularity, inverse } => {
                Box::new(Thc::new(bits, granularity, 1.0 / f64::from(inverse))?)
            }
            Self::Uniform { rotated } => Box::new(UniformThc { bits: 4, rotated }),
            Self::TopK { inverse } => Box::new(TopK::symmetric(1.0 / f64::from(inverse))),
            Self::TernGrad { clipped } => Box::new(TernGrad { layer: None, clip: clipped.then_some(2.5) }),
            Self::Qsgd { up, down } => {
                Box::new(Qsgd { levels: levels(up), down_levels: levels(down), bucket: Some(512) })
            }
        })
    }
}
