//! The controller of THC's aggregators: manages jobs in switches and software parameter servers by P4Runtime.
//!
//! * `Schema`: turns rows into entries with the numbers of the program's P4Info;
//! * `Target`: the connection to an aggregator;
//! * [`SwitchRows`]: the rows of an aggregator, and what to write so that the actual ones become those desired; [`plan`] says
//!   which are;
//! * [`Store`]: the jobs, their placements, and their sessions, kept over restarts;
//! * [`Daemon`]: an agent per target, the gRPC service, the metrics;
//! * `Service`: the requests that it answers.
#![forbid(unsafe_code)]

mod agent;
mod capacity;
mod config;
mod daemon;
mod diagnose;
mod error;
mod listeners;
mod live;
pub mod plan;
mod program;
mod rack;
mod schema;
mod section;
mod service;
mod spec;
mod state;
mod state_file;
mod store;
mod switch;
mod switch_rows;
mod web;

pub use config::{Config, Options, TargetConfig, declared_jobs};
pub use daemon::Daemon;
pub use error::{ControllerError, has_io};
pub use listeners::Addresses;
pub use program::ProgramShape;
pub use section::JobSection;
pub use store::Store;
pub use switch_rows::SwitchRows;
