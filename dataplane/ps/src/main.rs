//! The software parameter server.
#![forbid(unsafe_code)]

mod cli;
mod metrics;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::error::ErrorKind;
use signal_hook::consts::{SIGINT, SIGTERM};
use thc_config::logs::{LogFlags, print, print_error};
use thc_ps::{Server, report};

/// How often the program checks for signals and for a failure of the server.
const TICK: Duration = Duration::from_millis(50);
/// Exit status of wrong flags and configuration.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let flags = match cli::Flags::read() {
        Ok(flags) => flags,
        Err(error) => {
            let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            let _ = error.print();
            return ExitCode::from(if is_help { 0 } else { USAGE });
        }
    };
    let (json, logs) = (flags.json, flags.logs);
    let file = flags.config.clone();
    let config = match flags.options().and_then(|options| options.validate()) {
        Ok(config) => config,
        Err(error) => {
            let file = file.filter(|_| !matches!(error, thc_ps::ConfigError::Read { .. }));
            match file {
                Some(file) => print_error(format_args!("thc-ps: {}: {error}", file.display())),
                None => print_error(format_args!("thc-ps: {error}")),
            }
            return ExitCode::from(USAGE);
        }
    };
    logs.start();
    match run(config, json, logs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            logs.failure("thc-ps", format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(config: thc_ps::ServerConfig, json: bool, logs: LogFlags) -> anyhow::Result<()> {
    let stop = handle_signals().context("cannot handle signals")?;
    let http = config.http;
    let server = Arc::new(Server::start(config)?);
    let endpoint = http.map(|at| metrics::serve(at, Arc::clone(&server))).transpose()?;
    let mut greeting = report::greeting(server.config(), server.local());
    let mut ready = format!("ready {}", server.local());
    if let Some(p4runtime) = server.p4runtime() {
        greeting += &format!(", P4Runtime on {p4runtime}");
        ready = format!("p4runtime {p4runtime}\n{ready}");
    }
    if let Some(endpoint) = &endpoint {
        ready = format!("metrics http://{}/metrics\n{ready}", endpoint.local());
    }
    // A closed stdout does not stop the server.
    if json {
        logs.line(&greeting);
        let _ = print(&ready);
    } else {
        let _ = print(format_args!("{greeting}\n{ready}"));
    }
    while !stop.load(Ordering::Relaxed) && !server.has_failed() {
        std::thread::sleep(TICK);
    }
    let failure = server.failure();
    // The endpoint shares the server.
    drop(endpoint);
    let totals = match Arc::try_unwrap(server) {
        Ok(server) => server.shutdown(),
        Err(server) => server.stats(),
    };
    let _ = print(if json {
        serde_json::to_string(&totals).context("cannot write the totals")?
    } else {
        report::table(&totals).trim_end().to_owned()
    });
    failure.map_or(Ok(()), |error| Err(error.into()))
}

/// A flag that signals set: the server is to stop.
fn handle_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second one ends the process at once, should the first get stuck.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
