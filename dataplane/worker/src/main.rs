//! `thc-worker`: all-reduce of tensors in files, or of made-up ones, from the command line.

mod cli;

use cli::options::{Flags, Order};
use cli::signals::Stopped;
use std::process::ExitCode;
use thc_config::help::USAGE;
use thc_config::logs::print_error;

fn main() -> ExitCode {
    let flags = match Flags::read() {
        Ok(flags) => flags,
        Err(stop) => return stop.print(),
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
