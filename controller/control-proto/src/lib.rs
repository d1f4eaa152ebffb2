//! The requests and answers of thc-controller's gRPC service ([`v1`]).
//!
//! Operators' tools use jobs, targets and diagnosis. Workers use
//! [`join`](v1::control_client::ControlClient::join) and [`report`](v1::control_client::ControlClient::report).
#![forbid(unsafe_code)]

#[allow(missing_docs, clippy::all, clippy::pedantic, unused_qualifications)]
mod generated {
    include!("../generated/modules.rs");
}

pub use generated::thc::control::v1;

/// The default port of the controller.
pub const DEFAULT_PORT: u16 = 9700;
