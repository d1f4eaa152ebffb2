//! Lanes for sums that an all-reduce outside this project adds up: values of all workers, side by side in
//! words of 32 bits.
//!
//! An aggregator of this project looks indices up; an all-reduce of integers only adds. So a worker looks up
//! its own indices and sends table values, each in a lane wide enough for the sum over all workers: n workers
//! with granularity g need ⌈log2(n · g + 1)⌉ bits. Words are added modulo 2^32, which is what integer
//! all-reduces do whatever their sign. No carry crosses from a lane into the next: every partial sum, over
//! whichever workers and in whichever order, is at most n · g < 2^k, so it fits the k bits of its lane, and
//! the lanes above it hold multiples of 2^k times their own sums. The sum of words therefore is the word of
//! sums, and all orders of adding give the same bits.
//!
//! A partition of d coordinates takes ⌈d / m⌉ words, with m = ⌊32 / k⌋ lanes each. Word w has the coordinates w, W + w, 2W + w, … for W words:
//! coordinate j·W + w lies at bits k·j to k·j + k − 1. Missing coordinates are 0. Lanes of 8 bits are the
//! exception: they are bytes, one for each coordinate in order, four to a little-endian word, which add in
//! the same way.

use crate::error::CodecError;

/// Bits of a word.
const WORD: u8 = 32;

/// The layout of values in words: `bits` bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    bits: u8,
}

impl Lanes {
    /// Lanes of `bits` bits, 4 to 16.
    ///
    /// # Errors
    /// [`CodecError::LaneBits`] for any other number.
    pub const fn new(bits: u8) -> Result<Lanes, CodecError> {
        if matches!(bits, 4..=16) {
            Ok(Lanes { bits })
        } else {
            Err(CodecError::LaneBits { lane_bits: bits })
        }
    }

    /// The narrowest lanes that hold the sums of `workers` workers with a table of this granularity.
    ///
    /// # Errors
    /// [`CodecError::LaneBits`] if that takes more than 16 bits.
    pub fn for_sums(workers: u32, granularity: u16) -> Result<Lanes, CodecError> {
        let most = u64::from(workers) * u64::from(granularity);
        let bits = (u64::BITS - most.leading_zeros()) as u8;
        Lanes::new(bits.max(4))
    }

    /// Bits of a lane.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// The largest sum that a lane holds.
    #[must_use]
    pub const fn max_sum(self) -> u32 {
        (1 << self.bits) - 1
    }

    /// `true` if every sum fits a byte.
    #[must_use]
    pub const fn fit_bytes(self) -> bool {
        self.bits <= 8
    }

    /// Lanes of a word.
    #[must_use]
    const fn per_word(self) -> usize {
        (WORD / self.bits) as usize
    }

    /// Words that a partition of `coordinates` coordinates takes.
    #[must_use]
    pub const fn words(self, coordinates: usize) -> usize {
        coordinates.div_ceil(self.per_word())
    }

    fn check(self, coordinates: usize, words: usize) -> Result<(), CodecError> {
        CodecError::check_len("words of lanes", self.words(coordinates), words)
    }

    /// Values of one partition, a byte each, to its words. A value that does not fit its lane corrupts its
    /// neighbours; the caller's table and number of workers must exclude that.
    ///
    /// # Errors
    /// If `words` is not as long as [`Self::words`] says.
    pub fn pack(self, values: &[u8], words: &mut [u32]) -> Result<(), CodecError> {
        self.check(values.len(), words.len())?;
        if self.bits == 8 {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(words);
            let (whole, rest) = bytes.split_at_mut(values.len());
            whole.copy_from_slice(values);
            rest.fill(0);
            return Ok(());
        }
        for (j, plane) in values.chunks(words.len().max(1)).enumerate() {
            let shift = u32::from(self.bits) * j as u32;
            let (some, rest) = words.split_at_mut(plane.len());
            if j == 0 {
                some.iter_mut().zip(plane).for_each(|(word, value)| *word = u32::from(*value));
                rest.fill(0);
            } else {
                some.iter_mut().zip(plane).for_each(|(word, value)| *word |= u32::from(*value) << shift);
            }
        }
        Ok(())
    }

