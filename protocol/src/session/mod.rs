//! How workers of a static job find each other (P22–P26): [`Joiner`] is the worker's side,
//! [`Registry`] the parameter server's. Neither does I/O or reads a clock.

mod guesses;
mod joiner;
mod present;
mod registry;

pub use joiner::{JoinError, JoinEvent, Joiner};
pub use registry::{Action, Registry, SessionMember, StaticJob};
