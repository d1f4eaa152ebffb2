//! The P4Runtime service, version 1, and P4Info: messages, gRPC client and server.
//!
//! No published crate has them. The `.proto` files under `proto/` declare the part that an aggregator and its
//! controller use, with the names and numbers of the P4Runtime specification, so that any P4Runtime peer
//! understands them: BMv2's `simple_switch_grpc`, Stratum, and p4lang's Python client.
//!
//! * [`v1`]: the service; `v1::p4_runtime_client` and `v1::p4_runtime_server` with the feature `service`, a default;
//! * [`config`]: P4Info, which [`p4info::parse`] reads in binary form, and in text with the feature `text`, a default;
//! * [`rpc`]: the status that a Write's failure carries;
//! * [`bytes`]: the shortest form of numbers, which the specification wants.
#![forbid(unsafe_code)]

pub mod bytes;
pub mod p4info;
mod p4info_error;
#[cfg(feature = "text")]
mod p4info_text;

#[allow(missing_docs, clippy::all, clippy::pedantic, clippy::cast_lossless, unused_qualifications)]
mod generated {
    include!("../generated/modules.rs");
}

pub use generated::google::rpc;
pub use generated::p4::config::v1 as config;
pub use generated::p4::v1;

/// The version of the specification that the messages follow.
pub const API_VERSION: &str = "1.4.1";
