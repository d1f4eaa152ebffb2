//! Seeded simulations of whole groups: workers, a faulty network, an aggregator that forgets.
#![allow(missing_docs, clippy::unwrap_used)]

mod client;
mod failures;
mod lossy_policies;
mod numbers;
mod plan;
mod racks;
mod refused;
mod reliable;
mod scenario;
mod scene;
