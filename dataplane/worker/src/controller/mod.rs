//! Joining by name: the controller gives the server's address, this worker's number, and the job's cookie.

mod client;
mod place;
mod reporter;
mod url;

pub(crate) use reporter::Reporter;
pub use url::ControllerUrl;

use crate::random::random;
use std::path::PathBuf;

/// The controller of a job.
#[derive(Clone, Debug)]
pub struct Controller {
    /// Its address, and the job's name.
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
        // No worker has the token 0.
        Controller { url, rank: None, ca: None, identity: None, token: random() | 1 }
    }
}
