//! Flags of `thc-worker doctor`, and the visit that they ask for.

use super::keys::Keys;
use super::texts::{cookie, parse};
use crate::cli::doctor::Visit;
use std::path::PathBuf;
use std::time::Duration;
use thc_config::values::Interval;
use thc_transport::backend;

const DOCTOR: &str = "\
Doctor prints one line for each check: ok, warning, or wrong with the remedy. It changes nothing
and takes no place in the job: it asks the parameter server with packets that the server only
refuses. With --io dpdk it opens the devices, so no other process may be using them.

Examples:
  thc-worker doctor --ps 10.0.0.1:9000 --cookie 0x1234
  thc-worker doctor --config worker.toml --json
  thc-worker doctor --watch --ps 10.0.0.1:9000    (until the server is there)
  thc-worker doctor --ps 10.0.0.1:9000 --io dpdk --dpdk-device 0000:3b:00.0 \\
      --dpdk-address 10.0.0.2/24

  A server's host, before thc-ps runs there:
  thc-worker doctor --patience 0s --io dpdk --dpdk-device 0000:3b:00.0 \\
      --dpdk-address 10.0.0.1/24

--patience is how long the parameter server may take to answer, 2s by default; with 0s it is not
asked.

Exit status: 0 the run will work, 1 something is wrong, 2 wrong flags or configuration.";

/// The time-out of the parameter server's answer.
const ANSWER: Duration = Duration::from_secs(2);

/// The flags of a run, and `--json`.
#[derive(Debug, clap::Args)]
#[command(after_help = DOCTOR)]
pub(super) struct DoctorFlags {
    /// TOML file of a run; flags override it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the report as JSON on stdout
    #[arg(long)]
    json: bool,
    /// Check again each second, and print each report, until nothing is wrong
    #[arg(long)]
    watch: bool,
    // Last: what follows would go under its last heading.
    #[command(flatten)]
    keys: Keys,
}

impl DoctorFlags {
    /// The checks that these flags ask for. Worker and cookie may be missing.
    pub(super) fn visit(mut self) -> Result<Visit, String> {
        // The file's `patience` is for a run: it says how long other workers may be late.
        let patience = match self.keys.patience.take() {
            None => ANSWER,
            Some(text) => parse::<Interval>("patience", &text)?.0,
        };
        let keys = self.keys.merge_file(self.config.as_deref())?;
        let io = backend(keys.io, keys.bind()?.ip(), &keys.dpdk).map_err(|error| error.to_string())?;
        // No job has the cookie 0.
        let cookie = cookie(keys.cookie.as_ref())?.unwrap_or(0);
        let config = keys.group(keys.worker.unwrap_or(0), cookie, io)?;
        if let Some(controller) = &config.controller {
            return Err(format!(
                "ps = \"{}\" is a controller: give --ps the server's HOST:PORT, which `thc-controller target list` shows, and \
                 --job and --cookie",
                controller.url
            ));
        }
        Ok(Visit { config, patience, json: self.json, watch: self.watch })
    }
}
