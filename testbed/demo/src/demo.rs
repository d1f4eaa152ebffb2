//! `thc demo`: a small language model trained data-parallel through THC, and the same run
//! with exact averaging to compare with.

pub mod adam;
pub mod controller;
pub mod curve;
pub mod event;
pub mod exact;
pub mod memif;
pub mod model;
pub mod plan;
pub mod processes;
pub mod report;
pub mod run;
pub mod server;
pub mod shared;
pub mod switch;
pub mod text;
pub mod training;

use std::path::Path;
use std::process::Command;

use thc_netns::Host;

/// Makes a command run on a host, with the same additions to its environment.
pub fn on_host(host: &Host, command: &Command) -> Command {
    let mut there = host.command(Path::new(command.get_program()));
    there.args(command.get_args());
    there.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    there
}
