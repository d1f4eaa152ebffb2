//! `events`: what has happened of late, and why.

use super::connection::Connection;
use super::failure::Failure;
use super::terminal::{print, print_json};
use clap::Args;
use std::time::{Duration, UNIX_EPOCH};
use thc_control_proto::v1::{Event, ListEventsRequest};

const EXAMPLES: &str = "\
Examples:
    thc-controller events
    thc-controller events --job train --watch

The controller keeps the last 1000 events since it started; its log has all of them.";

/// Between two questions.
const LOOK: Duration = Duration::from_secs(1);

/// Which.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct EventFlags {
    /// Only events of this job
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    job: String,
    /// Only events of this target
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    target: String,
    /// Also print new events as they happen, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

/// Prints them, the oldest first.
pub async fn run(flags: EventFlags, connection: Connection, json: bool) -> Result<(), Failure> {
    let mut after = 0;
    loop {
        let asked = ListEventsRequest { job: flags.job.clone(), target: flags.target.clone(), after };
        let answer = connection.client().list_events(asked).await?.into_inner();
        after = answer.events.last().map_or(after, |event| event.number);
        if json && !(flags.watch && answer.events.is_empty()) {
            print_json(&answer)?;
        } else {
            print(&answer.events.iter().map(line).collect::<String>())?;
        }
        if !flags.watch {
            return Ok(());
        }
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

fn line(event: &Event) -> String {
    let time = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(event.time));
    let mark = if event.warning { "warning" } else { "" };
    format!("{time} {mark:<7} {}\n", event.what)
}
