//! Engines and an aggregator in a simulated network, in virtual time.
#![allow(clippy::unwrap_used, missing_docs)]

mod best_effort;
mod departed;
mod feedback;
mod idle;
mod last_call;
mod marks;
mod norms;
mod packed;
mod paused;
mod quorum;
mod results;
mod shares;
mod widths;
mod world;
