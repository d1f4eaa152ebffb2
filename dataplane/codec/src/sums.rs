//! Sums in RESULT packets take fewer bits than the lanes in which they were added: most significant bit first,
//! one after the other.
//!
//! Eight sums are a whole number of bytes at any width, so eight are moved at a time, in halves of words: two to a pair, two pairs to
//! four, two fours to eight.

use crate::error::CodecError;

/// Sums moved at a time.
const GROUP: usize = 8;

fn check(lane_bits: u8, bits: u8, lanes: usize) -> Result<(), CodecError> {
    let fits = match lane_bits {
        8 => (5..8).contains(&bits),
        16 => (9..16).contains(&bits),
        _ => false,
    };
    if !fits {
        return Err(CodecError::Bits { bits, supported: "5 to 7 in lanes of 8, 9 to 15 in lanes of 16" });
    }
    CodecError::check_multiple("the lanes", GROUP * usize::from(lane_bits) / 8, lanes)
}

/// Moves the sums in lanes of `lane_bits`, 8 or big-endian 16, together, at `bits` each; they take the first bytes of `lanes`, and the
/// bytes behind them are unspecified. The number of lanes is a multiple of 8. Bits of a lane above these are ignored.
///
/// # Errors
/// [`CodecError::Bits`] if `bits` is not below the lane's, and not 5 to 7 or 9 to 15; or a wrong length.
// Compiled here, and optimised as this crate is.
#[inline(never)]
pub fn pack_sums(lane_bits: u8, bits: u8, lanes: &mut [u8]) -> Result<(), CodecError> {
    check(lane_bits, bits, lanes.len())?;
    match bits {
        5 => pack8::<5>(lanes),
        6 => pack8::<6>(lanes),
        7 => pack8::<7>(lanes),
        9 => pack16::<9>(lanes),
        10 => pack16::<10>(lanes),
        11 => pack16::<11>(lanes),
        12 => pack16::<12>(lanes),
        13 => pack16::<13>(lanes),
        14 => pack16::<14>(lanes),
        _ => pack16::<15>(lanes),
    }
    Ok(())
}

/// Undoes [`pack_sums`]: `packed` has `bits` / `lane_bits` of the length of `lanes`.
///
/// # Errors
/// The errors of [`pack_sums`], and a wrong length of `packed`.
#[inline(never)]
pub fn unpack_sums(lane_bits: u8, bits: u8, packed: &[u8], lanes: &mut [u8]) -> Result<(), CodecError> {
    check(lane_bits, bits, lanes.len())?;
    CodecError::check_len(
        "packed sums",
        lanes.len() * usize::from(bits) / usize::from(lane_bits),
        packed.len(),
    )?;
    match bits {
        5 => unpack8::<5>(packed, lanes),
        6 => unpack8::<6>(packed, lanes),
        7 => unpack8::<7>(packed, lanes),
        9 => unpack16::<9>(packed, lanes),
        10 => unpack16::<10>(packed, lanes),
        11 => unpack16::<11>(packed, lanes),
        12 => unpack16::<12>(packed, lanes),
        13 => unpack16::<13>(packed, lanes),
        14 => unpack16::<14>(packed, lanes),
        _ => unpack16::<15>(packed, lanes),
    }
    Ok(())
}

/// The low `bits` bits of every number of `of` bits in a word.
const fn low_bits(of: u32, bits: usize) -> u64 {
    let (mut mask, mut at) = (0, 0);
    while at < 64 {
        mask |= ((1 << bits) - 1) << at;
        at += of;
    }
    mask
}

fn pack8<const BITS: usize>(lanes: &mut [u8]) {
    for group in 0..lanes.len() / GROUP {
        let Some(eight) = lanes[group * GROUP..].first_chunk() else { return };
        let x = u64::from_be_bytes(*eight) & const { low_bits(8, BITS) };
        let x = (x >> 8 & const { low_bits(16, BITS) }) << BITS | x & const { low_bits(16, BITS) };
        let x =
            (x >> 16 & const { low_bits(32, 2 * BITS) }) << (2 * BITS) | x & const { low_bits(32, 2 * BITS) };
        let x = (x >> 32) << (4 * BITS) | x & 0xFFFF_FFFF;
        lanes[group * BITS..][..BITS].copy_from_slice(&x.to_be_bytes()[8 - BITS..]);
    }
}

