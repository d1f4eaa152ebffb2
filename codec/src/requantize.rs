//! Sums told in 4 bits on their way down (P45), with a range for every 64 of them.
//!
//! For a sum S of a group whose least sum is `lo` and whose range is R:
//!
//! ```text
//! D    = max(1, ⌈R / 15⌉)
//! v    = ⌊r · 2D / 2^A⌋                 A: bits of a lane, r: A random bits that both ends know
//! z    = ⌊(S − lo + ⌊v / 2⌋) / D⌋       0 to 15, what travels, besides lo and D
//! told = lo + z·D + ⌊(D − v) / 2⌋       what the other end takes for S, limited to what a lane holds
//! ```
//!
//! The random number that is added before rounding is subtracted again afterwards (subtractive dither). So
//! the error does not depend on the sum, its mean is zero except that r has only A bits, it is never more
//! than D / 2, and a range of up to 15 is told without error. Stochastic rounding without subtraction has
//! twice the mean square error.
//!
//! r comes from the words of P29, with a key made of the job's number, the round and the slot instead of
//! seed, call and partition. So what is told is a function of the RESULT's header and its sums: another share
//! that adds them up again tells the same (P21, P24), and a job that is run again gives the same means.

use crate::arch;
pub use crate::arguments::{GROUP, told_len};
use crate::error::CodecError;
use crate::isa::Isa;
use crate::signs::{SignKey, Signs};

/// What both ends draw from for one RESULT.
#[must_use]
pub const fn key(job: u16, round: u32, slot: u16) -> Signs {
    SignKey { job_seed: 1 << 32 | job as u64, call: round as u64, partition: slot as u32 }.signs()
}

fn groups(lane_bits: u8, lanes: usize) -> Result<usize, CodecError> {
    if lane_bits != 8 && lane_bits != 16 {
        return Err(CodecError::LaneBits { lane_bits });
    }
    let group = GROUP * usize::from(lane_bits) / 8;
    CodecError::check_multiple("the lanes", group, lanes)?;
    Ok(lanes / group)
}

/// Tells the sums in lanes of 8 or big-endian 16 bits in 4 bits each. The result takes the first bytes of
/// `lanes`, [`told_len`] for each group; the rest is unspecified. The number of lanes is a multiple of
/// [`GROUP`].
///
/// # Errors
/// Lanes of other bits, or a wrong length.
pub fn requantize(lane_bits: u8, key: Signs, lanes: &mut [u8]) -> Result<(), CodecError> {
    groups(lane_bits, lanes.len())?;
    match lane_bits {
        8 => arch::requantize::tell8(Isa::current(), key, lanes),
        _ => arch::requantize::tell16(Isa::current(), key, lanes),
    }
    Ok(())
}

