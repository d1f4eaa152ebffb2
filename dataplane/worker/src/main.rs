//! `thc-worker`: all-reduce of tensors in files, or of made-up ones, from the command line.

mod cli;

use clap::error::ErrorKind;
use cli::options::{Flags, Order};
use cli::signals::Stopped;
use std::process::ExitCode;
use thc_config::logs::print_error;

/// Exit status of wrong flags and configuration.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let flags = match Flags::read() {
        Ok(flags) => flags,
        Err(error) => {
            let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // Nothing is left to do if the terminal is gone.
            let _ = error.print();
            return ExitCode::from(if is_help { 0 } else { USAGE });
        }
    };
    let logs = flags.logs;
    let order = match flags.order() {
        Ok(order) => order,
        Err(error) => {
            print_error(format_args!("thc-worker: {error}"));
            return ExitCode::from(USAGE);
        }
    };
    logs.start();
    let done = match order {
        Order::Run(plan) => cli::run::run(&plan).map(|()| true),
        Order::Doctor(visit) => cli::doctor::run(&visit),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            logs.failure("thc-worker", format_args!("{error:#}"));
            let stopped = error.downcast_ref().map(Stopped::status);
            stopped.map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}
