//! Controller of THC's switches: writes jobs into a switch by P4Runtime.
//!
//! * [`tables`]: the rows of the switch program's tables, one file each;
//! * [`Schema`]: turns rows into entries with the numbers of the program's P4Info;
//! * [`Target`]: the connection to a switch;
//! * [`Wanted`]: everything that a switch should hold, and what to write so that it does;
//! * [`Daemon`]: takes JOINs from the switch and keeps its sessions.
#![forbid(unsafe_code)]

mod config;
mod daemon;
mod error;
mod frame;
mod place;
mod schema;
pub mod tables;
mod target;
mod wanted;

pub use config::{Config, Options, StationOptions, TargetConfig, TargetOptions};
pub use daemon::Daemon;
pub use error::ControllerError;
pub use place::{DATA_SLOTS, MAX_JOBS, NORM_SLOTS, PlacedJob, place};
pub use schema::Schema;
pub use target::{Event, Target};
pub use wanted::{Group, Wanted};
