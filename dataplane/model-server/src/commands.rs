//! The commands of an administrator.

use std::process::ExitCode;

use serde_json::Value;
use thc_config::logs::{print, print_error};
use thc_model::{Admin, ModelError};

use crate::cli::Command;

/// Runs the command and prints its outcome. Returns the exit status: 0, 2 for wrong arguments, 1 for a failure.
pub fn run(command: Command) -> ExitCode {
    match execute(command) {
        Ok(text) => {
            // The outcome stands, whoever reads it.
            let _ = print(text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            print_error(format_args!("thc-model: {error}"));
            if matches!(error, ModelError::Config(_)) {
                ExitCode::from(crate::USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn execute(command: Command) -> Result<String, ModelError> {
    let (Command::List { of, .. } | Command::Show { of, .. } | Command::Delete { of, .. }) = &command;
    let mut admin = Admin::connect(&of.config()?)?;
    if let Command::Delete { model, .. } = &command {
        admin.delete(model)?;
        return Ok(format!("deleted {model}"));
    }
    let mut all = admin.models()?;
    if let Command::Show { model, .. } = &command {
        all.retain(|one| one["name"] == model.as_str());
        if all.is_empty() {
            return Err(ModelError::Config(format!("there is no model {model}: thc-model list lists them")));
        }
    }
    if matches!(command, Command::List { json: false, .. }) {
        return Ok(table(&all));
    }
    serde_json::to_string_pretty(&all).map_err(|error| ModelError::Config(error.to_string()))
}

fn table(models: &[Value]) -> String {
    let mut text = format!("{:<24} {:>12} {:>10}", "MODEL", "COORDINATES", "VERSION");
    for model in models {
        let name = model["name"].as_str().unwrap_or_default();
        let (coordinates, version) = (&model["spec"]["coordinates"], &model["version"]);
        text += &format!("\n{name:<24} {coordinates:>12} {version:>10}");
    }
    text
}
