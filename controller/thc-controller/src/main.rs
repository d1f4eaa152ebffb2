//! The program `thc-controller`.

use anyhow::Context;
use clap::Parser;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use thc_controller::{ControllerError, Daemon, Options};
use tokio::signal::unix::{SignalKind, signal};

const EXAMPLES: &str = "\
Example: BMv2 with two workers behind ports 1 and 2, tried as written:
    simple_switch_grpc --no-p4 -i 1@s1 -i 2@s2 -- --grpc-server-addr 127.0.0.1:9559 --cpu-port 255
    thc-controller --config thc-controller.example.toml
    thc-worker --ps 10.9.0.254:9000 --job 1 --worker 0 …

Output: `ready ADDRESS:PORT` on stdout once workers can join; events on stderr (RUST_LOG=debug for more).
Exit status: 0 stopped by a signal; 1 cannot serve, for example because the switch is not there;
2 wrong flags or configuration.";

/// Controller of a THC switch: writes jobs into it by P4Runtime and lets workers join.
#[derive(Parser, Debug)]
#[command(name = "thc-controller", version, after_help = EXAMPLES, max_term_width = 100)]
struct Flags {
    /// Read this TOML file
    #[arg(long, short, value_name = "PATH")]
    config: PathBuf,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info")),
        )
        .with_writer(std::io::stderr)
        .init();
    let config = match Options::read(&flags.config).and_then(|options| options.validate()) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("thc-controller: {error}");
            return ExitCode::from(if matches!(error, ControllerError::Read { .. }) { 1 } else { 2 });
        }
    };
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("thc-controller: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: thc_controller::Config) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).context("no signals")?;
        let mut terminate = signal(SignalKind::terminate()).context("no signals")?;
        let stop = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        let ready = |at: thc_controller::Addresses| {
            println!("ready {}", at.listen);
            // Whoever waits for it reads a pipe; one that is closed is nobody's loss.
            let _ = std::io::stdout().flush();
        };
        Ok(Daemon::new(config).run(stop, ready).await?)
    })
}