/// Restores what [`requantize`] with the same key has told, as sums in lanes. A D that it never writes is
/// replaced by the nearest that it does.
///
/// # Errors
/// As there.
pub fn restore(lane_bits: u8, key: Signs, told: &[u8], lanes: &mut [u8]) -> Result<(), CodecError> {
    let groups = groups(lane_bits, lanes.len())?;
    CodecError::check_len("what was told", groups * told_len(lane_bits), told.len())?;
    match lane_bits {
        8 => arch::requantize::restore8(Isa::current(), key, told, lanes),
        _ => arch::requantize::restore16(Isa::current(), key, told, lanes),
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::signs::mix;

    fn round_signs(round: u64) -> Signs {
        key(7, round as u32, 3)
    }

    fn bytes(lane_bits: u8, sums: &[u32]) -> Vec<u8> {
        match lane_bits {
            8 => sums.iter().map(|&sum| sum as u8).collect(),
            _ => sums.iter().flat_map(|&sum| (sum as u16).to_be_bytes()).collect(),
        }
    }

    fn numbers(lane_bits: u8, lanes: &[u8]) -> Vec<u32> {
        match lane_bits {
            8 => lanes.iter().map(|&sum| sum.into()).collect(),
            _ => lanes.chunks(2).map(|lane| u16::from_be_bytes([lane[0], lane[1]]).into()).collect(),
        }
    }

    fn round_trip(lane_bits: u8, round: u64, sums: &[u32]) -> (Vec<u8>, Vec<u32>) {
        let mut lanes = bytes(lane_bits, sums);
        let len = sums.len() / GROUP * told_len(lane_bits);
        requantize(lane_bits, round_signs(round), &mut lanes).unwrap();
        let mut back = vec![0xEE; sums.len() * usize::from(lane_bits) / 8];
        restore(lane_bits, round_signs(round), &lanes[..len], &mut back).unwrap();
        lanes.truncate(len);
        (lanes, numbers(lane_bits, &back))
    }

    /// P45 as it is written, with divisions.
    fn reference(lane_bits: u8, round: u64, sums: &[u32]) -> (Vec<u8>, Vec<u32>) {
        let (mut bytes, mut back) = (Vec::new(), Vec::new());
        for (group, sums) in sums.chunks(GROUP).enumerate() {
            let (lo, hi) = (*sums.iter().min().unwrap(), *sums.iter().max().unwrap());
            let d = (hi - lo).div_ceil(15).max(1);
            let mut nibbles = Vec::new();
            for (i, sum) in sums.iter().enumerate() {
                let bit = (group * GROUP + i) as u32 * u32::from(lane_bits);
                let r = round_signs(round).word(u64::from(bit / 64)) >> (bit % 64) & ((1 << lane_bits) - 1);
                let v = (r * 2 * u64::from(d)) >> lane_bits;
                let z = (u64::from(sum - lo) + v / 2) / u64::from(d);
                assert!(z <= 15);
                nibbles.push(z as u8);
                let told =
                    i64::from(lo) + (z * u64::from(d)) as i64 + (i64::from(d) - v as i64).div_euclid(2);
                assert!(2 * (told - i64::from(*sum)).abs() <= i64::from(d));
                back.push(told.clamp(0, (1 << lane_bits) - 1) as u32);
            }
            let width = usize::from(lane_bits) / 8;
            bytes.extend_from_slice(&lo.to_be_bytes()[4 - width..]);
            bytes.extend_from_slice(&d.to_be_bytes()[4 - width..]);
            bytes.extend(nibbles.chunks(2).map(|two| two[0] << 4 | two[1]));
        }
        (bytes, back)
    }

    #[test]
    fn what_is_told_is_what_p45_says() {
        for lane_bits in [8, 16] {
            for range in [1u64, 2, 15, 16, 17, 100, 256, 1000, 1 << 16] {
                for (round, groups) in (0..20).zip([0, 1, 8, 16].into_iter().cycle()) {
                    let top = range.min(1 << lane_bits);
                    let lo = mix(round) % ((1 << lane_bits) - top + 1);
                    let sum = |i: usize| (lo + mix(i as u64 ^ round << 32) % top) as u32;
                    let sums: Vec<u32> = (0..groups * GROUP).map(sum).collect();
                    let (packet, back) = round_trip(lane_bits, round, &sums);
                    assert_eq!(
                        (packet, back.clone()),
                        reference(lane_bits, round, &sums),
                        "{lane_bits} {range}"
                    );
                    if range <= 16 {
                        assert_eq!(back, sums, "a range up to 15 is told as it is");
                    }
                }
            }
        }
    }

    #[test]
    fn errors_are_even_whatever_the_sum() {
        // Any sum between 40 and 190, over many rounds: the mean of what is told is the sum, and its mean square what a number of D
        // steps has, with a half for rounding where D is even.
        for (lane_bits, top) in [(8, 190), (8, 120), (16, 190), (16, 1000)] {
            let (lo, d) = (40u32, f64::from((top - 40u32).div_ceil(15)));
            let (mut sum, mut squares, mut counted) = ([0.0; 62], 0.0, 0);
            for round in 0..4000 {
                let mut sums: Vec<u32> = (0..62).map(|i| 50 + i).collect();
                sums.extend([lo, top]);
                let (_, back) = round_trip(lane_bits, round, &sums);
                for (i, (&told, &sum_)) in back.iter().zip(&sums).take(62).enumerate() {
                    let error = f64::from(told) - f64::from(sum_);
                    sum[i] += error;
                    squares += error * error;
                    counted += 1;
                }
            }
            let even = if d % 2.0 == 0.0 { 0.25 } else { 0.0 };
            let expected = (d * d - 1.0) / 12.0 + even;
            let square = squares / f64::from(counted);
            assert!(
                (square / expected - 1.0).abs() < 0.03,
                "{lane_bits} bits to {top}: {square}, {expected}"
            );
            for mean in sum.map(|sum| sum / 4000.0) {
                let sigma = (expected / 4000.0).sqrt();
                assert!(mean.abs() < 4.5 * sigma + 0.03, "{lane_bits} bits to {top}: {mean}");
            }
        }
    }

    #[test]
    fn another_round_slot_or_session_is_another_draw() {
        let sums: Vec<u32> = (0..GROUP as u32).map(|i| i * 3).collect();
        assert_ne!(round_trip(8, 1, &sums).0, round_trip(8, 2, &sums).0);
        assert_eq!(round_trip(8, 1, &sums).0, round_trip(8, 1, &sums).0);
    }

    #[test]
    fn damage_is_a_sum_and_what_does_not_fit_an_error() {
        for byte in [0, 0xFF] {
            let mut lanes = [0; 128];
            restore(8, round_signs(1), &[byte; 34], &mut lanes[..64]).unwrap();
            restore(16, round_signs(1), &[byte; 36], &mut lanes).unwrap();
        }
        assert!(
            requantize(8, round_signs(1), &mut [0; 32]).is_err()
                && requantize(4, round_signs(1), &mut [0; 64]).is_err()
        );
        assert!(restore(8, round_signs(1), &[0; 33], &mut [0; 64]).is_err());
    }
}
