//! Why a request, or one part of it, is refused.

use p4runtime_proto::rpc;
use p4runtime_proto::v1::Error;
use prost::Message;
use prost_types::Any;
use thc_protocol::aggregator::ConfigError;
use tonic::{Code, Status};

/// Whose codes an error's `code` would be.
const SPACE: &str = "thc-ps";

/// A code of the specification, and what is wrong. No message shows a cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The canonical code.
    pub code: Code,
    /// What is wrong and what to do.
    pub message: String,
}

/// `Err` of a refusal.
pub fn refuse<T>(code: Code, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { code, message: message.into() })
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        Status::new(refusal.code, refusal.message)
    }
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Refusal {
        let code = match error {
            ConfigError::Memory { .. } => Code::ResourceExhausted,
            _ => Code::InvalidArgument,
        };
        Refusal { code, message: error.to_string() }
    }
}

/// The answer to a batch: fine if all went well, otherwise a status that says of each part what became of it.
///
/// # Errors
/// The status.
pub fn of_batch(results: &[Result<(), Refusal>]) -> Result<(), Status> {
    let failed = results.iter().filter(|result| result.is_err()).count();
    if failed == 0 {
        return Ok(());
    }
    let message = format!("{failed} of {} failed", results.len());
    let details = results.iter().map(|result| {
        let error = match result {
            Ok(()) => Error { canonical_code: Code::Ok.into(), ..Error::default() },
            Err(refusal) => Error {
                canonical_code: refusal.code.into(),
                message: refusal.message.clone(),
                space: SPACE.to_owned(),
                ..Error::default()
            },
        };
        Any { type_url: "type.googleapis.com/p4.v1.Error".to_owned(), value: error.encode_to_vec() }
    });
    let code = Code::Unknown;
    let status = rpc::Status { code: code.into(), message: message.clone(), details: details.collect() };
    Err(Status::with_details(code, message, status.encode_to_vec().into()))
}
