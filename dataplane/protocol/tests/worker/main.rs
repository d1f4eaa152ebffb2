//! The worker, rule by rule (P4, P14, P18–P21), against a script instead of an aggregator.
#![allow(missing_docs, clippy::unwrap_used)]

mod answers;
mod driven;
mod endings;
mod repeating;
mod runs;
mod sending;
