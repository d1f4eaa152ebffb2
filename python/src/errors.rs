//! The libraries' errors as the exceptions of `thc.errors`.

use pyo3::prelude::*;
use std::time::Duration;
use thc_protocol::WorkerId;
use thc_protocol::session::JoinError;
use thc_protocol::worker::{CallError, SessionError, Who};
use thc_worker::{Silence, WorkerError};

/// The attributes of an exception that are not its class's defaults.
#[derive(Default)]
struct Details {
    worker: Option<u16>,
    /// The numbers of workers, as a bitmap.
    missing: Option<u64>,
    waited: Option<Duration>,
    reason: Option<String>,
    key: Option<u64>,
}

impl Details {
    fn waited(waited: Duration, missing: Option<u64>) -> Details {
        Details { waited: Some(waited), missing, ..Details::default() }
    }
}

/// An exception of `thc.errors` with its message and attributes.
fn exception(py: Python<'_>, class: &str, message: &str, details: Details) -> PyErr {
    let made = || {
        let made = py.import("thc.errors")?.getattr(class)?.call1((message,))?;
        let Details { worker, missing, waited, reason, key } = details;
        worker.map_or(Ok(()), |worker| made.setattr("worker", worker))?;
        // Not as u8, whose vectors are `bytes` in Python.
        let missing = missing.map(|bits| (0..64_u32).filter(|w| bits >> w & 1 == 1).collect::<Vec<_>>());
        missing.map_or(Ok(()), |missing| made.setattr("missing", missing))?;
        waited.map_or(Ok(()), |waited| made.setattr("waited", waited.as_secs_f64()))?;
        reason.map_or(Ok(()), |reason| made.setattr("reason", reason))?;
        key.map_or(Ok(()), |key| made.setattr("key", key))?;
        PyResult::Ok(PyErr::from_value(made))
    };
    made().unwrap_or_else(|error| error)
}

/// Something is wrong with what the user wrote.
pub fn config(py: Python<'_>, message: &str) -> PyErr {
    exception(py, "ConfigError", message, Details::default())
}

/// The group or server is not there any more.
pub fn closed_error(py: Python<'_>, what: &str) -> PyErr {
    let message = format!("this {what} has been closed, or was made before a fork");
    exception(py, "ClosedError", &message, Details::default())
}

/// The parameter server does not start.
pub fn server(py: Python<'_>, message: &str) -> PyErr {
    exception(py, "ServerError", message, Details::default())
}

/// Every failure of asynchronous training.
pub fn model(py: Python<'_>, error: &thc_model::ModelError) -> PyErr {
    use thc_model::ModelError;
    let class = match error {
        ModelError::Config(_) | ModelError::Codec(_) => "ConfigError",
        ModelError::Empty => "ModelEmptyError",
        ModelError::Unreachable { .. } => "ModelSilentError",
        ModelError::Refused { .. } => "ModelRefusedError",
        ModelError::Socket { .. } => "NetworkError",
        _ => "ModelError",
    };
    exception(py, class, &error.to_string(), Details::default())
}

/// Every failure that the worker library reports.
pub fn worker(py: Python<'_>, error: &WorkerError) -> PyErr {
    let mut message = error.to_string();
    let (class, details) = match error {
        WorkerError::Join(error) => join(error),
        WorkerError::Session(error) => session(error),
        WorkerError::Call(CallError::NonFinite { worker }) => {
            ("NonFiniteError", Details { worker: Some(worker.0), ..Details::default() })
        }
        WorkerError::Call(CallError::Norm { .. }) => ("NonFiniteError", Details::default()),
        WorkerError::Silent(silence @ Silence { waited, joining, .. }) => {
            // The package does not bring the program that looks further.
            message = format!("{}: {}", silence.finding(), silence.check());
            (if *joining { "JoinError" } else { "SilentError" }, Details::waited(*waited, None))
        }
        WorkerError::FeedbackLength { key, .. }
        | WorkerError::FeedbackBusy { key }
        | WorkerError::FeedbackState { key, .. } => {
            ("FeedbackError", Details { key: Some(*key), ..Details::default() })
        }
        WorkerError::Plan { .. }
        | WorkerError::EmptySpan { .. }
        | WorkerError::NoTable { .. }
        | WorkerError::PackedMemory { .. }
        | WorkerError::Empty
        | WorkerError::TooLong { .. } => ("ConfigError", Details::default()),
        WorkerError::Differs { .. } => ("MismatchError", Details::default()),
        WorkerError::Abandoned | WorkerError::Codec(_) => ("SessionError", Details::default()),
        WorkerError::GivenUp => ("LostError", Details::default()),
        WorkerError::Unusable { .. } | WorkerError::Controller { .. } => ("JoinError", Details::default()),
        WorkerError::Io(_) => ("NetworkError", Details::default()),
        WorkerError::Panicked { .. } => ("PanickedError", Details::default()),
        WorkerError::Closed => ("ClosedError", Details::default()),
    };
    exception(py, class, &message, details)
}

fn join(error: &JoinError) -> (&'static str, Details) {
    let details = match error {
        JoinError::Workers { .. } => return ("ConfigError", Details::default()),
        JoinError::Unusable { .. } => Details::default(),
        JoinError::Refused { reason, .. } | JoinError::ShareRefused { reason, .. } => {
            Details { reason: Some(reason.to_string()), ..Details::default() }
        }
        JoinError::ShareDiffers { change, .. } => {
            Details { reason: Some(change.to_string()), ..Details::default() }
        }
        JoinError::Silent { waited }
        | JoinError::ShareSilent { waited, .. }
        | JoinError::MissingRacks { waited, .. } => Details::waited(*waited, None),
        JoinError::Missing { missing, waited, .. } | JoinError::ShareMissing { missing, waited, .. } => {
            Details::waited(*waited, Some(*missing))
        }
    };
    ("JoinError", details)
}

fn session(error: &SessionError) -> (&'static str, Details) {
    match error {
        SessionError::Mismatch { who, .. } => {
            let worker = match who {
                Who::Worker(worker) => Some(*worker),
                Who::OfRack(_, worker) => *worker,
            };
            ("MismatchError", Details { worker: worker.map(|worker| worker.0.into()), ..Details::default() })
        }
        SessionError::Missing { missing: members, waited } | SessionError::Left { members, waited, .. } => {
            ("MissingError", Details::waited(*waited, Some(*members)))
        }
        SessionError::MissingRacks { waited, .. } => ("MissingError", Details::waited(*waited, None)),
        SessionError::Silent { waited } => ("SilentError", Details::waited(*waited, None)),
        SessionError::Overtaken { .. } => ("SessionError", Details::default()),
        SessionError::Reforming { worker } => {
            let worker = (*worker != WorkerId::NONE).then_some(worker.0);
            ("LostError", Details { worker: worker.map(u16::from), ..Details::default() })
        }
        SessionError::NormLost { .. } | SessionError::Changed { .. } => ("LostError", Details::default()),
    }
}
