//! `apply`: jobs as a file declares them.

use super::connection::Connection;
use super::terminal::{Failure, ask, print, print_json};
use clap::Args;
use std::path::PathBuf;
use thc_config::logs::print_error;
use thc_control_proto::v1::job_change::Kind;
use thc_control_proto::v1::{ApplyJobsRequest, JobChange};
use thc_controller::{ControllerError, JobSection, declared_jobs};

const EXAMPLES: &str = "\
Example:
    printf '[[job]]\\nname = \"train\"\\nworkers = 4\\n' >jobs.toml
    thc-controller apply -f jobs.toml

The file has [[job]] sections, like the controller's configuration. A job that runs is left as
it is, which counts as refused.

Exit status: 0 done, or nothing to do; 1 some or all changes were refused; 2 wrong flags or
file.";

/// Flags of `apply`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ApplyFlags {
    /// TOML file that declares the jobs
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// Delete jobs that are not in the file
    #[arg(long)]
    prune: bool,
    /// Print what would change, and change nothing
    #[arg(long)]
    plan: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

/// Shows the changes, asks for confirmation, and makes them.
pub async fn run(flags: ApplyFlags, connection: Connection, json: bool) -> Result<u8, Failure> {
    let wrong = |error: ControllerError| match error {
        ControllerError::Read { .. } => Failure::usage(error),
        error => Failure::usage(format!("{}: {error}", flags.file.display())),
    };
    let jobs = declared_jobs(&flags.file).map_err(wrong)?;
    let sections = jobs.iter().map(JobSection::to_toml).collect::<Result<_, _>>().map_err(wrong)?;
    let mut client = connection.client();
    let mut asked = ApplyJobsRequest { sections, prune: flags.prune, plan_only: true };
    let plan = client.apply_jobs(asked.clone()).await?.into_inner();
    let nothing = plan.changes.iter().all(|change| change.kind() == Kind::Unchanged);
    if flags.plan {
        if json {
            print_json(&plan)?;
        } else {
            print(&plan_text(&plan.changes))?;
        }
        return Ok(0);
    }
    if !json {
        print(&plan_text(&plan.changes))?;
    }
    if !nothing && !flags.yes {
        ask("Apply these changes?", "give --yes, or --plan to see only what would change")?;
    }
    asked.plan_only = false;
    let done = client.apply_jobs(asked).await?.into_inner();
    if json {
        print_json(&done)?;
    }
    let failed: Vec<&JobChange> = done.changes.iter().filter(|change| !change.error.is_empty()).collect();
    for change in &failed {
        print_error(format_args!("thc-controller: {}", change.error));
    }
    if failed.is_empty() && !json && !nothing {
        print("applied\n")?;
    }
    Ok(u8::from(!failed.is_empty()))
}

fn plan_text(changes: &[JobChange]) -> String {
    let mut text = String::new();
    for change in changes {
        let (mark, what) = match change.kind() {
            Kind::Unchanged => (" ", "stays as it is"),
            Kind::Create => ("+", "is created"),
            Kind::Change => ("~", "changes"),
            Kind::Delete => ("-", "is deleted"),
        };
        text += &format!("{mark} job {} {what}\n", change.job);
        text.extend(change.differences.iter().map(|difference| format!("      {difference}\n")));
    }
    if changes.is_empty() {
        text += "nothing to do: no jobs are declared\n";
    }
    text
}
