//! The model server.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod metrics;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::error::ErrorKind;
use signal_hook::consts::{SIGINT, SIGTERM};
use thc_config::logs::{print, print_error};
use thc_model::{ModelServer, ModelServerConfig};

/// How often signals are checked.
const TICK: Duration = Duration::from_millis(50);
/// The exit status for wrong arguments.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let (flags, matches) = match cli::Flags::read() {
        Ok(read) => read,
        Err(error) => {
            let requested = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            let _ = error.print();
            return ExitCode::from(if requested { 0 } else { USAGE });
        }
    };
    if let Some(command) = flags.command {
        return commands::run(command);
    }
    let config = match flags.config(&matches) {
        Ok(config) => config,
        Err(error) => {
            print_error(format_args!("thc-model: {error}"));
            return ExitCode::from(USAGE);
        }
    };
    flags.logs.start();
    match run(config, flags.metrics) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            flags.logs.failure("thc-model", format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(config: ModelServerConfig, metrics: Option<SocketAddr>) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second signal ends the process at once, in case the first one has no effect.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("cannot handle signals")?;
    }
    let server = Arc::new(ModelServer::start(config)?);
    let endpoint = metrics.map(|at| metrics::serve(at, Arc::clone(&server))).transpose()?;
    // A closed stdout does not stop the server.
    if let Some(endpoint) = &endpoint {
        let _ = print(format_args!("metrics http://{}/metrics", endpoint.local()));
    }
    let _ = print(format_args!("ready {}", server.local()));
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(TICK);
    }
    drop(endpoint);
    let server = Arc::into_inner(server).context("the metrics' thread has not ended")?;
    let totals = server.shutdown()?;
    let _ = print(serde_json::to_string(&totals)?);
    Ok(())
}
