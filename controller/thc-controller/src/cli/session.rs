//! `session` and `worker`: what an operator ends.

use super::connection::Connection;
use super::failure::Failure;
use super::terminal::{print, print_json};
use clap::Subcommand;
use thc_control_proto::v1::{EndSessionRequest, EvictWorkerRequest};

/// What can be done with sessions.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// End the session of a job and keep the job: its workers are told, and join anew or fail
    End {
        /// The job's name
        job: String,
    },
}

/// What can be done with workers.
#[derive(Debug, Subcommand)]
pub enum WorkerCommand {
    /// Take a worker's number away and end the session; the controller no longer admits that process
    Evict {
        /// The job's name
        job: String,
        /// The worker's number, as `counters` shows it
        worker: u32,
    },
}

fn end_text(job: &str, targets: &[String]) -> String {
    match targets {
        [] => format!("no session of job {job} runs\n"),
        targets => format!("the session of job {job} on {} is over\n", targets.join(", ")),
    }
}

/// Ends a session.
pub async fn session(command: SessionCommand, connection: Connection, json: bool) -> Result<(), Failure> {
    let SessionCommand::End { job } = command;
    let answer = connection.client().end_session(EndSessionRequest { job: job.clone() }).await?.into_inner();
    if json { print_json(&answer) } else { print(&end_text(&job, &answer.targets)) }
}

/// Sends a worker away.
pub async fn worker(command: WorkerCommand, connection: Connection, json: bool) -> Result<(), Failure> {
    let WorkerCommand::Evict { job, worker } = command;
    let asked = EvictWorkerRequest { job: job.clone(), worker };
    let answer = connection.client().evict_worker(asked).await?.into_inner();
    if json {
        return print_json(&answer);
    }
    print(&format!("worker {worker} of job {job} is sent away\n{}", end_text(&job, &answer.targets)))
}
