//! What a target's errors mean.

use super::written::{RefusedUpdate, Written};
use crate::config::TargetConfig;
use crate::error::{ControllerError, has_io};
use p4runtime_proto::rpc::Status;
use p4runtime_proto::v1::{Error, Update};
use prost::Message;
use std::time::Duration;
use tonic::Code;

pub(super) fn silence(target: &str, request: &'static str, patience: Duration) -> ControllerError {
    ControllerError::Silent { target: target.to_owned(), request, patience }
}

/// Whether a code that ends a write may be about one of its updates. Other codes say that the switch is not
/// there, or takes no updates from this controller.
pub(super) fn refuses_updates(code: Code) -> bool {
    !matches!(
        code,
        Code::Unavailable
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
    )
}

pub(super) fn read_refusal(status: &tonic::Status, updates: Vec<Update>) -> Written {
    let details = Status::decode(status.details()).map(|status| status.details).unwrap_or_default();
    if details.len() != updates.len() {
        return match <[Update; 1]>::try_from(updates) {
            Ok([update]) => Written::But(vec![RefusedUpdate { update, why: explain(status) }]),
            Err(_) => Written::NotAll(explain(status)),
        };
    }
    let errors = details.iter().map(|any| Error::decode(any.value.as_slice()).unwrap_or_default());
    let failed = updates.into_iter().zip(errors).filter(|(_, error)| error.canonical_code != Code::Ok as i32);
    let failed = failed.map(|(update, error)| {
        let code = Code::from_i32(error.canonical_code);
        RefusedUpdate { update, why: format!("{code:?} {}", error.message).trim_end().to_owned() }
    });
    let failed: Vec<RefusedUpdate> = failed.collect();
    if failed.is_empty() { Written::NotAll(explain(status)) } else { Written::But(failed) }
}

/// What to do about a target that cannot be reached.
pub(super) fn advice(config: &TargetConfig, error: &(dyn std::error::Error + 'static)) -> &'static str {
    if has_io(error, |kind| kind == std::io::ErrorKind::ConnectionRefused) {
        "is the switch running?"
    } else if config.address.starts_with("https://") {
        "are ca, cert and key those that it wants, and does it use TLS at all?"
    } else {
        "is it there, and does it want TLS (address = \"https://…\", ca)?"
    }
}

/// A status in words, with those of its updates that failed.
pub(super) fn explain(status: &tonic::Status) -> String {
    let details = Status::decode(status.details()).map(|status| status.details).unwrap_or_default();
    let failures: Vec<String> = details
        .iter()
        .enumerate()
        .filter_map(|(number, any)| Some((number, Error::decode(any.value.as_slice()).ok()?)))
        .filter(|(_, error)| error.canonical_code != Code::Ok as i32)
        .map(|(number, error)| {
            let code = Code::from_i32(error.canonical_code);
            format!("update {number}: {code:?} {}", error.message).trim_end().to_owned()
        })
        .collect();
    match (failures.is_empty(), status.message()) {
        (false, _) => failures.join("; "),
        (true, "") => format!("{:?}", status.code()),
        (true, message) => format!("{:?}: {message}", status.code()),
    }
}
