//! Error feedback that callers save and restore.

use super::{Engine, KeptFeedback, RestoredFeedback};
use crate::WorkerError;
use thc_transport::RetainedTx;

impl<I: RetainedTx> Engine<I> {
    /// A snapshot of all error feedback. Saving the snapshot takes time, and does not need the engine.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while a call that keeps error feedback is under way.
    pub fn feedback(&self) -> Result<KeptFeedback, WorkerError> {
        self.feedback.snapshot()
    }

    /// Replaces a tensor's error feedback.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while the tensor is being reduced.
    pub fn put_feedback(&mut self, key: u64, restored: RestoredFeedback) -> Result<(), WorkerError> {
        self.feedback.put(key, restored)
    }

    /// Discards the error feedback of a tensor.
    ///
    /// # Errors
    /// [`WorkerError::FeedbackBusy`] while the tensor is being reduced.
    pub fn reset_feedback(&mut self, key: u64) -> Result<(), WorkerError> {
        self.feedback.reset(key)
    }
}
