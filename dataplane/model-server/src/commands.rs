//! The commands of an administrator.

use std::process::ExitCode;

use serde_json::{Value, json};
use thc_model::{Admin, ModelError, ModelInfo};

use crate::cli::Command;

/// Runs the command and prints its outcome. Returns the exit status: 0, 2 for wrong arguments, 1 for a failure.
pub fn run(command: Command) -> ExitCode {
    match execute(command) {
        Ok(text) => {
            crate::print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("thc-model: {error}");
            if matches!(error, ModelError::Config(_)) {
                ExitCode::from(crate::USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn execute(command: Command) -> Result<String, ModelError> {
    let (Command::List { servers, .. } | Command::Show { servers, .. } | Command::Delete { servers, .. }) =
        &command;
    let config = servers.config()?;
    let mut admin = Admin::connect(&config)?;
    if let Command::Delete { model, .. } = &command {
        admin.delete(model)?;
        return Ok(format!("deleted {model}"));
    }
    let all = config.servers.iter().zip(admin.models()?);
    let mut models: Vec<(&String, ModelInfo)> =
        all.flat_map(|(server, models)| models.into_iter().map(move |model| (server, model))).collect();
    match &command {
        Command::List { json: false, .. } => return Ok(table(&models)),
        Command::Show { model: name, .. } => models.retain(|(_, model)| model.name == *name),
        _ => {}
    }
    if let (Command::Show { model, .. }, []) = (&command, &models[..]) {
        return Err(ModelError::Config(format!("there is no model {model}: thc-model list lists them")));
    }
    let models: Vec<Value> = models.iter().map(|(server, model)| describe(server, model)).collect();
    serde_json::to_string_pretty(&models).map_err(|error| ModelError::Config(error.to_string()))
}

fn describe(server: &str, model: &ModelInfo) -> Value {
    json!({
        "server": server,
        "name": model.name,
        "spec": model.spec,
        "version": model.version.0,
        "quickest": model.version.1,
        "shards": model.shards,
    })
}

fn table(models: &[(&String, ModelInfo)]) -> String {
    let mut text = format!("{:<20} {:<24} {:>12} {:>10}", "SERVER", "MODEL", "COORDINATES", "VERSION");
    for (server, model) in models {
        let ModelInfo { name, spec, version, .. } = model;
        text += &format!("\n{server:<20} {name:<24} {:>12} {:>10}", spec.coordinates, version.0);
    }
    text
}
