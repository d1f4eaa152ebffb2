//! `diagnose`: what is wrong with jobs, and the remedy.

use super::connection::Connection;
use super::terminal::{Failure, print, print_json};
use clap::Args;
use futures_util::future::join_all;
use thc_control_proto::v1::finding::Severity;
use thc_control_proto::v1::{DiagnoseRequest, Finding, ListJobsRequest};
use thc_controller::JobSection;

const EXAMPLES: &str = "\
Example:
    thc-controller diagnose train

It compares counters that it reads for four seconds.

Exit status: 0 nothing is wrong; 1 a problem was found, or the controller did not answer.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DiagnoseFlags {
    /// The jobs' names [default: all jobs]
    #[arg(value_name = "JOB")]
    jobs: Vec<String>,
}

/// Prints the findings; the exit status says whether there is a problem.
pub async fn run(flags: DiagnoseFlags, connection: Connection, json: bool) -> Result<u8, Failure> {
    let mut jobs = flags.jobs;
    if jobs.is_empty() {
        let list = connection.client().list_jobs(ListJobsRequest {}).await?.into_inner();
        jobs = list.jobs.iter().map(|job| JobSection::from_job(job).name().to_owned()).collect();
    }
    let ask = |job: &String| {
        let (mut client, job) = (connection.client(), job.clone());
        async move { client.diagnose(DiagnoseRequest { job }).await }
    };
    let mut is_problem = false;
    for (job, answer) in jobs.iter().zip(join_all(jobs.iter().map(ask)).await) {
        let answer = answer?.into_inner();
        if json {
            print_json(&answer)?;
        } else {
            let heading = if jobs.len() > 1 { format!("job {job}\n") } else { String::new() };
            print(&(heading + &answer.findings.iter().map(line).collect::<String>()))?;
        }
        is_problem |= answer.findings.iter().any(|finding| finding.severity() == Severity::Problem);
    }
    Ok(u8::from(is_problem))
}

fn line(finding: &Finding) -> String {
    let mark = match finding.severity() {
        Severity::Ok => "ok",
        Severity::Note => "note",
        Severity::Problem => "PROBLEM",
    };
    let mend = if finding.mend.is_empty() { String::new() } else { format!("{:9}-> {}\n", "", finding.mend) };
    format!("{mark:<8} {}\n{mend}", finding.what)
}
