//! In place of what is built with the feature `controller`.

use std::convert::Infallible;
use std::time::Duration;

use crate::seat::Seat;
use crate::{Stats, WorkerError};

/// There is none: the library is built without the feature `controller`.
#[derive(Clone, Debug)]
pub struct Controller(Infallible);

impl Controller {
    pub(crate) fn stay(&mut self, _: u8) {
        match self.0 {}
    }

    pub(crate) fn find_seat(&self, _: Duration) -> Result<Seat, WorkerError> {
        match self.0 {}
    }
}

/// Nobody to report to.
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