fn unpack8<const BITS: usize>(packed: &[u8], lanes: &mut [u8]) {
    for (from, to) in packed.chunks_exact(BITS).zip(lanes.chunks_exact_mut(GROUP)) {
        let mut word = [0; 8];
        word[8 - BITS..].copy_from_slice(from);
        let x = u64::from_be_bytes(word);
        let x = x >> (4 * BITS) << 32 | x & const { (1 << (4 * BITS)) - 1 };
        let x =
            (x >> (2 * BITS) & const { low_bits(32, 2 * BITS) }) << 16 | x & const { low_bits(32, 2 * BITS) };
        let x = (x >> BITS & const { low_bits(16, BITS) }) << 8 | x & const { low_bits(16, BITS) };
        to.copy_from_slice(&x.to_be_bytes());
    }
}

fn pack16<const BITS: usize>(lanes: &mut [u8]) {
    let four = |word: [u8; 8]| {
        let x = u64::from_be_bytes(word) & const { low_bits(16, BITS) };
        let x = (x >> 16 & const { low_bits(32, BITS) }) << BITS | x & const { low_bits(32, BITS) };
        (x >> 32) << (2 * BITS) | x & 0xFFFF_FFFF
    };
    for group in 0..lanes.len() / (2 * GROUP) {
        let Some(&[high, low]) = lanes[group * 2 * GROUP..].as_chunks().0.first_chunk() else { return };
        let x = u128::from(four(high)) << (4 * BITS) | u128::from(four(low));
        lanes[group * BITS..][..BITS].copy_from_slice(&x.to_be_bytes()[16 - BITS..]);
    }
}

fn unpack16<const BITS: usize>(packed: &[u8], lanes: &mut [u8]) {
    let four = |x: u64| {
        let x = x >> (2 * BITS) << 32 | x & const { (1 << (2 * BITS)) - 1 };
        ((x >> BITS & const { low_bits(32, BITS) }) << 16 | x & const { low_bits(32, BITS) }).to_be_bytes()
    };
    for (from, to) in packed.chunks_exact(BITS).zip(lanes.chunks_exact_mut(2 * GROUP)) {
        let mut word = [0; 16];
        word[16 - BITS..].copy_from_slice(from);
        let x = u128::from_be_bytes(word);
        let (high, low) = to.split_at_mut(GROUP);
        high.copy_from_slice(&four((x >> (4 * BITS)) as u64));
        low.copy_from_slice(&four(x as u64 & const { (1 << (4 * BITS)) - 1 }));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Bit by bit.
    fn reference(lane_bits: u8, bits: u8, lanes: &[u8]) -> Vec<u8> {
        let lane = usize::from(lane_bits);
        let bit = |i: usize| lanes[i / 8] >> (7 - i % 8) & 1;
        let kept = (0..lanes.len() * 8).filter(|i| i % lane >= lane - usize::from(bits)).map(bit);
        let kept: Vec<u8> = kept.collect();
        kept.chunks(8).map(|byte| byte.iter().fold(0, |all, bit| all << 1 | bit)).collect()
    }

    #[test]
    fn sums_of_every_width_come_back() {
        let widths = (5..8).map(|bits| (8, bits)).chain((9..16).map(|bits| (16, bits)));
        for (lane, bits) in widths {
            for count in [0, 8, 16, 136, 1024] {
                let mask = ((1u32 << bits) - 1) as u16;
                let mixed = |i: usize| ((i as u32 + 1).wrapping_mul(0x9E37_79B1) >> 16) as u16 & mask;
                let random: Vec<u16> = (0..count).map(mixed).collect();
                let lanes: Vec<u8> = match lane {
                    8 => random.iter().map(|&sum| sum as u8).collect(),
                    _ => random.iter().flat_map(|sum| sum.to_be_bytes()).collect(),
                };
                let mut packed = lanes.clone();
                pack_sums(lane, bits, &mut packed).unwrap();
                packed.truncate(count * usize::from(bits) / 8);
                assert_eq!(packed, reference(lane, bits, &lanes), "{count} sums of {bits} bits");
                let mut back = vec![0xFF; lanes.len()];
                unpack_sums(lane, bits, &packed, &mut back).unwrap();
                assert_eq!(back, lanes, "{count} sums of {bits} bits");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(pack_sums(8, 8, &mut [0; 8]).is_err() && pack_sums(16, 8, &mut [0; 16]).is_err());
        assert!(pack_sums(8, 7, &mut [0; 9]).is_err() && pack_sums(4, 3, &mut [0; 8]).is_err());
        assert!(unpack_sums(8, 7, &[0; 6], &mut [0; 8]).is_err());
    }
}
