//! A worker asks a controller for its seat.

use super::{Controller, client};
use crate::Seat;
use crate::WorkerError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thc_control_proto::v1::JoinRequest;
use tonic::Code;

/// Between two questions to a controller or target that is not there yet.
const RETRY: Duration = Duration::from_millis(500);
/// Between two lines of the log about it.
const REPORT: Duration = Duration::from_secs(3);

impl Controller {
    /// Asks for a seat, with this number or else [`Self::rank`]. Waits for a controller that is not there yet.
    ///
    /// # Errors
    /// [`WorkerError::Controller`] if it refuses, or is not there in time; [`WorkerError::GivenUp`] once `stop` is true.
    pub(crate) fn find_seat(
        &self,
        rank: Option<u8>,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<Seat, WorkerError> {
        let end = Instant::now() + patience;
        let mut reported = Instant::now();
        let rank = rank.or(self.rank).map(u32::from);
        let request = JoinRequest { job: self.url.job().to_owned(), rank, token: self.token };
        let place = loop {
            match client::ask(self, request.clone()) {
                Ok(place) => break place,
                Err(status) => {
                    let passing = status.code() == Code::Unavailable;
                    if !passing || Instant::now() + RETRY > end {
                        return Err(self.controller_error(&status));
                    }
                    if reported.elapsed() >= REPORT {
                        reported = Instant::now();
                        tracing::warn!("{}: {}; asking again", self.url, client::words(&status));
                    }
                    std::thread::sleep(RETRY);
                    if stop.load(Ordering::SeqCst) {
                        return Err(WorkerError::GivenUp);
                    }
                }
            }
        };
        let wrong = |what: &str| WorkerError::Controller {
            url: self.url.to_string(),
            message: format!("it answers with a {what} that cannot be: bring both to one version"),
        };
        let seat = Seat {
            ps: place.aggregator.parse().map_err(|_| wrong("server"))?,
            job: u16::try_from(place.job).map_err(|_| wrong("job"))?,
            worker: u8::try_from(place.worker).map_err(|_| wrong("worker"))?,
            cookie: place.cookie,
        };
        tracing::info!("{}: worker {} of {} at {}", self.url, place.worker, place.workers, place.aggregator);
        Ok(seat)
    }

    fn controller_error(&self, status: &tonic::Status) -> WorkerError {
        WorkerError::Controller { url: self.url.to_string(), message: client::words(status) }
    }
}
