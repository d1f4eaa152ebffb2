//! The commands of an administrator.

use std::process::ExitCode;

use serde_json::Value;
use thc_config::help::USAGE;
use thc_config::logs::{print, print_error};
use thc_model::{Admin, ModelError};

use crate::cli::Command;

/// Runs the command and prints its outcome. Returns the exit status: 0, 2 for wrong arguments, 1 for a failure.
pub fn run(command: Command) -> ExitCode {
    match execute(command).and_then(|text| Ok(print(text)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(format_args!("thc-model: {error}"));
            if matches!(error, ModelError::Config(_)) { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn execute(command: Command) -> Result<String, ModelError> {
    let (Command::List { of, .. } | Command::Show { of, .. } | Command::Delete { of, .. }) = &command;
    let config = of.config()?;
    let mut admin = Admin::connect(&config)?;
    if let Command::Delete { model, .. } = &command {
        admin.delete(model)?;
        return Ok(format!("deleted {model}"));
    }
    let mut all = admin.models()?;
    if let Command::Show { model, .. } = &command {
        all.retain(|one| one["name"] == model.as_str());
        if all.is_empty() {
            let reason = format!("no model {model}; see thc-model list");
            return Err(ModelError::Refused { server: config.server, reason });
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
