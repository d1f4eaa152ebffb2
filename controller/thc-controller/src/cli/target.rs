//! `target`: the switches and software parameter servers.

use super::connection::Connection;
use super::grid::Grid;
use super::terminal::{Failure, print, print_json};
use clap::{Args, Subcommand};
use std::fmt::Write;
use thc_control_proto::v1::{CompareTargetRequest, Difference, ListTargetsRequest, ReadRowsRequest, Target};

/// What can be asked of targets; which there are is in the configuration.
#[derive(Clone, Debug, Subcommand)]
pub enum TargetCommand {
    /// List all targets, and why one is away
    List,
    /// Show one target: how much of it jobs use, and when its rows were last compared
    Show(NameFlags),
    /// Print the rows and groups that a target holds now, cookies included
    Rows(NameFlags),
    /// Compare the rows that a target holds with those that were written
    ///
    /// Exit status: 0 they are as they were written; 1 they differ.
    Diff(NameFlags),
}

/// A target.
#[derive(Args, Clone, Debug)]
pub struct NameFlags {
    /// The target's name
    name: String,
}

/// Does it; the exit status.
pub async fn run(command: TargetCommand, connection: Connection, json: bool) -> Result<u8, Failure> {
    let mut client = connection.client();
    match command {
        TargetCommand::List => {
            let list = client.list_targets(ListTargetsRequest {}).await?.into_inner();
            if json { print_json(&list)? } else { print(&list_text(&list.targets))? }
        }
        TargetCommand::Show(NameFlags { name }) => {
            let list = client.list_targets(ListTargetsRequest {}).await?.into_inner();
            let target = list.targets.iter().find(|target| target.name == name);
            let target = target.ok_or_else(|| {
                Failure::error(format!("there is no target {name:?}: see `thc-controller target list`"))
            })?;
            if json { print_json(target)? } else { print(&description(target))? }
        }
        TargetCommand::Rows(NameFlags { name }) => {
            let answer = client.read_rows(ReadRowsRequest { target: name }).await?.into_inner();
            if json {
                print_json(&answer)?;
            } else {
                let mut grid = Grid::new(&["TABLE", "KEY", "ACTION"]);
                answer.rows.into_iter().for_each(|row| grid.row([row.table, row.key, row.action]));
                print(&grid.to_string())?;
            }
        }
        TargetCommand::Diff(NameFlags { name }) => {
            let asked = CompareTargetRequest { target: name.clone() };
            let answer = client.compare_target(asked).await?.into_inner();
            let same = answer.differences.is_empty();
            if json {
                print_json(&answer)?;
            } else if same {
                print(&format!("target {name} holds what was written\n"))?;
            } else {
                print(&answer.differences.iter().map(line).collect::<String>())?;
            }
            return Ok(u8::from(!same));
        }
    }
    Ok(0)
}

fn line(difference: &Difference) -> String {
    let row = difference.row.clone().unwrap_or_default();
    let desired = match difference.desired.as_str() {
        "" => String::new(),
        desired => format!(" instead of {desired}"),
    };
    format!("{:<8} {} [{}] {}{desired}\n", difference.kind, row.table, row.key, row.action)
}

fn state(target: &Target) -> &'static str {
    if target.connected { "connected" } else { "away" }
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
            state(target).to_owned(),
            slots.map(|slots| format!("{}/{}", slots.used, slots.all)).unwrap_or_default(),
        ]);
        if !target.connected && !target.error.is_empty() {
            reasons += &format!("target {} is away: {}\n", target.name, target.error);
        }
    }
    format!("{grid}{reasons}")
}

fn description(target: &Target) -> String {
    let mut text = format!("target {}: {}\n", target.name, state(target));
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "  {key:<11} {value}");
    };
    if !target.error.is_empty() {
        line("error", target.error.clone());
    }
    line("p4runtime", target.address.clone());
    line("aggregator", target.aggregator.clone());
    let compared = match target.compared {
        Some(seconds) => format!("{seconds:.0} s ago"),
        None => "not yet".to_owned(),
    };
    line("rows", format!("compared {compared}; repaired {} times", target.repairs));
    let mut grid = Grid::new(&["ROOM", ">USED", ">ALL"]);
    for of in &target.uses {
        grid.row([of.what.clone(), of.used.to_string(), of.all.to_string()]);
    }
    text + &grid.to_string()
}