    /// The sums of one partition, a byte each, from its words. Only lanes of at most 8 bits.
    ///
    /// # Errors
    /// If lanes are wider, or `words` is not as long as [`Self::words`] says.
    pub fn unpack8(self, words: &[u32], sums: &mut [u8]) -> Result<(), CodecError> {
        if !self.fit_bytes() {
            return Err(CodecError::LaneBits { lane_bits: self.bits });
        }
        self.check(sums.len(), words.len())?;
        if self.bits == 8 {
            let bytes: &[u8] = bytemuck::cast_slice(words);
            sums.copy_from_slice(&bytes[..sums.len()]);
            return Ok(());
        }
        let mask = self.max_sum();
        for (j, plane) in sums.chunks_mut(words.len().max(1)).enumerate() {
            let shift = u32::from(self.bits) * j as u32;
            plane.iter_mut().zip(words).for_each(|(sum, word)| *sum = (word >> shift & mask) as u8);
        }
        Ok(())
    }

    /// The sums of one partition, two bytes each, big endian, as [`dequantize16`](crate::quantizer::dequantize16) takes them.
    ///
    /// # Errors
    /// If `sums` has an odd length, or `words` is not as long as [`Self::words`] says.
    pub fn unpack16(self, words: &[u32], sums: &mut [u8]) -> Result<(), CodecError> {
        CodecError::check_multiple("16-bit sums", 2, sums.len())?;
        self.check(sums.len() / 2, words.len())?;
        let (pairs, _) = sums.as_chunks_mut::<2>();
        if self.bits == 8 {
            let bytes: &[u8] = bytemuck::cast_slice(words);
            pairs.iter_mut().zip(bytes).for_each(|(pair, sum)| *pair = [0, *sum]);
            return Ok(());
        }
        let mask = self.max_sum();
        for (j, plane) in pairs.chunks_mut(words.len().max(1)).enumerate() {
            let shift = u32::from(self.bits) * j as u32;
            let sums = plane.iter_mut().zip(words);
            sums.for_each(|(pair, word)| *pair = ((word >> shift & mask) as u16).to_be_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lanes_hold_what_they_are_made_for() {
        for (workers, granularity, bits) in
            [(1, 7, 4), (2, 127, 8), (4, 63, 8), (4, 64, 9), (5, 3, 4), (64, 255, 14), (257, 255, 16)]
        {
            let lanes = Lanes::for_sums(workers, granularity).unwrap();
            assert_eq!(lanes.bits(), bits, "{workers} {granularity}");
            assert!(lanes.max_sum() >= workers * u32::from(granularity));
        }
        assert!(Lanes::for_sums(258, 255).is_err() && Lanes::new(3).is_err() && Lanes::new(17).is_err());
        assert_eq!(Lanes::new(6).unwrap().words(1024), 205);
    }

    #[test]
    fn wrong_lengths_are_errors() {
        let lanes = Lanes::new(6).unwrap();
        assert!(lanes.pack(&[0; 11], &mut [0; 2]).is_err() && lanes.pack(&[0; 11], &mut [0; 4]).is_err());
        assert!(
            lanes.unpack8(&[0; 2], &mut [0; 11]).is_err() && lanes.unpack16(&[0; 3], &mut [0; 23]).is_err()
        );
        assert!(Lanes::new(9).unwrap().unpack8(&[0; 4], &mut [0; 12]).is_err());
    }

    proptest! {
        /// Words that are added, in any order, are the words of the sums: also where every lane is full.
        #[test]
        fn sums_of_words_are_words_of_sums(bits in 4u8..17, workers in 1u32..20, len in 0usize..3000, full: bool, seed: u64) {
            let lanes = Lanes::new(bits).unwrap();
            let g = (lanes.max_sum() / workers).min(255);
            let value = |worker: u32, at: usize| {
                let made_up = crate::signs::mix(seed ^ u64::from(worker) << 32 ^ at as u64) >> 20;
                if full { g as u8 } else { (made_up % u64::from(g + 1)) as u8 }
            };
            let mut total = vec![0_u32; lanes.words(len)];
            for worker in (0..workers).rev() {
                let values: Vec<u8> = (0..len).map(|at| value(worker, at)).collect();
                let mut words = vec![u32::MAX; lanes.words(len)];
                lanes.pack(&values, &mut words).unwrap();
                total.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
            }
            let want: Vec<u16> = (0..len).map(|at| (0..workers).map(|w| u16::from(value(w, at))).sum()).collect();
            let mut wide = vec![0xFF; 2 * len];
            lanes.unpack16(&total, &mut wide).unwrap();
            let wide: Vec<u16> = wide.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            prop_assert_eq!(&wide, &want);
            if lanes.fit_bytes() {
                let mut narrow = vec![0xFF; len];
                lanes.unpack8(&total, &mut narrow).unwrap();
                prop_assert!(narrow.iter().zip(&want).all(|(sum, want)| u16::from(*sum) == *want));
            }
        }
    }
}
