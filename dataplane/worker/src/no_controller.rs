//! In place of what is built with the feature `controller`.

use std::convert::Infallible;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::{Seat, Stats, WorkerError};

/// A controller cannot be named without the feature `controller`.
#[derive(Clone, Debug)]
pub struct Controller(Infallible);

impl Controller {
    pub(crate) fn find_seat(&self, _: Option<u8>, _: Duration, _: &AtomicBool) -> Result<Seat, WorkerError> {
        match self.0 {}
    }
}

/// No controller is there to report to.
#[derive(Debug)]
pub(crate) struct Reporter;

impl Reporter {
    pub fn start(
        controller: Controller,
        _: u8,
        _: impl Fn() -> Option<Stats>,
    ) -> Result<Reporter, WorkerError> {
        match controller.0 {}
    }
}
