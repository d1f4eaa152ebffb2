//! Sessions of static jobs (P22–P26): [`Joiner`] is the worker's side, [`Joiners`] its
//! side towards all shares of a server, [`Registry`] the parameter server's side. Neither does I/O or reads a
//! clock.
//!
//! A job has its members by one of three policies, fixed, rack and follower; `seating` has the table of what
//! each makes of an event.

mod action;
mod claims;
mod fixed;
mod follower;
mod guesses;
mod job;
mod joiner;
mod joiners;
mod peer;
mod rack;
mod registry;
mod seating;
mod static_job;
mod uplink;

pub use action::Action;
pub use joiner::{JoinError, JoinEvent, Joiner};
pub use joiners::Joiners;
pub use registry::{Registry, SessionMember};
pub use static_job::{Root, StaticJob};
