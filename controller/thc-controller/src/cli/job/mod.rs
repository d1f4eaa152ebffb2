//! `job`: create, list, show, delete.

mod text;

use text::{description, list_text};

use super::connection::Connection;
use super::terminal::{Failure, ask, print, print_json};
use clap::{Arg, Args, Subcommand};
use serde_json::Value;
use thc_config::values::plural;
use thc_control_proto::v1::control_client::ControlClient;
use thc_control_proto::v1::{CreateJobRequest, DeleteJobRequest, GetJobRequest, Job, ListJobsRequest};
use thc_controller::JobSection;
use tonic::transport::Channel;

const CREATE: &str = "\
Examples:
  Four workers; the best table for four is chosen:
    thc-controller job create train --workers 4

  The paper's table and partial aggregation, on one target of several:
    thc-controller job create lossy --workers 8 --granularity 30 --fraction 1/32 \\
        --quorum 7 --policy best-effort --deadline 50ms --target ps1

  Split the slots over servers beside the workers:
    thc-controller job create lm --workers 4 --servers h1,h2,h3,h4

  With number and secret, workers can join without asking the controller:
    THC_COOKIE=0x1234abcd thc-controller job create fixed --workers 2 --number 7";

/// The commands about jobs.
#[derive(Subcommand, Debug)]
pub enum JobCommand {
    /// Create a job on all its targets, or on none
    #[command(after_help = CREATE, mut_args(create_flag))]
    Create(Box<JobSection>),
    /// List all jobs
    List,
    /// Show one job: its parameters, and its placement on each target
    Show(NameFlags),
    /// End the sessions of jobs and remove the jobs from their targets
    Delete(DeleteFlags),
}

/// Arguments of `job show`.
#[derive(Args, Debug)]
pub struct NameFlags {
    /// The job's name
    name: String,
}

/// Arguments of `job delete`.
#[derive(Args, Debug)]
pub struct DeleteFlags {
    /// The jobs' names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Do not ask for confirmation, even if a session runs
    #[arg(long, short)]
    yes: bool,
}

/// A flag of `job create`: says which go together, and hides those that a controller does not use.
fn create_flag(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "workers" => arg.required_unless_present("racks"),
        "granularity" => arg.requires("fraction"),
        "fraction" => arg.requires("granularity"),
        "racks" => arg.requires_all(["rack", "root", "root_mac"]).help("Workers of each rack, such as 8,8"),
        "job" => arg.long("number").help("The job's number, 0 to 65535 [default: one that is free]"),
        "bits" => arg.help("Bit budget b: bits per coordinate sent up, 1 to 4 [default: 4]"),
        "data_slots" => arg.help(
            "Slots for coordinates; workers may have half as many packets in flight [default: 256; more over several servers]",
        ),
        "lane" => arg.help(
            "Bits per summed coordinate sent down, 4 to 16; workers × granularity must fit [default: 8, or 16 with more workers than 8 bits hold]",
        ),
        // The controller numbers tables.
        "table_id" => arg.hide(true),
        _ => arg,
    }
}

/// A job as JSON, its sections as objects.
fn json_of_job(job: &Job) -> Result<Value, Failure> {
    let mut value = serde_json::to_value(job).map_err(Failure::error)?;
    if let Some(object) = value.as_object_mut() {
        object.remove("section");
    }
    value["spec"] = json_of_section(&JobSection::from_job(job))?;
    Ok(value)
}

/// A section as JSON, with the keys that follow from others.
fn json_of_section(section: &JobSection) -> Result<Value, Failure> {
    let mut value = serde_json::to_value(section).map_err(Failure::error)?;
    let options = &section.options;
    for list in ["targets", "servers", "tables"] {
        if value[list].is_null() {
            value[list] = Value::Array(Vec::new());
        }
    }
    value["number"] = options.job.into();
    value["workers"] = section.workers().into();
    value["quorum"] = section.quorum().into();
    Ok(value)
}

fn show(job: Job, json: bool) -> Result<(), Failure> {
    if json { print_json(&json_of_job(&job)?) } else { print(&description(&job)) }
}

/// Runs the command.
pub async fn run(command: JobCommand, connection: Connection, json: bool) -> Result<(), Failure> {
    let mut client = connection.client();
    match command {
        JobCommand::Create(section) => {
            let section = section.to_toml().map_err(Failure::usage)?;
            show(client.create_job(CreateJobRequest { section }).await?.into_inner(), json)
        }
        JobCommand::List => {
            let list = client.list_jobs(ListJobsRequest {}).await?.into_inner();
            let jobs = list.jobs;
            if json {
                let jobs = jobs.iter().map(json_of_job).collect::<Result<Vec<Value>, _>>()?;
                print_json(&serde_json::json!({ "jobs": jobs }))
            } else {
                print(&list_text(&jobs))
            }
        }
        JobCommand::Show(NameFlags { name }) => {
            show(client.get_job(GetJobRequest { name }).await?.into_inner(), json)
        }
        JobCommand::Delete(DeleteFlags { names, yes }) => {
            for name in names {
                delete(&mut client, name, yes, json).await?;
            }
            Ok(())
        }
    }
}

async fn delete(
    client: &mut ControlClient<Channel>,
    name: String,
    yes: bool,
    json: bool,
) -> Result<(), Failure> {
    let job = match yes {
        true => Job::default(),
        false => client.get_job(GetJobRequest { name: name.clone() }).await?.into_inner(),
    };
    if let Some(place) = job.places.iter().find(|place| place.running) {
        let workers = plural(place.members.into(), "worker");
        let what = format!("job {name} runs with {workers} on {}", place.target);
        ask(&format!("{what}. End its session and delete it?"), &format!("{what}: give --yes"))?;
    }
    let answer = client.delete_job(DeleteJobRequest { name: name.clone() }).await?.into_inner();
    if json { print_json(&answer) } else { print(&format!("job {name} deleted\n")) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_control_proto::v1::JobPlace;

    fn job() -> Job {
        let section = "name = 'train'\njob = 9\nworkers = 4\nbits = 4\ngranularity = 30\nfraction = '1/32'\ndata_slots = 256\n\
                       norm_slots = 64\nquorum = 3\npolicy = 'best-effort'\ndeadline = '1500ms'\n\
                       tables = [{ bits = 2, granularity = 3, fraction = '1/8', lane = 4 }]";
        let place = |target: &str, connected| JobPlace {
            target: target.into(),
            connected,
            joined: 0b1011,
            running: true,
            data_base: 256,
            ..JobPlace::default()
        };
        Job {
            section: section.to_owned(),
            table: 2,
            tables: vec![5],
            places: vec![place("s1", true), place("s2", false)],
            created: 0,
        }
    }

    #[test]
    fn a_list_has_a_line_for_each_place() {
        let text = list_text(&[job()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("train") && lines[1].ends_with("s1      running     3/4  0"), "{text}");
        assert!(lines[1].contains("best-effort after 1s 500ms, 3 of 4 complete a sum"), "{text}");
        assert!(lines[2].starts_with('"') && lines[2].contains("away"), "{text}");
        assert!(list_text(&[]).contains("job create"));
    }

    #[test]
    fn a_job_shows_its_slots() {
        let text = description(&job());
        assert!(text.starts_with("job train, number 9, created 1970-01-01T00:00:00Z\n"), "{text}");
        assert!(text.contains("table    2: b=4 g=30 p=1/32\n  table    5: 2/4 g=3 p=1/8\n"), "{text}");
        assert!(text.contains("  error    expected NMSE 1.05e-2\n"), "{text}");
        assert!(text.contains("256-511"), "{text}");
    }
}
