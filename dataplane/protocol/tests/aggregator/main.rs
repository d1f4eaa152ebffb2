//! The aggregator, rule by rule (P6–P17, P21).
#![allow(missing_docs, clippy::unwrap_used)]

mod answers;
mod collectives;
mod configuration;
mod marks;
mod membership;
mod rounds;
mod setup;
