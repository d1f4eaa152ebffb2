//! How sessions begin, go on and end (P22–P25): Joiner and Registry against each other.
#![allow(missing_docs, clippy::unwrap_used)]

mod changing;
mod joining;
mod leaving;
mod parties;
mod restarting;
#[allow(dead_code, reason = "simulations of groups use all of it")]
#[path = "../simulation/rng.rs"]
mod rng;
mod shares;
mod simulation;
mod usurping;
