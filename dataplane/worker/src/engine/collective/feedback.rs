//! Error feedback of calls whose sums another library makes.

use super::call::Fed;
use super::{Collective, CollectiveCall};
use crate::WorkerError;
use crate::engine::feedback::{Feedback, RestoredFeedback};
use std::sync::{Mutex, PoisonError};
use thc_codec::buffer::Buffer;

impl Collective {
    /// Reserves a tensor's error feedback for a call.
    pub(super) fn reserve(&self, key: u64, length: usize) -> Result<Fed, WorkerError> {
        let mut feedback = self.lock_feedback();
        let after = feedback.reserve(key, length)?.into_iter().map(Mutex::new).collect();
        Ok(Fed { key, before: feedback.shared_chunks(key), after })
    }

    /// Ends a call whose pieces are all finished; its new error feedback takes effect.
    pub fn end(&self, call: CollectiveCall) {
        self.release(call, Feedback::commit);
    }

    /// Ends a call that failed: error feedback is as before it.
    pub fn give_up(&self, call: CollectiveCall) {
        self.release(call, Feedback::discard);
    }

    /// Keeps or discards the error feedback that a call leaves.
    fn release(&self, call: CollectiveCall, put: impl FnOnce(&mut Feedback, u64, Vec<Buffer>)) {
        let Some(Fed { key, before, after }) = call.feedback else { return };
        // The memory of the feedback before the call is then used again.
        drop(before);
        let after = after.into_iter().map(|chunk| chunk.into_inner().unwrap_or_else(PoisonError::into_inner));
        put(&mut self.lock_feedback(), key, after.collect());
    }

    /// All error feedback by key, as [`Group::save_feedback`](crate::Group::save_feedback).
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while a call that keeps any is under way.
    pub fn save_feedback(&self) -> Result<Vec<(u64, Vec<u8>)>, WorkerError> {
        Ok(self.lock_feedback().snapshot()?.to_bytes())
    }

    /// Replaces a tensor's error feedback by a saved one.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while a call under its key is under way, [`WorkerError::FeedbackState`] if it is damaged.
    pub fn restore_feedback(&self, key: u64, length: usize, saved: &[u8]) -> Result<(), WorkerError> {
        let restored = RestoredFeedback::read(length, saved);
        let restored =
            restored.map_err(|error| WorkerError::FeedbackState { key, reason: error.to_string() })?;
        self.lock_feedback().put(key, restored)
    }

    /// Discards a tensor's error feedback.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while a call under its key is under way.
    pub fn reset_feedback(&self, key: u64) -> Result<(), WorkerError> {
        self.lock_feedback().reset(key)
    }
}
