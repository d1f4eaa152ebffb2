//! Error feedback of calls whose sums another library makes.

use super::call::Fed;
use super::{Collective, CollectiveCall};
use crate::WorkerError;
use crate::engine::feedback::{Feedback, RestoredFeedback};
use std::sync::{Mutex, PoisonError};
use thc_codec::buffer::Buffer;

impl Collective {
    /// Takes a tensor's error feedback out for a call.
    pub(super) fn lend(&self, key: u64, length: usize) -> Result<Fed, WorkerError> {
        let mut kept = self.lock_kept();
        if kept.busy.contains(&key) {
            return Err(WorkerError::FeedbackBusy { key });
        }
        let prepared = kept.feedback.prepare(key, length);
        prepared.map_err(|before| WorkerError::FeedbackLength { key, before, now: length })?;
        kept.busy.insert(key);
        let after = kept.feedback.take(length).into_iter().map(Mutex::new).collect();
        Ok(Fed { key, before: kept.feedback.shared_chunks(key), after })
    }

    /// Ends a call whose pieces are all finished; its new error feedback takes effect.
    pub fn end(&self, call: CollectiveCall) {
        self.release(call, Feedback::commit);
    }

    /// Ends a call that failed: error feedback is as before it.
    pub fn give_up(&self, call: CollectiveCall) {
        self.release(call, |feedback, _, after| feedback.discard(after));
    }

    /// Keeps or discards the error feedback that a call leaves.
    fn release(&self, call: CollectiveCall, put: impl FnOnce(&mut Feedback, u64, Vec<Buffer>)) {
        let Some(Fed { key, before, after }) = call.feedback else { return };
        // The memory of what was there before is then used again.
        drop(before);
        let mut kept = self.lock_kept();
        let after = after.into_iter().map(|chunk| chunk.into_inner().unwrap_or_else(PoisonError::into_inner));
        put(&mut kept.feedback, key, after.collect());
        kept.busy.remove(&key);
    }

    /// All error feedback by key, as [`Group::save_feedback`](crate::Group::save_feedback).
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while a call that keeps any is under way.
    pub fn save_feedback(&self) -> Result<Vec<(u64, Vec<u8>)>, WorkerError> {
        let kept = self.lock_kept();
        match kept.busy.iter().next() {
            Some(&key) => Err(WorkerError::FeedbackBusy { key }),
            None => Ok(kept.feedback.snapshot().to_bytes()),
        }
    }

    /// Replaces a tensor's error feedback by a saved one.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while a call under its key is under way, [`WorkerError::FeedbackState`] if it is damaged.
    pub fn restore_feedback(&self, key: u64, length: usize, saved: &[u8]) -> Result<(), WorkerError> {
        let restored = RestoredFeedback::read(length, saved);
        let restored =
            restored.map_err(|error| WorkerError::FeedbackState { key, reason: error.to_string() })?;
        let mut kept = self.lock_kept();
        if kept.busy.contains(&key) {
            return Err(WorkerError::FeedbackBusy { key });
        }
        kept.feedback.put(key, restored);
        Ok(())
    }

    /// Forgets a tensor's error feedback.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while a call under its key is under way.
    pub fn reset_feedback(&self, key: u64) -> Result<(), WorkerError> {
        let mut kept = self.lock_kept();
        if kept.busy.contains(&key) {
            return Err(WorkerError::FeedbackBusy { key });
        }
        kept.feedback.reset(key);
        Ok(())
    }
}
