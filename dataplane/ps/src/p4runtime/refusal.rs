//! The refusals of a request, or of one part of it.

use p4runtime_proto::rpc;
use p4runtime_proto::v1::Error;
use prost::Message;
use prost_types::Any;
use thc_protocol::aggregator::JobConfigError;
use tonic::{Code, Status};

/// The space of an error's `code`.
const SPACE: &str = "thc-ps";

/// A code of the specification and a message, which never shows a cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The canonical code.
    pub code: Code,
    /// The problem, and what to do.
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

impl From<JobConfigError> for Refusal {
    fn from(error: JobConfigError) -> Refusal {
        let code = match error {
            JobConfigError::Memory { .. } => Code::ResourceExhausted,
            JobConfigError::TableInUse { .. } | JobConfigError::TableChanged { .. } => {
                Code::FailedPrecondition
            }
            _ => Code::InvalidArgument,
        };
        Refusal { code, message: error.to_string() }
    }
}

/// Bytes of a status' details. They travel as base64 in trailing metadata, of which clients accept 8 KiB
/// (grpc's own default) to 16 KiB in all.
const DETAILS: usize = 5 << 10;

/// The answer to a batch: success, or a status with the result of each part, from the first on, as long as
/// there is room. Its message says how many were left out.
///
/// # Errors
/// The status.
pub fn batch_status(results: &[Result<(), Refusal>]) -> Result<(), Status> {
    let failed = results.iter().filter(|result| result.is_err()).count();
    if failed == 0 {
        return Ok(());
    }
    let mut message = format!("{failed} of {} failed", results.len());
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
    let mut room = DETAILS;
    let details: Vec<Any> = details
        .map_while(|any| {
            // The field's own tag and length take at most 4 bytes.
            room = room.checked_sub(any.encoded_len() + 4)?;
            Some(any)
        })
        .collect();
    let left = results.len() - details.len();
    if left > 0 {
        message += &format!(
            "; {left} of the updates are left out of the details for want of room: write smaller batches"
        );
        let first =
            results.iter().find_map(|result| result.as_ref().err()).map_or("", |error| &error.message);
        message += &format!("; the first that failed: {first}");
    }
    let code = Code::Unknown;
    let status = rpc::Status { code: code.into(), message: message.clone(), details };
    Err(Status::with_details(code, message, status.encode_to_vec().into()))
}
