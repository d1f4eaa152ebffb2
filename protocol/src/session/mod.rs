//! How workers of a static job find each other (P22–P26): [`Joiner`] is the worker's side, [`Joiners`] its
//! side towards all shares of a server, [`Registry`] the parameter server's side. Neither does I/O or reads a
//! clock.

mod action;
mod boundaries;
mod changing;
mod follower;
mod guesses;
mod job;
mod joiner;
mod joiners;
mod present;
mod rack;
mod registry;
mod roster;
mod static_job;
mod upper;

pub use action::{Action, Happening};
pub use joiner::{JoinError, JoinEvent, Joiner};
pub use joiners::Joiners;
pub use registry::{Registry, SessionMember};
pub use static_job::{Root, Sizes, StaticJob};
