//! The command line of `thc simulate`.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use clap::{Args, Subcommand};
use serde_json::json;

use super::loss::LossArgs;
use super::recirculation::RecirculationArgs;
use super::settings::Keys;
use super::study;
use crate::error::{Error, Result};
use crate::progress::Progress;

/// `thc simulate`
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Workers are thc-worker's engine with the real codec, aggregators are the protocol's own, and packets are real; the \
                  clock,\nlinks, cores and a switch's passes are virtual. The same settings give the same figures. A ring \
                  is the schedule of\nits messages on the same links and cores.\n\n\
                  Examples:\n  \
                  thc simulate                                       who wins where: 16 Mi coordinates, four rates\n  \
                  thc simulate --workers 4,64 --rate 25gbit --layout switch,ring-fp32 --coordinates 350000000\n  \
                  docs/measuring.md says what is simulated."
)]
pub struct SimulateArgs {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    curves: Curves,
}

#[derive(Subcommand)]
enum What {
    /// Show how much goodput is left when packets are lost, by number of workers
    Loss(Box<LossArgs>),
    /// Show what the loopback ports of a P4 switch carry, and what workers get for it
    Recirculation(Box<RecirculationArgs>),
}

#[derive(Args)]
struct Curves {
    #[command(flatten)]
    keys: Keys,
    /// Print settings and all figures as JSON
    #[arg(long)]
    json: bool,
}

impl SimulateArgs {
    /// Does it, and prints what was found.
    pub fn run(&self) -> Result<()> {
        let text = match &self.what {
            Some(What::Loss(args)) => args.run()?,
            Some(What::Recirculation(args)) => args.run()?,
            None => self.curves.run()?,
        };
        writeln!(std::io::stdout(), "{}", text.trim_end()).map_err(Error::Output)
    }
}

impl Curves {
    fn run(&self) -> Result<String> {
        let settings = self.keys.clone().validate()?;
        let began = Instant::now();
        let points = study::run(&settings, &Progress::new(self.json))?;
        if self.json {
            let all = json!({ "settings": settings, "points": points });
            return serde_json::to_string_pretty(&all).map_err(Error::Event);
        }
        let packets: u64 = points.iter().filter(|p| !p.case.layout.is_ring()).map(|p| p.took.packets).sum();
        if std::io::stderr().is_terminal() {
            eprintln!("{packets} packets in {:.1} s", began.elapsed().as_secs_f64());
        }
        Ok(study::table(&points).to_text())
    }
}
