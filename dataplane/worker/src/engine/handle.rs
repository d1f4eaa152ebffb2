//! The caller's end of an all-reduce of a tensor that the engine owns meanwhile.

use super::{Engine, Owned};
use crate::{Call, WorkerError};
use crossbeam_channel::{Receiver, bounded};
use thc_transport::RetainedTx;

impl<I: RetainedTx> Engine<I> {
    /// Starts an all-reduce of a tensor that the engine owns until it is over; [`Handle::wait`] returns the mean in
    /// its memory.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub fn start(&mut self, data: Vec<f32>, call: Call<'_>) -> Result<Handle, WorkerError> {
        let (outcome, receiver) = bounded(1);
        self.submit_tensor(data.len(), call, Some(Owned { data, outcome }))?;
        Ok(Handle { receiver })
    }
}

/// An all-reduce of a `Vec<f32>` under way.
#[derive(Debug)]
pub struct Handle {
    receiver: Receiver<Result<Vec<f32>, WorkerError>>,
}

impl Handle {
    /// Waits for the mean.
    ///
    /// # Errors
    /// As [`Group::call`](crate::Group::call).
    pub fn wait(self) -> Result<Vec<f32>, WorkerError> {
        self.receiver.recv().unwrap_or(Err(WorkerError::Closed))
    }

    /// Whether [`Self::wait`] would return at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !self.receiver.is_empty()
    }
}
