//! The arithmetic of slots: look up and add. [`Scalar`] defines the answers.

use crate::Lane;
use crate::wire::Form;

/// Arithmetic on the lanes of one slot, in wire order.
pub trait Kernels {
    /// DATA opens or joins a slot: its indices become table values, which are written to (`add` false) or added to (`add` true)
    /// the lanes. An index of 8 or 16 bits is its own value. `lanes` and `packed` are as long as the form says, or shorter in proportion,
    /// by whole bytes of eight coordinates.
    fn lookup(form: Form, add: bool, lanes: &mut [u8], table: &[u8; 16], packed: &[u8]);
    /// RAW joins a slot: big-endian i32 words are added, wrapping. Equal lengths.
    fn raw_add(lanes: &mut [u8], words: &[u8]);
    /// A slot whose sums travel in fewer bits is complete: converts its lanes to what travels (P44 packed sums),
    /// [`Form::result_len`] bytes at their front. The bytes after that are then meaningless.
    fn pack(form: Form, lanes: &mut [u8]);
    /// Prefetches the memory of a slot, which is about to be used. Nothing else changes.
    fn prefetch(_memory: &[u8]) {}
}

/// Plain Rust, one lane at a time.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

/// The `i`-th index of a packet.
fn index(packed: &[u8], width: usize, i: usize) -> u8 {
    let (byte, bit) = (i * width / 8, i * width % 8);
    let two = u16::from_be_bytes([packed[byte], packed.get(byte + 1).copied().unwrap_or(0)]);
    (two << bit >> (16 - width)) as u8
}

impl Kernels for Scalar {
    fn lookup(form: Form, add: bool, lanes: &mut [u8], table: &[u8; 16], packed: &[u8]) {
        if form.width() == 16 {
            for (lane, value) in lanes.chunks_exact_mut(2).zip(packed.chunks_exact(2)) {
                let old = if add { u16::from_be_bytes([lane[0], lane[1]]) } else { 0 };
                let value = u16::from_be_bytes([value[0], value[1]]);
                lane.copy_from_slice(&old.wrapping_add(value).to_be_bytes());
            }
            return;
        }
        let value = |i| match index(packed, form.width().into(), i) {
            index if form.is_identity() => index,
            index => table[usize::from(index)],
        };
        match form.lane() {
            Lane::Bits4 => {
                // Two lanes are added as one number: sums fit, so nothing is carried from one to the other (P6 tables).
                for (i, two) in lanes.iter_mut().enumerate() {
                    let old = if add { *two } else { 0 };
                    *two = old.wrapping_add(value(2 * i) << 4).wrapping_add(value(2 * i + 1));
                }
            }
            Lane::Bits8 => {
                for (i, lane) in lanes.iter_mut().enumerate() {
                    *lane = if add { lane.wrapping_add(value(i)) } else { value(i) };
                }
            }
            Lane::Bits16 => {
                for (i, lane) in lanes.chunks_exact_mut(2).enumerate() {
                    let old = if add { u16::from_be_bytes([lane[0], lane[1]]) } else { 0 };
                    lane.copy_from_slice(&old.wrapping_add(u16::from(value(i))).to_be_bytes());
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

    fn pack(form: Form, lanes: &mut [u8]) {
        let (bits, wide) = (u32::from(form.sums()), usize::from(form.lane() == Lane::Bits16));
        // Bits that have not made a byte yet. What is written is never ahead of what has been read.
        let (mut open, mut count, mut to) = (0u32, 0, 0);
        for i in 0..lanes.len() >> wide {
            let lane = if wide == 1 {
                u32::from(u16::from_be_bytes([lanes[2 * i], lanes[2 * i + 1]]))
            } else {
                lanes[i].into()
            };
            open = open << bits | lane & ((1 << bits) - 1);
            count += bits;
            while count >= 8 {
                count -= 8;
                lanes[to] = (open >> count) as u8;
                to += 1;
            }
        }
    }
}
