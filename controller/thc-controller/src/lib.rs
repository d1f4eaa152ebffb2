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

mod addresses;
mod agent;
mod capacity;
mod config;
mod counted;
mod daemon;
mod device_config;
mod diagnose;
mod difference;
mod error;
mod listeners;
mod live;
mod lookup_entries;
mod notify;
pub mod plan;
mod program;
mod queues;
mod rack;
mod refusal;
mod schema;
mod section;
mod service;
mod spec;
mod state;
mod state_file;
mod store;
mod switch_rows;
mod target;
mod tls;
mod web;

pub use addresses::Addresses;
pub use config::{Config, Options, TargetConfig, declared_jobs};
pub use daemon::Daemon;
pub use error::{ControllerError, has_io};
pub use program::ProgramShape;
pub use section::{CHANGEABLE, JobSection};
pub use store::Store;
pub use switch_rows::SwitchRows;
