//! Submission of calls, and the handle of a call whose tensor the engine owns.

use super::Engine;
use super::calls::{Active, CallFeedback, Owner};
use super::compressor::Measured;
use crate::{Call, WorkerError};
use crossbeam_channel::{Receiver, bounded};
use thc_protocol::worker::{CallSpec, PartSpec};
use thc_transport::RetainedTx;

impl<I: RetainedTx> Engine<I> {
    /// Starts an all-reduce of `length` coordinates, which the caller lends to every [`Self::step`] until it is done.
    /// Returns its number, by which [`Self::take_outcome`] finds its outcome.
    ///
    /// # Errors
    /// [`WorkerError`] if the call is wrong, or the session is over.
    pub fn submit(&mut self, length: usize, call: Call<'_>) -> Result<u64, WorkerError> {
        self.submit_tensor(length, call, Owner::Lender)
    }

    /// Starts an all-reduce of a tensor that the engine owns until it is over. [`Handle::wait`] returns the mean in the
    /// tensor's memory.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub fn start(&mut self, data: Vec<f32>, call: Call<'_>) -> Result<Handle, WorkerError> {
        let (outcome, receiver) = bounded(1);
        self.submit_tensor(data.len(), call, Owner::Engine { data, outcome })?;
        Ok(Handle { receiver })
    }

    fn submit_tensor(&mut self, length: usize, call: Call<'_>, owner: Owner) -> Result<u64, WorkerError> {
        self.check_working()?;
        let compressor = &self.session.compressor;
        let (plan, key) = (call.spans(length, compressor.usual()), call.key());
        compressor.check_plan(&plan, length)?;
        let mut active = Active::new(&plan, compressor, self.group_len());
        active.owner = owner;
        if let Some(key) = key {
            let holds = self.session.worker.parameters().may_lose();
            active.keep(CallFeedback { key, left: self.feedback.reserve(key, length)?, holds });
        }
        Ok(self.calls.push(active))
    }

    /// # Errors
    /// The session's end.
    pub(super) fn check_working(&self) -> Result<(), WorkerError> {
        self.failure().cloned().map_or(Ok(()), Err)
    }

    /// Submits the calls whose norms are all known, in their order. Their NORMs leave with the next exchange of
    /// packets, those of several small calls together.
    pub(super) fn submit_measured(&mut self) {
        let compressor = &self.session.compressor;
        while let Some(active) = self.calls.next_measured() {
            let part = |&Measured { part, choice, norm, .. }: &Measured| {
                let packets = (part.padded / compressor.coordinates(choice)) as u32;
                PartSpec { choice, length: (active.length - part.offset) as u32, packets, norm }
            };
            let parts: Vec<PartSpec> = active.parts.iter().map(part).collect();
            let key = active.key.map_or(0, |key| (key ^ (key >> 32)) as u32);
            let number = self.session.worker.submit(&CallSpec { key, parts: &parts });
            self.calls.count_submitted(number);
        }
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

    /// Returns whether [`Self::wait`] would return at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !self.receiver.is_empty()
    }
}
