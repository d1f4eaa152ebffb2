//! `target`: the switches and software parameter servers.

use super::connection::Connection;
use super::grid::Grid;
use super::terminal::{Failure, print, print_json};
use clap::Subcommand;
use thc_control_proto::v1::{ListTargetsRequest, Target};

/// The commands about targets, which are named in the configuration.
#[derive(Clone, Debug, Subcommand)]
pub enum TargetCommand {
    /// List all targets, and why those that are away do not answer
    List,
}

/// Runs the command.
pub async fn run(command: TargetCommand, connection: Connection, json: bool) -> Result<(), Failure> {
    let TargetCommand::List = command;
    let list = connection.client().list_targets(ListTargetsRequest {}).await?.into_inner();
    if json { print_json(&list) } else { print(&list_text(&list.targets)) }
}

fn list_text(targets: &[Target]) -> String {
    let mut grid = Grid::new(&["TARGET", "P4RUNTIME", "AGGREGATOR", "STATE", ">SLOTS USED"]);
    let mut reasons = String::new();
    for target in targets {
        let slots = target.uses.iter().find(|of| of.what == "data slots");
        grid.row([
            target.name.clone(),
            target.address.clone(),
            target.aggregator.clone(),
            if target.connected { "connected" } else { "away" }.to_owned(),
            slots.map(|slots| format!("{}/{}", slots.used, slots.all)).unwrap_or_default(),
        ]);
        if !target.connected && !target.error.is_empty() {
            reasons += &format!("target {} is away: {}\n", target.name, target.error);
        }
    }
    format!("{grid}{reasons}")
}
