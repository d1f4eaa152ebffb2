//! `target`: the switches and software parameter servers.

use super::connection::Connection;
use super::grid::Grid;
use super::{Failure, print, print_json};
use clap::Subcommand;
use thc_control_proto::v1::{ListTargetsRequest, Target};

/// What can be asked of targets; which there are is in the configuration.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// List all targets, and why one is away
    List,
}

/// Lists them.
pub async fn list(connection: Connection, json: bool) -> Result<(), Failure> {
    let list = connection.client().list_targets(ListTargetsRequest {}).await?.into_inner();
    if json { print_json(&list) } else { print(&listed(&list.targets)) }
}

fn listed(targets: &[Target]) -> String {
    let mut grid = Grid::new(&["TARGET", "P4RUNTIME", "AGGREGATOR", "STATE", ">SLOTS USED"]);
    let mut reasons = String::new();
    for target in targets {
        grid.row([
            target.name.clone(),
            target.address.clone(),
            target.aggregator.clone(),
            if target.connected { "connected" } else { "away" }.to_owned(),
            format!("{}/{}", target.data_slots_used, target.data_slots),
        ]);
        if !target.connected && !target.error.is_empty() {
            reasons += &format!("target {} is away: {}\n", target.name, target.error);
        }
    }
    format!("{grid}{reasons}")
}
