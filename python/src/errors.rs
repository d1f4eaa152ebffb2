//! The libraries' errors as the exceptions of `thc.errors`.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use thc_protocol::WorkerId;
use thc_protocol::session::JoinError;
use thc_protocol::worker::{CallError, SessionError, Who};
use thc_worker::{Silence, WorkerError};

/// An exception of `thc.errors` with its message and attributes.
fn exception<'py>(
    py: Python<'py>,
    class: &str,
    message: &str,
    fill: impl FnOnce(&Bound<'py, PyDict>) -> PyResult<()>,
) -> PyErr {
    let made = || {
        let details = PyDict::new(py);
        fill(&details)?;
        let class = py.import("thc.errors")?.getattr(class)?;
        let instance = class.call1((message,))?;
        for (name, value) in details {
            instance.setattr(name.cast_into::<pyo3::types::PyString>()?, value)?;
        }
        PyResult::Ok(PyErr::from_value(instance))
    };
    made().unwrap_or_else(|error| error)
}

/// Something is wrong with what the user wrote.
pub fn config(py: Python<'_>, message: &str) -> PyErr {
    exception(py, "ConfigError", message, |_| Ok(()))
}

/// The group or server is not there any more.
pub fn closed_error(py: Python<'_>, what: &str) -> PyErr {
    exception(py, "ClosedError", &format!("this {what} has been closed, or was made before a fork"), |_| {
        Ok(())
    })
}

/// The parameter server does not start.
pub fn server(py: Python<'_>, message: &str) -> PyErr {
    exception(py, "ServerError", message, |_| Ok(()))
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
    exception(py, class, &error.to_string(), |_| Ok(()))
}

/// The numbers of a bitmap; not as u8, whose vectors are `bytes` in Python.
fn numbers(bits: u64) -> Vec<u32> {
    (0..64).filter(|w| bits >> w & 1 == 1).collect()
}

fn worker_number(worker: WorkerId) -> Option<u8> {
    (worker != WorkerId::NONE).then_some(worker.0)
}

/// Every failure that the worker library reports.
pub fn worker(py: Python<'_>, error: &WorkerError) -> PyErr {
    let message = error.to_string();
    match error {
        WorkerError::Join(error) => join(py, error, &message),
        WorkerError::Call(CallError::NonFinite { worker }) => {
            exception(py, "NonFiniteError", &message, |d| d.set_item("worker", worker.0))
        }
        WorkerError::Call(CallError::Norm { partition, value }) => {
            exception(py, "NormError", &message, |d| {
                d.set_item("partition", partition)?;
                d.set_item("value", value)
            })
        }
        WorkerError::Session(error) => session(py, error, &message),
        WorkerError::Silent(silence @ Silence { waited, joining, .. }) => {
            let class = if *joining { "JoinSilentError" } else { "SilentError" };
            // The package does not bring the program that looks further.
            let message = format!("{}: {}", silence.finding(), silence.check());
            exception(py, class, &message, |d| d.set_item("waited", waited.as_secs_f64()))
        }
        WorkerError::Plan { .. } | WorkerError::EmptySpan { .. } | WorkerError::NoTable { .. } => {
            exception(py, "PlanError", &message, |_| Ok(()))
        }
        WorkerError::Differs { .. } => {
            exception(py, "MismatchError", &message, |d| d.set_item("worker", py.None()))
        }
        WorkerError::PackedMemory { .. } => exception(py, "ConfigError", &message, |_| Ok(())),
        WorkerError::Abandoned => exception(py, "SessionError", &message, |_| Ok(())),
        WorkerError::GivenUp => exception(py, "GivenUpError", &message, |_| Ok(())),
        WorkerError::Empty => exception(py, "EmptyError", &message, |_| Ok(())),
        WorkerError::TooLong { length } => {
            exception(py, "TooLongError", &message, |d| d.set_item("length", length))
        }
        WorkerError::FeedbackLength { key, before, now } => {
            exception(py, "FeedbackLengthError", &message, |d| {
                d.set_item("key", key)?;
                d.set_item("before", before)?;
                d.set_item("now", now)
            })
        }
        WorkerError::FeedbackBusy { key } => {
            exception(py, "FeedbackBusyError", &message, |d| d.set_item("key", key))
        }
        WorkerError::FeedbackState { key, .. } => {
            exception(py, "FeedbackStateError", &message, |d| d.set_item("key", key))
        }
        WorkerError::Unusable { .. } => exception(py, "UnusableJobError", &message, |_| Ok(())),
        WorkerError::Controller { url, .. } => {
            exception(py, "ControllerError", &message, |d| d.set_item("url", url))
        }
        WorkerError::Io(_) => exception(py, "NetworkError", &message, |_| Ok(())),
        WorkerError::Codec(_) => exception(py, "CodecError", &message, |_| Ok(())),
        WorkerError::Panicked { .. } => exception(py, "PanickedError", &message, |_| Ok(())),
        WorkerError::Closed => exception(py, "ClosedError", &message, |_| Ok(())),
    }
}

