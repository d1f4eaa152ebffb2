//! Messages that hold only a few coordinates: positions and values.

use super::message::Writer;
use super::{Message, Result, width};
use thc_codec::CodecError;

/// The number of coordinates of a tensor that are sent, and their encoding.
///
/// A message consists of `kept` pairs of a position, ⌈log2 d⌉ bits, and an `f32`. Real systems often
/// use 32 bits for a position. If more than about one in 20 coordinates is sent, a bitmap of d bits would
/// be even shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sparse {
    dimension: usize,
    kept: usize,
}

impl Sparse {
    /// Keeps ⌊`ratio`·d⌋ coordinates, at least one.
    pub fn new(ratio: f64, dimension: usize) -> Result<Self> {
        if !(ratio > 0.0 && ratio <= 1.0) {
            let what = "the share of coordinates to keep";
            return Err(CodecError::Parameter { what, value: ratio, allowed: "above 0 and at most 1" });
        }
        Ok(Self { dimension, kept: ((ratio * dimension as f64) as usize).max(1) })
    }

    fn position_bits(&self) -> u32 {
        width(self.dimension as u64 - 1)
    }

    /// The length of a message in bits.
    pub fn bits(&self) -> u64 {
        self.kept as u64 * u64::from(self.position_bits() + 32)
    }

    /// The positions of the coordinates of `x` that are largest in magnitude, in ascending order. Of equal
    /// coordinates the first are chosen.
    pub fn largest(&self, x: &[f32]) -> Vec<usize> {
        if self.kept >= x.len() {
            return (0..x.len()).collect();
        }
        // The bits of magnitudes are in the same order as these. Of equal magnitudes the first has the larger key.
        let key = |(i, v): (usize, &f32)| u64::from(v.abs().to_bits()) << 32 | u64::from(u32::MAX - i as u32);
        let mut keys: Vec<u64> = x.iter().enumerate().map(key).collect();
        keys.select_nth_unstable_by(self.kept - 1, |a, b| b.cmp(a));
        keys.truncate(self.kept);
        let mut positions: Vec<usize> =
            keys.into_iter().map(|key| (u32::MAX - key as u32) as usize).collect();
        positions.sort_unstable();
        positions
    }

    /// Returns the message of the coordinates of `x` at `positions`, which must be `kept` positions.
    pub fn encode(&self, x: &[f32], positions: &[usize]) -> Message {
        let mut writer = Writer::new(self.bits());
        let bits = self.position_bits();
        for &i in positions {
            writer.put(i as u32, bits);
            writer.put_f32(x[i]);
        }
        writer.finish()
    }

    /// Adds the coordinates of a message to `sum`.
    pub fn add(&self, message: &Message, sum: &mut [f32]) -> Result<()> {
        let mut reader = message.read(self.bits())?;
        let bits = self.position_bits();
        for _ in 0..self.kept {
            let position = reader.take(bits) as usize;
            let value = reader.take_f32();
            let Some(coordinate) = sum.get_mut(position) else {
                let reason = format!("it has coordinate {position} of {}", self.dimension);
                return Err(CodecError::Message { reason });
            };
            *coordinate += value;
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
    fn sizes_by_hand() {
        let sparse = Sparse::new(0.25, 10).unwrap();
        // Two coordinates, 4 bits of position (0 to 9) and 32 bits of value each.
        assert_eq!((sparse.kept, sparse.bits()), (2, 72));
        // A tensor of one coordinate needs no positions.
        assert_eq!(Sparse::new(0.1, 1).unwrap().bits(), 32);
        assert_eq!(Sparse::new(0.1, 1 << 20).unwrap().bits(), 104_857 * 52);
        for ratio in [0.0, -0.1, 1.1, f64::NAN] {
            assert!(matches!(Sparse::new(ratio, 10), Err(CodecError::Parameter { .. })));
        }
    }

    #[test]
    fn positions_outside_are_an_error() {
        let sparse = Sparse::new(0.5, 3).unwrap();
        let mut writer = Writer::new(0);
        writer.put(3, 2);
        writer.put_f32(1.0);
        assert!(matches!(sparse.add(&writer.finish(), &mut [0.0; 3]), Err(CodecError::Message { .. })));
    }

    proptest! {
        #[test]
        fn the_largest_are_kept(x in prop::collection::vec(-4i8..4, 1..60), ratio in 0.01f64..1.0) {
            let x: Vec<f32> = x.into_iter().map(f32::from).collect();
            let sparse = Sparse::new(ratio, x.len()).unwrap();
            let positions = sparse.largest(&x);
            prop_assert_eq!(positions.len(), sparse.kept);
            prop_assert!(positions.windows(2).all(|w| w[0] < w[1]));
            let least = positions.iter().map(|i| x[*i].abs()).fold(f32::INFINITY, f32::min);
            let last = positions.iter().rposition(|i| x[*i].abs() == least).map(|at| positions[at]).unwrap();
            for i in (0..x.len()).filter(|i| !positions.contains(i)) {
                prop_assert!(x[i].abs() < least || (x[i].abs() == least && i > last));
            }
            let message = sparse.encode(&x, &positions);
            prop_assert_eq!(message.bits(), sparse.bits());
            let mut sum = vec![1.0; x.len()];
            sparse.add(&message, &mut sum).unwrap();
            for i in 0..x.len() {
                prop_assert_eq!(sum[i], if positions.contains(&i) { 1.0 + x[i] } else { 1.0 });
            }
        }
    }
}
