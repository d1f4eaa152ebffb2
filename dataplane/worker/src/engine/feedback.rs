//! Error feedback by tensor. What a call leaves of it is written beside it and takes its place when the call is done:
//! a call that fails, or a session that ends, leaves the feedback of all partitions as it was.
//!
//! Beside the feedback itself this takes the memory of the calls under way at one time, 4 bytes per coordinate; it is
//! kept for later calls.

use std::collections::HashMap;
use thc_codec::buffer::Buffer;
use thc_codec::error::CodecError;
use thc_codec::feedback::ErrorFeedback;
use thc_codec::partition::{self, Partition};

/// One tensor's feedback, a buffer as long as the padded partition for each.
struct Tensor {
    length: usize,
    parts: Vec<Buffer>,
}

/// The feedback of all tensors.
pub(super) struct Feedback {
    /// How tensors are cut (P4).
    block: u8,
    tensors: HashMap<u64, Tensor>,
    /// Memory for what calls under way leave.
    free: Vec<Buffer>,
}

impl Feedback {
    /// None yet, of tensors cut into full partitions of 2^`block`.
    pub fn new(block: u8) -> Feedback {
        Feedback { block, tensors: HashMap::new(), free: Vec::new() }
    }

    /// Cuts all tensors anew, for a session whose partitions have another size.
    pub fn set_block(&mut self, block: u8) {
        let before = std::mem::replace(&mut self.block, block);
        if before != block {
            self.free.clear();
            let tensors = self.tensors.values_mut();
            tensors.for_each(|tensor| *tensor = Tensor::of(&tensor.whole(before), block));
        }
    }

    /// Whether a tensor of `length` coordinates can be reduced under this key: its length under it so far, if it was another.
    pub fn prepare(&mut self, key: u64, length: usize) -> Result<(), usize> {
        let block = self.block;
        let tensor = self.tensors.entry(key).or_insert_with(|| Tensor {
            length,
            parts: partition::split(length, block).map(|part| Buffer::zeroed(part.padded)).collect(),
        });
        if tensor.length == length { Ok(()) } else { Err(tensor.length) }
    }

    /// The feedback of one partition, as it was before the calls under way.
    pub fn get(&self, key: u64, part: &Partition) -> Option<&[f32]> {
        self.tensors.get(&key)?.parts.get(part.index as usize)?.get(..part.len)
    }

    /// Memory for what a call leaves of a partition of `padded` coordinates; its contents are unspecified.
    pub fn take(&mut self, padded: usize) -> Buffer {
        match self.free.iter().position(|buffer| buffer.len() == padded) {
            Some(at) => self.free.swap_remove(at),
            None => Buffer::zeroed(padded),
        }
    }

    /// Puts a finished call's feedback in place; partitions without a new one keep theirs.
    pub fn commit(&mut self, key: u64, left: impl Iterator<Item = Option<Buffer>>) {
        let Some(tensor) = self.tensors.get_mut(&key) else { return };
        for (old, new) in tensor.parts.iter_mut().zip(left) {
            if let Some(new) = new {
                self.free.push(std::mem::replace(old, new));
            }
        }
    }

    /// Takes back what a failed call leaves.
    pub fn discard(&mut self, left: impl Iterator<Item = Option<Buffer>>) {
        self.free.extend(left.flatten());
    }

    /// All feedback by key, in the form of [`ErrorFeedback::to_bytes`], in the order of the keys.
    pub fn save(&self) -> Vec<(u64, Vec<u8>)> {
        let saved = |tensor: &Tensor| tensor.whole(self.block).to_bytes();
        let mut all: Vec<_> = self.tensors.iter().map(|(&key, tensor)| (key, saved(tensor))).collect();
        all.sort_by_key(|(key, _)| *key);
        all
    }

    /// Replaces a tensor's feedback by a saved one.
    pub fn restore(&mut self, key: u64, length: usize, saved: &[u8]) -> Result<(), CodecError> {
        let whole = ErrorFeedback::from_bytes(length, saved)?;
        self.tensors.insert(key, Tensor::of(&whole, self.block));
        Ok(())
    }

    /// Forgets a tensor.
    pub fn reset(&mut self, key: u64) {
        self.tensors.remove(&key);
    }
}

impl Tensor {
    fn of(whole: &ErrorFeedback, block: u8) -> Tensor {
        let parts = partition::split(whole.len(), block).map(|part| {
            let mut buffer = Buffer::zeroed(part.padded);
            buffer[..part.len].copy_from_slice(&whole.as_slice()[part.offset..part.offset + part.len]);
            buffer
        });
        Tensor { length: whole.len(), parts: parts.collect() }
    }

    fn whole(&self, block: u8) -> ErrorFeedback {
        let mut whole = ErrorFeedback::new(self.length);
        for (part, kept) in partition::split(self.length, block).zip(&self.parts) {
            whole.as_mut_slice()[part.offset..part.offset + part.len].copy_from_slice(&kept[..part.len]);
        }
        whole
    }
}
