//! The software parameter server.
#![forbid(unsafe_code)]

mod cli;
#[cfg_attr(not(feature = "http"), path = "no_http.rs")]
mod metrics;

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::error::ErrorKind;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use thc_config::logs::{LogFlags, print_error};
use thc_ps::{Interval, Server, ServerOptions, ServerStats, report};

/// How often signals and the server's health are looked at.
const TICK: Duration = Duration::from_millis(50);
/// Exit status: what was asked makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let flags = match cli::Flags::read() {
        Ok(flags) => flags,
        Err(error) => {
            let told = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            let _ = error.print();
            return ExitCode::from(if told { 0 } else { USAGE });
        }
    };
    let (json, logs) = (flags.json, flags.logs);
    let file = flags.config.clone();
    let configured = flags.options().and_then(|options| Ok((options.validate()?, options)));
    let (config, options) = match configured {
        Ok(configured) => configured,
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
    match run(config, &options, json, logs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            logs.failure("thc-ps", format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(
    config: thc_ps::ServerConfig,
    options: &ServerOptions,
    json: bool,
    logs: LogFlags,
) -> anyhow::Result<()> {
    let (stop, reread) = handle_signals(&config).context("cannot handle signals")?;
    let http = config.http;
    let server = Arc::new(Server::start(config)?);
    let endpoint = http.map(|at| metrics::serve(at, Arc::clone(&server))).transpose()?;
    if let Some(path) = &options.stats_json {
        // Better now than after hours that it cannot be.
        save(path, &server.stats())?;
    }
    let mut greeting = report::greeting(server.config(), server.local());
    let mut ready = format!("ready {}", server.local());
    if let Some(p4runtime) = server.p4runtime() {
        greeting += &format!(", P4Runtime on {p4runtime}");
        ready = format!("p4runtime {p4runtime}\n{ready}");
    }
    if let Some(endpoint) = &endpoint {
        ready = format!("metrics http://{}/metrics\n{ready}", endpoint.local());
    }
    if json {
        logs.line(&greeting);
        print(&ready);
    } else {
        print(&format!("{greeting}\n{ready}"));
    }
    let interval = options.stats_interval.map(|Interval(time)| time.max(TICK));
    let mut last = server.stats();
    // So far away that there is no such time is never.
    let mut next = interval.and_then(|time| Instant::now().checked_add(time));
    while !stop.load(Ordering::Relaxed) && !server.has_failed() {
        std::thread::sleep(TICK);
        if reread.swap(false, Ordering::Relaxed)
            && let Some(certificates) = server.certificates()
        {
            certificates.ask();
        }
        if let (Some(due), Some(interval)) = (next, interval)
            && Instant::now() >= due
        {
            let now = server.stats();
            logs.line(report::line(&last, &now));
            if let Some(path) = &options.stats_json {
                // A full disk must not stop the aggregation; the last write tells whether it lasts.
                if let Err(error) = save(path, &now) {
                    tracing::warn!("{error:#}");
                }
            }
            last = now;
            next = due.max(Instant::now()).checked_add(interval);
        }
    }
    let failure = server.failure();
    // Behind it nobody else has the server.
    drop(endpoint);
    let totals = match Arc::try_unwrap(server) {
        Ok(server) => server.shutdown(),
        Err(server) => server.stats(),
    };
    print(&if json {
        serde_json::to_string(&totals).context("cannot write the totals")?
    } else {
        report::table(&totals).trim_end().to_owned()
    });
    if let Some(path) = &options.stats_json {
        save(path, &totals)?;
    }
    failure.map_or(Ok(()), |error| Err(error.into()))
}

/// Flags that signals set: that the server is to stop, and that it is to read its certificates again.
fn handle_signals(config: &thc_ps::ServerConfig) -> std::io::Result<(Arc<AtomicBool>, Arc<AtomicBool>)> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second one ends the process at once, should the first get stuck.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let reread = Arc::new(AtomicBool::new(false));
    // A server that was started at a terminal ends with it, unless it has something to read.
    if config.p4runtime.as_ref().is_some_and(|p4runtime| p4runtime.tls.is_some())
        || !std::io::stdin().is_terminal()
    {
        signal_hook::flag::register(SIGHUP, Arc::clone(&reread))?;
    }
    Ok((stop, reread))
}

/// Prints a line; nobody may be listening, which is no reason to stop.
fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Writes statistics so that a reader finds either the old or the new file, complete.
fn save(path: &Path, stats: &ServerStats) -> anyhow::Result<()> {
    let write = || {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = path.with_file_name(name);
        fs::write(&new, serde_json::to_vec_pretty(stats)?)?;
        fs::rename(&new, path)
    };
    write().with_context(|| format!("cannot write statistics to {}", path.display()))
}
