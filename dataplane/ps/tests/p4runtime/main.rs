//! A server whose jobs a controller writes by P4Runtime.
#![allow(missing_docs, clippy::unwrap_used)]

mod arbitration;
mod batches;
mod controller;
mod counters;
mod job_rows;
mod limits;
mod packets;
mod pipeline;
#[path = "../session/mod.rs"]
mod session;
mod sums;
mod tables;
