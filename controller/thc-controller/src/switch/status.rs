//! The meaning of a target's errors, and the outcome of a write.

use crate::config::TargetConfig;
use crate::error::{ControllerError, has_io};
use p4runtime_proto::rpc::Status;
use p4runtime_proto::v1::{Error, Update};
use prost::Message;
use std::time::Duration;
use tonic::Code;

/// An update that a switch has refused, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedUpdate {
    /// The update.
    pub update: Update,
    /// The switch's reason.
    pub why: String,
}

/// The outcome of updates.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// All were made.
    All,
    /// These updates were refused. The others of their request were made, those of later requests were not
    /// tried.
    But(Vec<RefusedUpdate>),
    /// Some were refused, and the switch does not say which: its answer.
    NotAll(String),
}

pub(super) fn silence(target: &str, request: &'static str, patience: Duration) -> ControllerError {
    let patience = humantime::format_duration(patience);
    let what = format!(
        "{request}: no answer within {patience}; restart what hangs there, or give it a longer patience"
    );
    ControllerError::target(target, what)
}

/// The connection ended, with the target's reason if it gave one.
pub fn closed(target: &str, message: &str) -> ControllerError {
    let colon = if message.is_empty() { "" } else { ": " };
    ControllerError::target(target, format!("it closed the connection{colon}{message}"))
}

/// Returns whether a code that ends a write may be about one of its updates. Other codes say that the switch is not
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

/// The results of a write's updates, as far as the answer has them: the number of each that failed, and why.
fn failures(status: &tonic::Status) -> (usize, Vec<(usize, String)>) {
    let details = Status::decode(status.details()).map(|status| status.details).unwrap_or_default();
    let errors = details.iter().map(|any| Error::decode(any.value.as_slice()).unwrap_or_default());
    let failed = errors.enumerate().filter(|(_, error)| error.canonical_code != Code::Ok as i32);
    let failed = failed.map(|(number, error)| {
        let code = Code::from_i32(error.canonical_code);
        (number, format!("{code:?} {}", error.message).trim_end().to_owned())
    });
    (details.len(), failed.collect())
}

pub(super) fn read_refusal(status: &tonic::Status, updates: Vec<Update>) -> Written {
    let (results, failed) = failures(status);
    if results != updates.len() {
        return match <[Update; 1]>::try_from(updates) {
            Ok([update]) => Written::But(vec![RefusedUpdate { update, why: explain(status) }]),
            Err(_) => Written::NotAll(explain(status)),
        };
    }
    let refused = |(number, why): (usize, String)| RefusedUpdate { update: updates[number].clone(), why };
    let failed: Vec<RefusedUpdate> = failed.into_iter().map(refused).collect();
    if failed.is_empty() { Written::NotAll(explain(status)) } else { Written::But(failed) }
}

/// The remedy for a target that cannot be reached.
pub(super) fn advice(config: &TargetConfig, error: &(dyn std::error::Error + 'static)) -> &'static str {
    if has_io(error, |kind| kind == std::io::ErrorKind::ConnectionRefused) {
        "is the switch running?"
    } else if config.service.address.starts_with("https://") {
        "are ca, cert and key those that it wants, and does it use TLS at all?"
    } else {
        "is it there, and does it want TLS (address = \"https://…\", ca)?"
    }
}

/// A status in words, with those of its updates that failed.
pub(super) fn explain(status: &tonic::Status) -> String {
    let (_, failed) = failures(status);
    let failed: Vec<String> = failed.iter().map(|(number, why)| format!("update {number}: {why}")).collect();
    match (failed.is_empty(), status.message()) {
        (false, _) => failed.join("; "),
        (true, "") => format!("{:?}", status.code()),
        (true, message) => format!("{:?}: {message}", status.code()),
    }
}
