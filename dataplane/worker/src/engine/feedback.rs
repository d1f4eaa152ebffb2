//! Error feedback by tensor. What a call leaves of it is written beside it and takes its place when the call is done:
//! a call that fails, or a session that ends, leaves the feedback of the whole tensor as it was.
//!
//! Beside the feedback itself this takes the memory of the calls under way at one time, 4 bytes per coordinate; it is
//! kept for later calls. It lies in chunks, which do not depend on how the session cuts tensors: no partition lies across two.

use std::collections::HashMap;
use thc_codec::buffer::Buffer;
use thc_codec::error::CodecError;
use thc_codec::feedback::ErrorFeedback;
use thc_codec::partition::MAX_PARTITION;

/// One tensor's feedback: chunks of [`MAX_PARTITION`] coordinates, the last as long as the rest.
struct Tensor {
    length: usize,
    chunks: Vec<Buffer>,
}

/// The feedback of all tensors.
#[derive(Default)]
pub(super) struct Feedback {
    tensors: HashMap<u64, Tensor>,
    /// Memory for what calls under way leave.
    free: Vec<Buffer>,
}

/// The lengths of a tensor's chunks.
fn lengths(length: usize) -> impl Iterator<Item = usize> {
    (0..length).step_by(MAX_PARTITION).map(move |first| (length - first).min(MAX_PARTITION))
}

impl Feedback {
    /// Whether a tensor of `length` coordinates can be reduced under this key: its length under it so far, if it was another.
    pub fn prepare(&mut self, key: u64, length: usize) -> Result<(), usize> {
        let tensor = self
            .tensors
            .entry(key)
            .or_insert_with(|| Tensor { length, chunks: lengths(length).map(Buffer::zeroed).collect() });
        if tensor.length == length { Ok(()) } else { Err(tensor.length) }
    }

    /// A tensor's feedback as it was before the calls under way, in chunks; none if there is no such tensor.
    pub fn chunks(&self, key: u64) -> &[Buffer] {
        self.tensors.get(&key).map_or(&[], |tensor| &tensor.chunks)
    }

    /// Memory for what a call leaves of a tensor of `length` coordinates; its contents are unspecified.
    pub fn take(&mut self, length: usize) -> Vec<Buffer> {
        let chunk = |length| match self.free.iter().position(|buffer| buffer.len() == length) {
            Some(at) => self.free.swap_remove(at),
            None => Buffer::zeroed(length),
        };
        lengths(length).map(chunk).collect()
    }

    /// Puts a finished call's feedback in place.
    pub fn commit(&mut self, key: u64, left: Vec<Buffer>) {
        let before = match self.tensors.get_mut(&key) {
            Some(tensor) => std::mem::replace(&mut tensor.chunks, left),
            None => left,
        };
        self.free.extend(before);
    }

    /// Takes back what a failed call leaves.
    pub fn discard(&mut self, left: Vec<Buffer>) {
        self.free.extend(left);
    }

    /// All feedback by key, in the form of [`ErrorFeedback::to_bytes`], in the order of the keys.
    pub fn save(&self) -> Vec<(u64, Vec<u8>)> {
        let mut all: Vec<_> = self.tensors.iter().map(|(&key, tensor)| (key, tensor.save())).collect();
        all.sort_by_key(|(key, _)| *key);
        all
    }

    /// Replaces a tensor's feedback by a saved one.
    pub fn restore(&mut self, key: u64, length: usize, saved: &[u8]) -> Result<(), CodecError> {
        let whole = ErrorFeedback::from_bytes(length, saved)?;
        let chunks = whole.as_slice().chunks(MAX_PARTITION).map(Buffer::from).collect();
        self.tensors.insert(key, Tensor { length, chunks });
        Ok(())
    }

    /// Forgets a tensor.
    pub fn reset(&mut self, key: u64) {
        self.tensors.remove(&key);
    }
}

impl Tensor {
    fn save(&self) -> Vec<u8> {
        let mut whole = ErrorFeedback::new(self.length);
        for (part, chunk) in whole.as_mut_slice().chunks_mut(MAX_PARTITION).zip(&self.chunks) {
            part.copy_from_slice(chunk);
        }
        whole.to_bytes()
    }
}
