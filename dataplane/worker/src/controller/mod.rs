//! Joining by name: the controller says where the aggregator is, which worker this is, and the job's cookie.

mod client;
mod reporter;
mod url;

pub(crate) use reporter::Reporter;
pub use url::ControllerUrl;

use crate::WorkerError;
use crate::random::random;
use crate::seat::Seat;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thc_control_proto::v1::JoinRequest;
use tonic::Code;

/// Between two questions to a controller or target that is not there yet.
const RETRY: Duration = Duration::from_millis(500);

/// The controller of a job.
#[derive(Clone, Debug)]
pub struct Controller {
    /// Where it is, and the job's name.
    pub url: ControllerUrl,
    /// This worker's number; without it the controller gives one.
    pub rank: Option<u8>,
    /// Authorities of its certificate for `thcs://`, a PEM file.
    pub ca: Option<PathBuf>,
    /// This worker's certificate and private key, PEM files.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Tells this worker from others that ask for the same job.
    pub(crate) token: u64,
}

impl Controller {
    /// The controller of this job.
    #[must_use]
    pub fn new(url: ControllerUrl) -> Controller {
        // Unpredictable enough to tell workers apart; 0 is nobody's.
        Controller { url, rank: None, ca: None, identity: None, token: random() | 1 }
    }

    /// Asks for this number from now on.
    pub(crate) fn stay(&mut self, worker: u8) {
        self.rank = Some(worker);
    }

    /// Asks where to join. Waits for a controller that is not there yet.
    ///
    /// # Errors
    /// [`WorkerError::Controller`] if it refuses, or is not there in time.
    pub(crate) fn find_seat(&self, patience: Duration) -> Result<Seat, WorkerError> {
        let end = Instant::now() + patience;
        let request =
            JoinRequest { job: self.url.job().to_owned(), rank: self.rank.map(u32::from), token: self.token };
        let place = loop {
            match client::ask(self, request.clone()) {
                Ok(place) => break place,
                Err(status) => {
                    let passing = status.code() == Code::Unavailable;
                    if !passing || Instant::now() + RETRY > end {
                        return Err(self.controller_error(&status));
                    }
                    tracing::debug!("{}: {}; asking again", self.url, status.message());
                    std::thread::sleep(RETRY);
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
