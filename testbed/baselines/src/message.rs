//! Messages that count bits, so that a scheme is charged with what its decoder reads.

use super::Result;
use thc_codec::CodecError;

/// An encoded message. Its bits are in order, the most significant first. Zeros fill the last byte,
/// and do not count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    bytes: Vec<u8>,
    bits: u64,
}

impl Message {
    /// The length in bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// Returns a reader that starts at the beginning. Fails unless the message has `expected` bits, so
    /// reading that many needs no further checks.
    pub(crate) fn read(&self, expected: u64) -> Result<Reader<'_>> {
        if self.bits != expected {
            let reason = format!("it has {} bits, {expected} are due", self.bits);
            return Err(CodecError::Message { reason });
        }
        Ok(Reader { bytes: &self.bytes, at: 0, buffer: 0, filled: 0 })
    }

    /// Messages that consist of `f32`s.
    pub(crate) fn from_floats(values: &[f32]) -> Self {
        let mut writer = Writer::new(32 * values.len() as u64);
        values.iter().for_each(|v| writer.put_f32(*v));
        writer.finish()
    }

    /// Returns the `f32`s of a message that has exactly `count` of them.
    pub(crate) fn floats(&self, count: usize) -> Result<Vec<f32>> {
        let mut reader = self.read(32 * count as u64)?;
        Ok((0..count).map(|_| reader.take_f32()).collect())
    }
}

/// Writes a message.
pub(crate) struct Writer {
    bytes: Vec<u8>,
    /// The last `filled` bits, fewer than 32 between calls, which are not in `bytes` yet.
    buffer: u64,
    filled: u32,
    bits: u64,
}

impl Writer {
    /// Creates a writer. `bits` is a hint of the final length.
    pub fn new(bits: u64) -> Self {
        Self { bytes: Vec::with_capacity((bits / 8 + 8) as usize), buffer: 0, filled: 0, bits: 0 }
    }

    /// Appends the low `width` bits of `value`, at most 32; the others must be zero.
    #[inline]
    pub fn put(&mut self, value: u32, width: u32) {
        debug_assert!(width <= 32 && u64::from(value) >> width == 0);
        self.buffer = self.buffer << width | u64::from(value);
        self.filled += width;
        self.bits += u64::from(width);
        if self.filled >= 32 {
            self.filled -= 32;
            self.bytes.extend_from_slice(&((self.buffer >> self.filled) as u32).to_be_bytes());
        }
    }

    /// Appends 32 bits.
    #[inline]
    pub fn put_f32(&mut self, value: f32) {
        self.put(value.to_bits(), 32);
    }

    /// Completes the message.
    pub fn finish(mut self) -> Message {
        let rest = (self.buffer << (64 - self.filled).min(63)).to_be_bytes();
        if self.filled > 0 {
            self.bytes.extend_from_slice(&rest[..self.filled.div_ceil(8) as usize]);
        }
        Message { bytes: self.bytes, bits: self.bits }
    }
}

/// Reads a message. Beyond its end it reads zeros.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    buffer: u64,
    filled: u32,
}

impl Reader<'_> {
    /// Reads the next `width` bits, at most 32.
    #[inline]
    pub fn take(&mut self, width: u32) -> u32 {
        if self.filled < width {
            let mut four = [0; 4];
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let len = rest.len().min(4);
            four[..len].copy_from_slice(&rest[..len]);
            self.at += 4;
            self.buffer = self.buffer << 32 | u64::from(u32::from_be_bytes(four));
            self.filled += 32;
        }
        self.filled -= width;
        ((self.buffer >> self.filled) & ((1_u64 << width) - 1)) as u32
    }

    /// Reads the next 32 bits.
    #[inline]
    pub fn take_f32(&mut self) -> f32 {
        f32::from_bits(self.take(32))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bits_are_in_order() {
        let mut writer = Writer::new(0);
        writer.put(0b101, 3);
        writer.put(0b1, 1);
        writer.put(0xABC, 12);
        writer.put(0b11, 2);
        let message = writer.finish();
        assert_eq!((message.bits(), &message.bytes[..]), (18, &[0xBA, 0xBC, 0xC0][..]));
        assert_eq!(Message::default(), Writer::new(9).finish());
        assert!(matches!(message.read(17), Err(CodecError::Message { .. })));
        assert!(message.floats(1).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(fields in prop::collection::vec((any::<u32>(), 0u32..=32), 0..80)) {
            let mut writer = Writer::new(0);
            let low = |value: u32, width: u32| (u64::from(value) & ((1_u64 << width) - 1)) as u32;
            fields.iter().for_each(|(value, width)| writer.put(low(*value, *width), *width));
            let message = writer.finish();
            let bits: u64 = fields.iter().map(|(_, width)| u64::from(*width)).sum();
            prop_assert_eq!((message.bits(), message.bytes.len() as u64), (bits, bits.div_ceil(8)));
            let mut reader = message.read(bits).unwrap();
            for (value, width) in fields {
                prop_assert_eq!(reader.take(width), low(value, width));
            }
        }

        #[test]
        fn floats_come_back(values: Vec<u32>) {
            let values: Vec<f32> = values.into_iter().map(f32::from_bits).collect();
            let back = Message::from_floats(&values).floats(values.len()).unwrap();
            prop_assert!(values.iter().zip(&back).all(|(a, b)| a.to_bits() == b.to_bits()));
        }
    }
}
