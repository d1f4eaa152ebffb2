//! The numbers of a session with which callers of packed calls compute: keys, ranges and steps.

use super::raw::raw_factor;
use super::{Compressor, Measured};
use thc_codec::error::CodecError;
use thc_codec::quantizer::{self, Affine};
use thc_codec::signs;
use thc_protocol::wire::Choice;

/// The keys of the signs (P29) and of a worker's roundings (P31) of a call: the key of partition p is
/// mix((this xor p) + G).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallKeys {
    /// The key of the signs.
    pub signs: u64,
    /// The key of the roundings.
    pub roundings: u64,
    /// The word that is combined with all words of the roundings.
    pub stratum: u32,
}

/// The parameters of compressing a partition outside of this engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Numbers {
    /// The numbers of a partition that travels as indices.
    pub affine: Affine,
    /// The scale of a partition that goes RAW, s of P5.
    pub raw: f64,
}

/// The parameters that turn the sums of a packet into estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Width of one unit of a sum.
    pub step: f32,
    /// −M.
    pub lo: f32,
    /// The factor of RAW words.
    pub raw: f64,
}

impl Compressor {
    /// The parameters for compressing a partition elsewhere; all 0 if its norm is 0.
    ///
    /// # Errors
    /// As [`Self::compress`].
    pub fn numbers(&self, at: &Measured) -> Result<Numbers, CodecError> {
        if at.norm == 0 {
            return Ok(Numbers::default());
        }
        if at.choice == Choice::Raw {
            return Ok(Numbers { raw: self.raw_scale(at.norm), ..Numbers::default() });
        }
        let coder = self.coder_of(at)?;
        Ok(Numbers { affine: coder.quantizer.affine(Compressor::range(coder, at))?, raw: 0.0 })
    }

    /// The parameters for estimating a packet's sums elsewhere: step and −M for `count` workers' indices, or
    /// 0 and the factor of their words; all 0 for a lost packet.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn estimate(&self, at: &Measured, count: u16) -> Result<Estimate, CodecError> {
        if at.norm == 0 || count == 0 {
            return Ok(Estimate::default());
        }
        if at.choice == Choice::Raw {
            return Ok(Estimate { raw: raw_factor(count, self.raw_scale(at.norm)), ..Estimate::default() });
        }
        let coder = self.coder_of(at)?;
        let range = Compressor::range(coder, at);
        let step = quantizer::step_of_sums(range, u32::from(count), coder.quantizer.granularity())?;
        Ok(Estimate { step, lo: -range, raw: 0.0 })
    }

    /// The keys from which the signs and this worker's roundings of all partitions of a call derive (P29),
    /// and the stratum of its draws.
    pub fn keys(&self, call: u64) -> CallKeys {
        CallKeys {
            signs: signs::derive_call(self.job_seed, call),
            roundings: self.roundings.derive_call(call),
            stratum: self.roundings.stratum(),
        }
    }
}
