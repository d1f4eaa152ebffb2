//! Error feedback by tensor. A call writes its new feedback beside the old, which it replaces when the call
//! is done: a call that fails, or a session that ends, leaves the feedback of the whole tensor as it was.
//!
//! This takes 4 more bytes per coordinate of the calls under way, which are kept for later calls. Feedback
//! lies in chunks that do not depend on how the session cuts tensors: no partition lies across two.

use crate::WorkerError;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use thc_codec::buffer::Buffer;
use thc_codec::error::CodecError;
use thc_codec::feedback::ErrorFeedback;
use thc_codec::partition::MAX_PARTITION;

/// One tensor's feedback: chunks of [`MAX_PARTITION`] coordinates, the last as long as the rest.
#[derive(Clone)]
struct Tensor {
    length: usize,
    /// Shared with snapshots: a call replaces them and changes none.
    chunks: Arc<Vec<Buffer>>,
}

/// A snapshot of all feedback, to be saved while calls go on.
pub struct KeptFeedback(Vec<(u64, Tensor)>);

impl KeptFeedback {
    /// The feedback by key, in the form of [`ErrorFeedback::to_bytes`], in the order of the keys.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<(u64, Vec<u8>)> {
        self.0.iter().map(|(key, tensor)| (*key, tensor.save())).collect()
    }
}

/// A tensor's feedback as it was saved.
pub struct RestoredFeedback(Tensor);

impl RestoredFeedback {
    /// Reads what was saved for a tensor of `length` coordinates.
    ///
    /// # Errors
    /// [`CodecError`] if it is damaged or of another length.
    pub fn read(length: usize, saved: &[u8]) -> Result<RestoredFeedback, CodecError> {
        let whole = ErrorFeedback::from_bytes(length, saved)?;
        let chunks = whole.as_slice().chunks(MAX_PARTITION).map(Buffer::from).collect();
        Ok(RestoredFeedback(Tensor { length, chunks: Arc::new(chunks) }))
    }
}

/// The feedback of all tensors.
#[derive(Default)]
pub(super) struct Feedback {
    tensors: HashMap<u64, Tensor>,
    /// The keys that calls under way use.
    busy: HashSet<u64>,
    /// Memory for the feedback that calls under way write.
    free: Vec<Buffer>,
}

/// The lengths of a tensor's chunks.
fn lengths(length: usize) -> impl Iterator<Item = usize> {
    (0..length).step_by(MAX_PARTITION).map(move |first| (length - first).min(MAX_PARTITION))
}

impl Feedback {
    /// Reserves the feedback of a tensor of `length` coordinates for a call, until [`Self::commit`] or
    /// [`Self::discard`]. Returns memory for the feedback that the call leaves, whose contents are unspecified.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] and [`WorkerError::FeedbackLength`].
    pub fn reserve(&mut self, key: u64, length: usize) -> Result<Vec<Buffer>, WorkerError> {
        self.check_is_free(key)?;
        let zeros = || Arc::new(lengths(length).map(Buffer::zeroed).collect());
        let tensor = self.tensors.entry(key).or_insert_with(|| Tensor { length, chunks: zeros() });
        if tensor.length != length {
            return Err(WorkerError::FeedbackLength { key, before: tensor.length, now: length });
        }
        self.busy.insert(key);
        let chunk = |length| match self.free.iter().position(|buffer| buffer.len() == length) {
            Some(at) => self.free.swap_remove(at),
            None => Buffer::zeroed(length),
        };
        Ok(lengths(length).map(chunk).collect())
    }

    fn check_is_free(&self, key: u64) -> Result<(), WorkerError> {
        if self.busy.contains(&key) { Err(WorkerError::FeedbackBusy { key }) } else { Ok(()) }
    }

    /// A tensor's feedback as it was before the calls under way, in chunks; none if there is no such tensor.
    pub fn chunks(&self, key: u64) -> &[Buffer] {
        self.tensors.get(&key).map_or(&[], |tensor| &tensor.chunks)
    }

    /// The chunks of [`Self::chunks`], for a caller that keeps them during a call.
    pub fn shared_chunks(&self, key: u64) -> Arc<Vec<Buffer>> {
        self.tensors.get(&key).map_or_else(Arc::default, |tensor| Arc::clone(&tensor.chunks))
    }

    /// Puts a finished call's feedback in place.
    pub fn commit(&mut self, key: u64, left: Vec<Buffer>) {
        self.busy.remove(&key);
        let before = match self.tensors.get_mut(&key) {
            // A snapshot may share the memory of the old chunks.
            Some(tensor) => Arc::into_inner(std::mem::replace(&mut tensor.chunks, Arc::new(left))),
            None => Some(left),
        };
        self.free.extend(before.into_iter().flatten());
    }

    /// Takes back the memory of a failed call. The tensor's feedback stays as it was.
    pub fn discard(&mut self, key: u64, left: Vec<Buffer>) {
        self.busy.remove(&key);
        self.free.extend(left);
    }

    /// No call is under way any more.
    pub fn release_all(&mut self) {
        self.busy.clear();
    }

    /// All feedback as it is now, without a copy.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while a call that keeps feedback is under way.
    pub fn snapshot(&self) -> Result<KeptFeedback, WorkerError> {
        if let Some(&key) = self.busy.iter().next() {
            return Err(WorkerError::FeedbackBusy { key });
        }
        let mut all: Vec<_> = self.tensors.iter().map(|(&key, tensor)| (key, tensor.clone())).collect();
        all.sort_by_key(|(key, _)| *key);
        Ok(KeptFeedback(all))
    }

    /// Replaces a tensor's feedback by a saved one.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`].
    pub fn put(&mut self, key: u64, RestoredFeedback(tensor): RestoredFeedback) -> Result<(), WorkerError> {
        self.check_is_free(key)?;
        self.tensors.insert(key, tensor);
        Ok(())
    }

    /// Discards a tensor's feedback.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`].
    pub fn reset(&mut self, key: u64) -> Result<(), WorkerError> {
        self.check_is_free(key)?;
        self.tensors.remove(&key);
        Ok(())
    }
}

impl Tensor {
    fn save(&self) -> Vec<u8> {
        let mut whole = ErrorFeedback::new(self.length);
        for (part, chunk) in whole.as_mut_slice().chunks_mut(MAX_PARTITION).zip(&*self.chunks) {
            part.copy_from_slice(chunk);
        }
        whole.to_bytes()
    }
}
