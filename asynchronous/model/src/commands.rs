//! The commands of an administrator.

use std::process::ExitCode;

use serde_json::{Value, json};
use thc_model::{Admin, Archive, ModelError, ModelInfo};

use crate::cli::Command;

/// Runs the command and prints its outcome. Returns the exit status: 0, 2 for wrong arguments, 1 for a failure.
pub fn run(command: &Command) -> ExitCode {
    match obey(command) {
        Ok(text) => {
            crate::print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("thc-model: {error}");
            let usage = matches!(error, ModelError::Config(_) | ModelError::Read { .. });
            if usage { ExitCode::from(crate::USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn obey(command: &Command) -> Result<String, ModelError> {
    let servers = command.servers();
    let config = servers.config()?;
    // Errors that need no server are reported before connecting.
    let archive = match command {
        Command::Import { file, .. } => Some(Archive::read(file)?),
        _ => None,
    };
    let mut admin = Admin::connect(&config)?;
    let describe = |model: &str, did: &str, numbers: &[u64]| {
        let states: Vec<String> = numbers.iter().map(u64::to_string).collect();
        format!("{did} {model}: state {}", states.join(", "))
    };
    Ok(match command {
        Command::Models { .. } => {
            let all = admin.models()?;
            let all: Vec<(usize, ModelInfo)> = (0..)
                .zip(all)
                .flat_map(|(server, models)| models.into_iter().map(move |model| (server, model)))
                .collect();
            if servers.json {
                json!(all.iter().map(|(server, model)| model_json(*server, model)).collect::<Vec<_>>())
                    .to_string()
            } else {
                table(&config.servers, &all)
            }
        }
        Command::Show { model, .. } => {
            let all = admin.models()?;
            let found = (0..).zip(&all).filter_map(|(server, models)| {
                let found = models.iter().find(|one| one.name == *model)?;
                Some(model_json(server, found))
            });
            let found: Vec<Value> = found.collect();
            if found.is_empty() {
                return Err(ModelError::Config(format!(
                    "there is no model {model}: thc-model models lists them"
                )));
            }
            serde_json::to_string_pretty(&found).map_err(|error| ModelError::Config(error.to_string()))?
        }
        Command::Export { model, file, .. } => {
            let archive = admin.export(model)?;
            archive.write(file)?;
            format!(
                "exported {model}: {} coordinates at version {}",
                archive.numbers().len(),
                archive.version()
            )
        }
        Command::Import { model, .. } => {
            let archive = archive.ok_or_else(|| ModelError::Config("there is no file".to_owned()))?;
            admin.import(model, &archive)?;
            format!(
                "imported {model}: {} coordinates at version {}",
                archive.numbers().len(),
                archive.version()
            )
        }
        Command::Checkpoint { model, .. } => describe(model, "kept", &admin.checkpoint(model)?),
        Command::Rollback { model, to, .. } => describe(model, "put back", &admin.rollback(model, *to)?),
        Command::Delete { model, .. } => {
            admin.delete(model)?;
            format!("deleted {model}")
        }
    })
}

fn model_json(server: usize, model: &ModelInfo) -> Value {
    json!({
        "server": server,
        "name": model.name,
        "spec": model.spec,
        "version": model.version.0,
        "quickest": model.version.1,
        "kept": model.kept_states,
        "shards": model.shards,
    })
}

fn table(servers: &[String], all: &[(usize, ModelInfo)]) -> String {
    let mut text =
        format!("{:<20} {:<24} {:>12} {:>10} {}", "SERVER", "MODEL", "COORDINATES", "VERSION", "KEPT");
    for (server, model) in all {
        let kept: Vec<String> =
            model.kept_states.iter().map(|kept| format!("{}@{}", kept.number, kept.version)).collect();
        let kept = if kept.is_empty() { "-".to_owned() } else { kept.join(" ") };
        let (name, version) = (&model.name, model.version.0);
        let coordinates = model.spec.coordinates;
        text += &format!("\n{:<20} {name:<24} {coordinates:>12} {version:>10} {kept}", servers[*server]);
    }
    text
}
