//! Sums of table values in lanes, which the server of uniform THC and of THC computes.

use super::check_len;
use super::message::Writer;
use super::{Message, Result};
use thc_codec::CodecError;
use thc_codec::partition::{self, BLOCKS, Partition};
use thc_codec::table::LookupTable;

/// The main stage of both schemes: indices up and sums of the table's values down, for all partitions of a tensor.
#[derive(Debug, Clone)]
pub(crate) struct Lanes {
    /// The partitions of the tensor.
    pub partitions: Vec<Partition>,
    values: Vec<u8>,
    bits: u32,
    /// The bits of a sum: 8, or 16 if g·n exceeds 255, as on the wire.
    width: u32,
    /// The number of coordinates including padding.
    padded: usize,
}

impl Lanes {
    /// Creates the lanes for `workers` workers and a tensor of `dimension` coordinates. With `padding`, zeros
    /// complete partitions to powers of two, for the transform.
    pub fn new(table: &LookupTable, dimension: usize, workers: u32, padding: bool) -> Result<Self> {
        let largest = u64::from(table.granularity()) * u64::from(workers);
        let width = match largest {
            0..=0xFF => 8,
            0x100..=0xFFFF => 16,
            _ => return Err(CodecError::LaneTooNarrow { bits: table.bits(), lane_bits: 16, workers }),
        };
        let mut partitions: Vec<Partition> = partition::split(dimension, *BLOCKS.end()).collect();
        if !padding {
            partitions.iter_mut().for_each(|p| p.padded = p.len);
        }
        let padded = partitions.iter().map(|p| p.padded).sum();
        Ok(Self { partitions, values: table.values().to_vec(), bits: u32::from(table.bits()), width, padded })
    }

    /// Length of a worker's message.
    pub fn bits_up(&self) -> u64 {
        u64::from(self.bits) * self.padded as u64
    }

    /// Length of the server's message.
    pub fn bits_down(&self) -> u64 {
        u64::from(self.width) * self.padded as u64
    }

    /// Returns a worker's message from the indices of all partitions in order.
    pub fn encode(&self, indices: &[u8]) -> Result<Message> {
        check_len("indices", self.padded, indices.len())?;
        let mut writer = Writer::new(self.bits_up());
        indices.iter().for_each(|z| writer.put(u32::from(*z), self.bits));
        Ok(writer.finish())
    }

    /// Returns the server's message, which has the sums of the values of the workers' indices.
    pub fn aggregate(&self, messages: &[Message]) -> Result<Message> {
        let mut sums = vec![0_u16; self.padded];
        for message in messages {
            let mut reader = message.read(self.bits_up())?;
            for sum in &mut sums {
                // The sums of more workers than the lane was made for wrap, as in a switch.
                *sum = sum.wrapping_add(u16::from(self.values[reader.take(self.bits) as usize]));
            }
        }
        let mut writer = Writer::new(self.bits_down());
        let mask = ((1_u32 << self.width) - 1) as u16;
        sums.into_iter().for_each(|sum| writer.put(u32::from(sum & mask), self.width));
        Ok(writer.finish())
    }

    /// Turns the server's message into one value per coordinate: `value(partition, sum)`.
    pub fn decode(&self, result: &Message, value: impl Fn(usize, u32) -> f32) -> Result<Vec<Vec<f32>>> {
        let mut reader = result.read(self.bits_down())?;
        let mut parts = Vec::with_capacity(self.partitions.len());
        for (i, part) in self.partitions.iter().enumerate() {
            parts.push((0..part.padded).map(|_| value(i, reader.take(self.width))).collect());
        }
        Ok(parts)
    }
}

/// A part of `x`, padded with zeros.
pub(crate) fn pad(x: &[f32], part: &Partition) -> Vec<f32> {
    let mut out = x[part.offset..part.offset + part.len].to_vec();
    out.resize(part.padded, 0.0);
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_table() {
        let table = LookupTable::from_values(&[0, 3, 5, 9], 0.1).unwrap();
        let lanes = Lanes::new(&table, 1030, 2, true).unwrap();
        // Partitions of 1024 and, padded, 1024 coordinates.
        assert_eq!((lanes.partitions.len(), lanes.bits_up(), lanes.bits_down()), (2, 4096, 16_384));
        let indices: Vec<u8> = (0..2048).map(|i| (i % 4) as u8).collect();
        let last: Vec<u8> = vec![3; 2048];
        let messages = [lanes.encode(&indices).unwrap(), lanes.encode(&last).unwrap()];
        let sums =
            lanes.decode(&lanes.aggregate(&messages).unwrap(), |part, sum| (100 * part) as f32 + sum as f32);
        assert_eq!(sums.unwrap()[1][..5], [109.0, 112.0, 114.0, 118.0, 109.0]);
        // 29 workers of 9 exceed 255; 7282 exceed 65535.
        assert_eq!(Lanes::new(&table, 6, 29, false).unwrap().bits_down(), 6 * 16);
        assert!(matches!(Lanes::new(&table, 6, 7282, false), Err(CodecError::LaneTooNarrow { .. })));
    }
}
