//! The methods compared: one code, with parts switched off.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use thc_model::payload::Encoding;
use thc_model::{ModelBits, Push};

use super::problem::Source;

/// A method, by what it does with the model and with gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Full precision both ways
    Asyfpg,
    /// The same with momentum
    AccAsyfpg,
    /// Gradients quantized
    Qsvrg,
    /// The model quantized
    Halp,
    /// Both quantized
    Asylpg,
    /// Gradients made sparse first
    SparseAsylpg,
    /// Both quantized, with momentum
    AccAsylpg,
}

impl Method {
    /// As the paper writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Asyfpg => "AsyFPG",
            Self::AccAsyfpg => "Acc-AsyFPG",
            Self::Qsvrg => "QSVRG",
            Self::Halp => "HALP",
            Self::Asylpg => "AsyLPG",
            Self::SparseAsylpg => "Sparse-AsyLPG",
            Self::AccAsylpg => "Acc-AsyLPG",
        }
    }

    /// Precision of pulls.
    pub fn model_bits(self) -> ModelBits {
        ModelBits::Fixed(match self {
            Self::Asyfpg | Self::AccAsyfpg | Self::Qsvrg => 32,
            _ => 8,
        })
    }

    /// Form of pushes.
    pub fn push(self, source: Source) -> Push {
        let bits = source.bits();
        let encoding = match self {
            Self::Asyfpg | Self::AccAsyfpg | Self::Halp => Encoding::Full,
            Self::Qsvrg | Self::Asylpg | Self::AccAsylpg => Encoding::Dense { bits },
            Self::SparseAsylpg => Encoding::Sparse { bits, budget: None },
        };
        Push::with_encoding(encoding)
    }

    /// Whether it has momentum.
    pub fn is_accelerated(self) -> bool {
        matches!(self, Self::AccAsyfpg | Self::AccAsylpg)
    }

    /// How many times fewer bits than AsyFPG the paper has.
    pub fn published_factor(self, source: Source) -> Option<f64> {
        match (source, self) {
            (_, Self::Asyfpg) => Some(1.0),
            (Source::Rcv1, Self::Asylpg) => Some(6.48),
            (Source::Rcv1, Self::SparseAsylpg) => Some(7.33),
            (Source::Rcv1, Self::AccAsylpg) => Some(19.19),
            (Source::Digits, Self::AccAsyfpg) => Some(3.52),
            (Source::Digits, Self::Qsvrg) => Some(5.38),
            (Source::Digits, Self::Halp) => Some(3.29),
            (Source::Digits, Self::Asylpg) => Some(7.28),
            (Source::Digits, Self::SparseAsylpg) => Some(8.87),
            (Source::Digits, Self::AccAsylpg) => Some(19.13),
            _ => None,
        }
    }

    /// η unless another is given: the same for all, found by trying 0.05, 0.1, 0.2, 0.5, 1, 2 and 4.
    pub fn rate(source: Source) -> f32 {
        if source == Source::Digits { 0.2 } else { 4.0 }
    }
}
