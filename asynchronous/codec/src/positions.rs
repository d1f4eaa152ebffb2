//! Positions of a sparse vector in few bits.
//!
//! The plain form has ⌈log₂ d⌉ bits for each position. If a share of n/d is kept at random, the entropy is d
//! · H(n/d) bits, and gaps between positions have a geometric distribution. For that, Golomb's codes are the
//! best codes of whole bits; Rice's are those whose parameter is a power of two, at most 0.03 bits a position
//! worse. The encoder takes whichever form is shorter:
//!
//! ```text
//! byte 0: k; 255 for the plain form
//! then bits, most significant first, for each position in ascending order:
//!   plain: the position, ⌈log₂ d⌉ bits
//!   Rice:  g = position − previous − 1 (the first: g = position); ⌊g / 2^k⌋ ones, a zero, the low k bits of g
//! ```

use thc_codec::CodecError;

/// Marks the plain form.
const PLAIN: u8 = 255;
/// Largest Rice parameter.
const MAX_K: u32 = 31;

/// ⌈log₂ d⌉: bits of a position in the plain form.
#[must_use]
pub const fn plain_bits(dimension: usize) -> u32 {
    if dimension <= 1 { 0 } else { usize::BITS - (dimension - 1).leading_zeros() }
}

/// d · H(n/d): the fewest bits that positions of `count` coordinates drawn at random from `dimension` can take on average.
#[must_use]
pub fn entropy(dimension: usize, count: usize) -> f64 {
    let share = count as f64 / dimension as f64;
    if count == 0 || count >= dimension {
        return 0.0;
    }
    dimension as f64 * -(share * share.log2() + (1.0 - share) * (1.0 - share).log2())
}

/// Gaps between positions, the first from the beginning.
fn gaps(positions: &[u32]) -> impl Iterator<Item = u32> + '_ {
    let mut next = 0;
    positions.iter().map(move |position| {
        let gap = position.wrapping_sub(next);
        next = position.wrapping_add(1);
        gap
    })
}

/// How many parameters of the Rice form are tried.
const TRIED: usize = 4;

/// The best of [`TRIED`] parameters of the Rice form from `least` on, and how many bits it takes.
fn rice(positions: &[u32], least: u32) -> (u32, u64) {
    let mut ones = [0_u64; TRIED];
    for gap in gaps(positions) {
        for (ones, k) in ones.iter_mut().zip(least..) {
            *ones += u64::from(gap >> k);
        }
    }
    let bits = (least..).zip(ones).map(|(k, ones)| (k, ones + positions.len() as u64 * u64::from(k + 1)));
    bits.min_by_key(|(_, bits)| *bits).unwrap_or((0, u64::MAX))
}

/// Appends `positions`, which must ascend and be below `dimension`, in the shorter form.
///
/// # Errors
/// [`CodecError::Message`] if they do not ascend or are not below `dimension`.
pub fn encode(positions: &[u32], dimension: usize, out: &mut Vec<u8>) -> Result<(), CodecError> {
    if positions.windows(2).any(|w| w[0] >= w[1])
        || positions.last().is_some_and(|p| *p as usize >= dimension)
    {
        return Err(CodecError::Message {
            reason: format!("positions do not ascend, or are not below {dimension}"),
        });
    }
    let plain = u64::from(plain_bits(dimension)) * positions.len() as u64;
    // The best parameter is near log₂ of the mean gap.
    let near = (dimension / positions.len().max(1)).max(1).ilog2();
    let (k, bits) = rice(positions, near.saturating_sub(2).min(MAX_K + 1 - TRIED as u32));
    let mut writer = BitWriter { out, word: 0, filled: 0 };
    if plain <= bits {
        writer.out.push(PLAIN);
        for position in positions {
            writer.put(*position, plain_bits(dimension));
        }
    } else {
        writer.out.push(k as u8);
        for gap in gaps(positions) {
            let mut ones = gap >> k;
            while ones >= 31 {
                writer.put((1 << 31) - 1, 31);
                ones -= 31;
            }
            let (unary, low) = ((1_u64 << (ones + 1)) - 2, gap & ((1_u64 << k) - 1) as u32);
            if ones + 1 + k <= 32 {
                writer.put((unary << k) as u32 | low, ones + 1 + k);
            } else {
                writer.put(unary as u32, ones + 1);
                writer.put(low, k);
            }
        }
    }
    writer.finish();
    Ok(())
}

/// Undoes [`encode`] for `count` positions; returns them and how many bytes they took.
///
/// # Errors
/// [`CodecError::Message`] for anything that [`encode`] would not write.
pub fn decode(bytes: &[u8], count: usize, dimension: usize) -> Result<(Vec<u32>, usize), CodecError> {
    let broken = |reason: &str| CodecError::Message { reason: reason.to_owned() };
    if count > dimension {
        return Err(broken("it has more positions than coordinates"));
    }
    let (&k, rest) = bytes.split_first().ok_or_else(|| broken("it has no positions"))?;
    if k != PLAIN && u32::from(k) > MAX_K {
        return Err(broken("its positions have an unknown form"));
    }
    let short = || broken("it ends within its positions");
    let mut reader = BitReader { bytes: rest, at: 0 };
    let mut positions = Vec::with_capacity(count);
    // The least that the next position may be.
    let mut next = 0_u64;
    for _ in 0..count {
        let position = if k == PLAIN {
            u64::from(reader.take(plain_bits(dimension)).ok_or_else(short)?)
        } else {
            let ones = reader.read_unary(dimension as u64 >> k).ok_or_else(short)?;
            next + (ones << k | u64::from(reader.take(u32::from(k)).ok_or_else(short)?))
        };
        if position < next || position >= dimension as u64 {
            return Err(broken("its positions do not ascend, or are outside"));
        }
        positions.push(position as u32);
        next = position + 1;
    }
    Ok((positions, 1 + reader.at.div_ceil(8)))
}

struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    word: u64,
    filled: u32,
}

impl BitWriter<'_> {
    /// Writes the low `bits` (at most 32) of `value`, whose other bits are 0. Fewer than 32 bits wait for a
    /// whole word.
    fn put(&mut self, value: u32, bits: u32) {
        self.word = self.word << bits | u64::from(value);
        self.filled += bits;
        if self.filled >= 32 {
            self.filled -= 32;
            self.out.extend(((self.word >> self.filled) as u32).to_be_bytes());
        }
    }

    fn finish(self) {
        let last = self.word << (32 - self.filled);
        self.out.extend(&(last as u32).to_be_bytes()[..self.filled.div_ceil(8) as usize]);
    }
}

struct BitReader<'a> {
    bytes: &'a [u8],
    /// The position, in bits.
    at: usize,
}

impl BitReader<'_> {
    /// The next bits, the first in the most significant one, and their number: at least 57 except near the
    /// end.
    fn window(&self) -> (u64, u32) {
        let rest = self.bytes.get(self.at / 8..).unwrap_or(&[]);
        let skipped = self.at % 8;
        if let Some(whole) = rest.first_chunk() {
            return (u64::from_be_bytes(*whole) << skipped, 64 - skipped as u32);
        }
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        (u64::from_be_bytes(word) << skipped, (8 * rest.len()).saturating_sub(skipped) as u32)
    }

    /// The next `bits` (at most 32), if there are as many.
    fn take(&mut self, bits: u32) -> Option<u32> {
        let (word, there) = self.window();
        if bits > there {
            return None;
        }
        self.at += bits as usize;
        Some(if bits == 0 { 0 } else { (word >> (64 - bits)) as u32 })
    }

    /// How many ones come before the next zero, at most `most`; the zero is consumed.
    fn read_unary(&mut self, most: u64) -> Option<u64> {
        let mut ones = 0;
        loop {
            let (word, there) = self.window();
            let run = word.leading_ones().min(there);
            ones += u64::from(run);
            if ones > most || there == 0 {
                return None;
            }
            self.at += run as usize;
            if run < there {
                self.at += 1;
                return Some(ones);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thc_codec::signs::mix;

    fn round_trip(positions: &[u32], dimension: usize) -> usize {
        let mut bytes = vec![0xAB];
        encode(positions, dimension, &mut bytes).unwrap();
        let length = bytes.len() - 1;
        bytes.extend([0xFF; 3]);
        let (back, used) = decode(&bytes[1..], positions.len(), dimension).unwrap();
        assert_eq!(back, positions);
        assert_eq!(used, length);
        // Whatever is cut off is noticed.
        for cut in 1..=length {
            let answer = decode(&bytes[1..=cut], positions.len(), dimension);
            assert!(cut == length || answer.is_err());
        }
        length
    }

    #[test]
    fn sizes_by_hand() {
        // Nothing but the byte that says how.
        assert_eq!(round_trip(&[], 1000), 1);
        assert_eq!(round_trip(&[0], 1), 1);
        // All of them: one bit each.
        assert_eq!(round_trip(&(0..80).collect::<Vec<_>>(), 80), 1 + 10);
        // One of 2^16: 16 bits, plain.
        assert_eq!(round_trip(&[65_535], 65_536), 1 + 2);
    }

    #[test]
    fn is_close_to_the_entropy() {
        let dimension = 100_000_u32;
        for one_in in [2, 5, 20, 100, 1000] {
            let positions: Vec<u32> =
                (0..dimension).filter(|i| mix(u64::from(*i)).is_multiple_of(one_in)).collect();
            let mut bytes = Vec::new();
            encode(&positions, dimension as usize, &mut bytes).unwrap();
            let entropy = entropy(dimension as usize, positions.len());
            let ratio = 8.0 * bytes.len() as f64 / entropy;
            assert!((1.0..1.06).contains(&ratio), "1 in {one_in}: {ratio}");
        }
    }

    #[test]
    fn broken_ones_are_errors() {
        let mut out = Vec::new();
        assert!(encode(&[3, 3], 10, &mut out).is_err());
        assert!(encode(&[3, 10], 10, &mut out).is_err());
        for (bytes, count) in [
            (&[][..], 0),
            (&[32, 0][..], 1),
            (&[0, 0][..], 9),
            // Ones without an end.
            (&[0, 0xFF, 0xFF, 0xFF][..], 1),
            // Plain positions that do not ascend: 3, 3.
            (&[PLAIN, 0x33][..], 2),
            // A position outside: 15 of 10.
            (&[PLAIN, 0xF0][..], 1),
            (&[3, 0b1111_0000][..], 1),
        ] {
            assert!(decode(bytes, count, 10).is_err(), "{bytes:?}");
        }
        assert!(decode(&[0], 11, 10).is_err());
    }

    proptest! {
        #[test]
        fn any_positions(dimension in 1_usize..5000, share in 1_u64..200, seed: u64) {
            let positions: Vec<u32> =
                (0..dimension as u32).filter(|i| mix(seed ^ u64::from(*i)) % 200 < share).collect();
            round_trip(&positions, dimension);
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..60), count in 0_usize..90) {
            if let Ok((positions, used)) = decode(&bytes, count, 80) {
                prop_assert!(used <= bytes.len());
                prop_assert!(positions.windows(2).all(|w| w[0] < w[1]));
                prop_assert!(positions.iter().all(|p| *p < 80));
            }
        }
    }
}
