//! How sessions begin, go on and end (P22–P25): Joiner and Registry against each other.
#![allow(missing_docs, clippy::unwrap_used)]

mod joining;
mod leaving;
mod restarting;
mod shares;
mod simulation;
mod usurping;
