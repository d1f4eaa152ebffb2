//! A session's scale of RAW integers (P32).

use super::raw::{add_feedback, exponent, power_of_two, write_words};
use super::{Compressor, Measured};

impl Compressor {
    /// s of P5: the power of two by which coordinates are multiplied, from the maximum's f32 bits.
    pub fn raw_scale(&self, norm: u32) -> f64 {
        power_of_two(self.raw_bits() - exponent(norm))
    }

    /// The largest magnitude of one worker's integers, 2^(30 − ⌈log₂ n⌉): n of them add up to 2^30 at most.
    pub fn raw_limit(&self) -> f64 {
        power_of_two(self.raw_bits())
    }

    /// All packets of a partition that goes RAW with its error feedback.
    pub fn write_raw_with(&self, at: &Measured, x: &[f32], kept: &[f32], words: &mut [u8]) {
        write_words(add_feedback(x, kept), self.raw_scale(at.norm), self.raw_limit(), words);
    }

    fn raw_bits(&self) -> i32 {
        30 - (u16::BITS - (self.workers.max(1) - 1).leading_zeros()) as i32
    }
}
