//! The arithmetic of slots: look up and add. [`Scalar`] defines the answers.

use crate::Lane;

/// Arithmetic on the lanes of one slot, in wire order.
pub trait Kernels {
    /// DATA opens or joins a slot: 4-bit indices, the first in the high nibble, become table values that
    /// are written to (`add` false) or added to (`add` true) the lanes.
    /// `lanes.len() = packed.len() · 2 · lane bytes`.
    fn lookup(lane: Lane, add: bool, lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
    /// RAW joins a slot: big-endian i32 words are added, wrapping. Equal lengths.
    fn raw_add(lanes: &mut [u8], words: &[u8]);
    /// This memory of a slot is about to be used: it may be brought closer to the processor. Changes nothing else.
    fn expect(_memory: &[u8]) {}
}

/// Plain Rust, one lane at a time.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

impl Kernels for Scalar {
    fn lookup(lane: Lane, add: bool, lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
        match lane {
            Lane::Bits8 => {
                for (pair, &byte) in lanes.chunks_exact_mut(2).zip(packed) {
                    let values = [table[usize::from(byte >> 4)], table[usize::from(byte & 15)]];
                    for (lane, value) in pair.iter_mut().zip(values) {
                        *lane = if add { lane.wrapping_add(value) } else { value };
                    }
                }
            }
            Lane::Bits16 => {
                for (pair, &byte) in lanes.chunks_exact_mut(4).zip(packed) {
                    let values = [table[usize::from(byte >> 4)], table[usize::from(byte & 15)]];
                    for (lane, value) in pair.chunks_exact_mut(2).zip(values) {
                        let old = if add { u16::from_be_bytes([lane[0], lane[1]]) } else { 0 };
                        lane.copy_from_slice(&old.wrapping_add(u16::from(value)).to_be_bytes());
                    }
                }
            }
        }
    }

    fn raw_add(lanes: &mut [u8], words: &[u8]) {
        for (lane, word) in lanes.chunks_exact_mut(4).zip(words.chunks_exact(4)) {
            let a = i32::from_be_bytes([lane[0], lane[1], lane[2], lane[3]]);
            let b = i32::from_be_bytes([word[0], word[1], word[2], word[3]]);
            lane.copy_from_slice(&a.wrapping_add(b).to_be_bytes());
        }
    }
}
