//! How workers of a static job find each other (P22–P26): [`Joiner`] is the worker's side,
//! [`Joiners`] that towards all shares of a server, [`Registry`] the parameter server's. Neither does I/O or reads a clock.

mod boundaries;
mod follower;
mod guesses;
mod job;
mod joiner;
mod joiners;
mod present;
mod registry;
mod roster;
mod upper;

pub use joiner::{JoinError, JoinEvent, Joiner};
pub use joiners::Joiners;
pub use registry::{Action, Happening, Registry, SessionMember, StaticJob};
pub use roster::Sizes;
pub use upper::Root;
