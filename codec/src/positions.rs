//! Positions of a sparse vector in few bits.
//!
//! The plain form has ⌈log₂ d⌉ bits for each. Where a share of n/d is kept at random, the entropy is d · H(n/d) bits,
//! and gaps between positions have a geometric distribution, for which Golomb's codes are the best that
//! codes of whole bits can be; Rice's are those with a parameter that is a power of two, at most 0.03 bits a position
//! worse. The encoder takes whichever form is shorter:
//!
//! ```text
//! byte 0: k; 255 for the plain form
//! then bits, most significant first, for each position in ascending order:
//!   plain: the position, ⌈log₂ d⌉ bits
//!   Rice:  g = position − previous − 1 (the first: g = position); ⌊g / 2^k⌋ ones, a zero, the low k bits of g
//! ```

use crate::error::CodecError;

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

/// Bits of the Rice form with parameter `k`.
fn rice_bits(positions: &[u32], k: u32) -> u64 {
    gaps(positions).map(|gap| u64::from(gap >> k)).sum::<u64>() + positions.len() as u64 * u64::from(k + 1)
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
    let (k, bits) = (near.saturating_sub(2)..=(near + 1).min(MAX_K))
        .map(|k| (k, rice_bits(positions, k)))
        .min_by_key(|(_, bits)| *bits)
        .unwrap_or((0, u64::MAX));
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
            writer.put(((1_u64 << (ones + 1)) - 2) as u32, ones + 1);
            writer.put(gap & ((1_u64 << k) - 1) as u32, k);
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
            let ones = reader.ones(dimension as u64 >> k).ok_or_else(short)?;
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
    /// The low `bits` (at most 32) of `value`, whose others are 0.
    fn put(&mut self, value: u32, bits: u32) {
        self.word = self.word << bits | u64::from(value);
        self.filled += bits;
        while self.filled >= 8 {
            self.filled -= 8;
            self.out.push((self.word >> self.filled) as u8);
        }
    }

    fn finish(mut self) {
        if self.filled > 0 {
            self.put(0, 8 - self.filled);
        }
    }
}

struct BitReader<'a> {
    bytes: &'a [u8],
    /// In bits.
    at: usize,
}

impl BitReader<'_> {
    /// The next `bits` (at most 32), if there are as many.
    fn take(&mut self, bits: u32) -> Option<u32> {
        let end = self.at + bits as usize;
        if end > 8 * self.bytes.len() {
            return None;
        }
        let mut window = [0; 8];
        let from = self.at / 8;
        let upto = self.bytes.len().min(from + 8);
        window[..upto - from].copy_from_slice(&self.bytes[from..upto]);
        let word = u64::from_be_bytes(window) << (self.at % 8);
        self.at = end;
        Some(if bits == 0 { 0 } else { (word >> (64 - bits)) as u32 })
    }

    /// How many ones come before the next zero, at most `most`; the zero is consumed.
    fn ones(&mut self, most: u64) -> Option<u64> {
        let mut ones = 0;
        while self.take(1)? == 1 {
            ones += 1;
            if ones > most {
                return None;
            }
        }
        Some(ones)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::signs::mix;
    use proptest::prelude::*;

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