fn join(py: Python<'_>, error: &JoinError, message: &str) -> PyErr {
    match error {
        JoinError::Refused { reason, .. } => {
            exception(py, "JoinRefusedError", message, |d| d.set_item("reason", reason.to_string()))
        }
        JoinError::ShareRefused { reason, .. } => {
            exception(py, "JoinRefusedError", message, |d| d.set_item("reason", reason.to_string()))
        }
        JoinError::Workers { .. } => exception(py, "ConfigError", message, |_| Ok(())),
        JoinError::Unusable { .. } => exception(py, "UnusableJobError", message, |_| Ok(())),
        JoinError::ShareDiffers { change, .. } => {
            exception(py, "JoinRefusedError", message, |d| d.set_item("reason", change.to_string()))
        }
        JoinError::Silent { waited } | JoinError::ShareSilent { waited, .. } => {
            exception(py, "JoinSilentError", message, |d| d.set_item("waited", waited.as_secs_f64()))
        }
        JoinError::MissingRacks { missing, waited, .. } => exception(py, "JoinMissingError", message, |d| {
            d.set_item("missing", numbers(0))?;
            d.set_item("missing_racks", numbers(*missing))?;
            d.set_item("waited", waited.as_secs_f64())
        }),
        JoinError::Missing { missing, waited, .. } | JoinError::ShareMissing { missing, waited, .. } => {
            exception(py, "JoinMissingError", message, |d| {
                d.set_item("missing", numbers(*missing))?;
                d.set_item("waited", waited.as_secs_f64())
            })
        }
    }
}

fn session(py: Python<'_>, error: &SessionError, message: &str) -> PyErr {
    match error {
        SessionError::Mismatch { who, .. } => {
            let worker = match who {
                Who::Worker(worker) => Some(*worker),
                Who::OfRack(_, worker) => *worker,
            };
            exception(py, "MismatchError", message, |d| d.set_item("worker", worker.map(|worker| worker.0)))
        }
        SessionError::Missing { missing, waited } => exception(py, "MissingError", message, |d| {
            d.set_item("missing", numbers(*missing))?;
            d.set_item("waited", waited.as_secs_f64())
        }),
        SessionError::Left { members, waited, .. } => exception(py, "MissingError", message, |d| {
            d.set_item("missing", numbers(*members))?;
            d.set_item("waited", waited.as_secs_f64())
        }),
        SessionError::MissingRacks { missing, waited } => exception(py, "MissingError", message, |d| {
            d.set_item("missing", numbers(0))?;
            d.set_item("missing_racks", numbers(*missing))?;
            d.set_item("waited", waited.as_secs_f64())
        }),
        SessionError::Silent { waited } => {
            exception(py, "SilentError", message, |d| d.set_item("waited", waited.as_secs_f64()))
        }
        SessionError::NormLost { partition, .. } => {
            exception(py, "NormLostError", message, |d| d.set_item("partition", partition))
        }
        SessionError::Overtaken { .. } => exception(py, "SessionError", message, |_| Ok(())),
        SessionError::Reforming { worker } => {
            exception(py, "ReformingError", message, |d| d.set_item("worker", worker_number(*worker)))
        }
        SessionError::Changed { .. } => exception(py, "ChangedError", message, |_| Ok(())),
    }
}
