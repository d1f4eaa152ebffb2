//! A digest of what this build computes, so that builds which compute different numbers never join one job.
//!
//! All workers must derive the same signs, and turn the same sums into the same means. The digest is over the bits
//! that this processor's kernels give for a fixed input: the forward transform, the estimates of fixed sums, and the
//! inverse transform. It leaves out that on which workers need not agree: how norms are added up, and how
//! each worker rounds.

use crate::quantizer::{dequantize8, dequantize16};
use crate::rht;
use crate::signs::{SignKey, mix};
use std::sync::OnceLock;

/// Coordinates of the fixed input: enough for all kinds of stages of the transform, and for whole vectors of
/// every width.
const COORDINATES: usize = 4096;
/// Stands for what follows from this revision of docs/protocol.md but shows in no number here.
const REVISION: u64 = 2;

/// The digest; never 0. It takes some 50 µs once.
#[must_use]
pub fn digest() -> u64 {
    static DIGEST: OnceLock<u64> = OnceLock::new();
    *DIGEST.get_or_init(compute)
}

fn compute() -> u64 {
    let key = SignKey { job_seed: 0x0123_4567_89AB_CDEF, call: 77, partition: 5 };
    // Sums of all values, and inputs of many magnitudes.
    let sums: Vec<u8> = (0..COORDINATES as u64).map(|i| mix(i) as u8).collect();
    let mut x: Vec<f32> = (0..COORDINATES as u64)
        .map(|i| {
            let word = mix(i);
            f32::from_bits((word as u32 & 0x807F_FFFF) | (((word >> 40) as u32 % 64 + 96) << 23))
        })
        .collect();
    let mut hash = REVISION;
    let mut take = |values: &[f32]| {
        hash = values.iter().fold(hash, |hash, v| mix(hash ^ u64::from(v.to_bits())).wrapping_add(1));
    };
    // Lengths and ranges are right by construction; an error would only make this build's digest another one.
    let wrong = rht::forward(&mut x, key).is_err();
    take(&x);
    let mut wrong = wrong | dequantize8(&sums, 5, 30, 0.731, &mut x).is_err();
    take(&x);
    wrong |= rht::inverse(&mut x, key).is_err();
    take(&x);
    wrong |= dequantize16(&sums, 63, 255, 1.17e-3, &mut x[..COORDINATES / 2]).is_err();
    take(&x[..COORDINATES / 2]);
    (hash ^ u64::from(wrong)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    /// It may change only together with docs/protocol.md and REVISION: then builds of before and after differ on purpose.
    #[test]
    fn every_processor_computes_the_same() {
        for isa in Isa::available() {
            Isa::select(isa);
            assert_eq!(compute(), 0xAAA8_AD7A_DBDB_D2DD, "{isa:?}");
        }
        assert_eq!(digest(), compute());
    }
}
