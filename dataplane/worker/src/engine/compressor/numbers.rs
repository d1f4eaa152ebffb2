//! What others compute with: a call's keys, a partition's range, a result's step.

use thc_codec::quantizer::Affine;

/// The keys of the signs (P29) and of a worker's roundings (P31) of a call: the key of partition p is
/// mix((this xor p) + G).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallKeys {
    /// What the signs derive from.
    pub signs: u64,
    /// What the roundings derive from.
    pub roundings: u64,
    /// What changes the words of the roundings, the same for all of them.
    pub stratum: u32,
}

/// What a partition is compressed with by somebody else than this engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Numbers {
    /// The numbers of a partition that travels as indices.
    pub affine: Affine,
    /// The scale of a partition that goes RAW, s of P5.
    pub raw: f64,
}

/// What the sums of a packet become estimates with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Width of one unit of a sum.
    pub step: f32,
    /// −M.
    pub lo: f32,
    /// What words of RAW are multiplied by.
    pub raw: f64,
}
