//! What a call works on that outlives the step that begins it: a tensor that the engine owns meanwhile, or one
//! whose indices are computed elsewhere.

use super::packed::{Packed, PackedTensor};
use super::{Engine, Owned};
use crate::{Call, WorkerError};
use crossbeam_channel::{Receiver, bounded};
use thc_transport::PacketIo;

mod sealed {
    pub trait Sealed {}
    impl Sealed for Vec<f32> {}
    impl Sealed for super::PackedTensor<'_> {}
}

/// What [`Group::start`](crate::Group::start) and [`Engine::start`] take: a `Vec<f32>`, which [`Handle::wait`]
/// returns as the mean, or a [`PackedTensor`].
pub trait Operand: sealed::Sealed {
    /// The caller's end of the call.
    type Handle;

    /// Hands it to the engine.
    #[doc(hidden)]
    fn submit<I: PacketIo>(self, engine: &mut Engine<I>, call: Call<'_>)
    -> Result<Self::Handle, WorkerError>;
}

impl Operand for Vec<f32> {
    type Handle = Handle;

    fn submit<I: PacketIo>(self, engine: &mut Engine<I>, call: Call<'_>) -> Result<Handle, WorkerError> {
        let (outcome, receiver) = bounded(1);
        engine.submit_tensor(self.len(), call, Some(Owned { data: self, outcome }))?;
        Ok(Handle { receiver })
    }
}

impl Operand for PackedTensor<'_> {
    type Handle = Packed;

    fn submit<I: PacketIo>(self, engine: &mut Engine<I>, call: Call<'_>) -> Result<Packed, WorkerError> {
        engine.submit_packed(self, call)
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
