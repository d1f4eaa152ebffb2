//! `diagnose`: what is wrong, and the mend.

use super::connection::Connection;
use super::terminal::{Failure, print, print_json};
use clap::Args;
use thc_control_proto::v1::finding::Severity;
use thc_control_proto::v1::{DiagnoseRequest, Finding};

const EXAMPLES: &str = "\
Example:
    thc-controller diagnose train

It reads the counters for four seconds.

Exit status: 0 nothing is wrong; 1 a problem was found, or it could not be asked.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DiagnoseFlags {
    /// The job's name
    job: String,
}

/// Prints the findings; the exit status says whether there is a problem.
pub async fn run(flags: DiagnoseFlags, connection: Connection, json: bool) -> Result<u8, Failure> {
    let answer = connection.client().diagnose(DiagnoseRequest { job: flags.job }).await?.into_inner();
    if json {
        print_json(&answer)?;
    } else {
        print(&answer.findings.iter().map(line).collect::<String>())?;
    }
    let problem = answer.findings.iter().any(|finding| finding.severity() == Severity::Problem);
    Ok(u8::from(problem))
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
