//! `backup` and `restore`: the file of jobs.

use super::failure::Failure;
use super::terminal::print;
use clap::Args;
use std::path::PathBuf;
use thc_controller::{back_up, restore as put_back};

const BACKUP: &str = "\
Example:
    thc-controller backup --state jobs.state jobs.backup

The controller may be running. A backup contains the jobs' secrets: only you can read it.";

const RESTORE: &str = "\
Example, while no controller of this file runs:
    thc-controller restore --state jobs.state jobs.backup

Jobs, tables and drained targets become what they were. Sessions end: workers join anew.";

/// Flags of `backup`.
#[derive(Args, Debug)]
#[command(after_help = BACKUP)]
pub struct BackupFlags {
    /// The controller's file of jobs
    #[arg(long, value_name = "FILE")]
    state: PathBuf,
    /// Write the backup in this format, 1 or 2, for an older controller
    #[arg(long, value_name = "FORMAT")]
    format: Option<u32>,
    /// File to write the backup to
    to: PathBuf,
}

/// Flags of `restore`.
#[derive(Args, Debug)]
#[command(after_help = RESTORE)]
pub struct RestoreFlags {
    /// The controller's file of jobs
    #[arg(long, value_name = "FILE")]
    state: PathBuf,
    /// Backup to restore from
    from: PathBuf,
}

/// Writes a backup.
pub fn backup(flags: &BackupFlags) -> Result<(), Failure> {
    let jobs = back_up(&flags.state, &flags.to, flags.format).map_err(Failure::error)?;
    print(&format!("{jobs} jobs in {}\n", flags.to.display()))
}

/// Puts one back.
pub fn restore(flags: &RestoreFlags) -> Result<(), Failure> {
    let jobs = put_back(&flags.from, &flags.state).map_err(Failure::error)?;
    print(&format!("{jobs} jobs in {}\n", flags.state.display()))
}
