//! The command line of `thc simulate`.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use serde_json::json;

use super::loss::LossArgs;
use super::recirculation::RecirculationArgs;
use super::row::RowArgs;
use super::settings::Keys;
use super::{chart, study};
use crate::charts::write;
use crate::error::{Error, Result};
use crate::progress::Progress;

/// `thc simulate`
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Workers are thc-worker's engine with the real codec, aggregators are the protocol's own, and packets are real; the \
                  clock,\nlinks, cores and a switch's passes are virtual. The same settings give the same figures. A ring \
                  is the schedule of\nits messages on the same links and cores. Keys of a file are the flags' names with _ \
                  for -; flags override the\nfile. testbed/studies/thc-simulate.example.toml has all keys.\n\n\
                  Examples:\n  \
                  thc simulate                                       who wins where: 16 Mi coordinates, four rates\n  \
                  thc simulate --workers 4,64 --rate 25gbit --layout switch,ring-fp32 --coordinates 350000000\n  \
                  thc simulate --workers 16 --compute-ms 50 --stragglers 0.05 --slowdown 3 --rounds 20\n  \
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
    /// Show how well schemes hide gradients behind computing: AQGB's simulator
    Row(RowArgs),
}

/// Where settings come from.
#[derive(Args, Clone, Debug)]
pub struct Source {
    /// A file of settings; may be repeated, later files override earlier ones
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    #[command(flatten)]
    keys: Keys,
}

impl Source {
    /// Flags, then files from the last to the first.
    pub fn keys(&self) -> Result<Keys> {
        let mut keys = self.keys.clone();
        for path in self.config.iter().rev() {
            keys = keys.or(Keys::read(path)?);
        }
        Ok(keys)
    }
}

#[derive(Args)]
struct Curves {
    #[command(flatten)]
    source: Source,
    /// Print settings and all figures as JSON
    #[arg(long)]
    json: bool,
    /// Draw the curves, a chart for each rate, into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl SimulateArgs {
    /// Does it, and prints what was found.
    pub fn run(&self) -> Result<()> {
        let text = match &self.what {
            Some(What::Loss(args)) => args.run()?,
            Some(What::Recirculation(args)) => args.run()?,
            Some(What::Row(args)) => args.run()?,
            None => self.curves.run()?,
        };
        writeln!(std::io::stdout(), "{}", text.trim_end()).map_err(Error::Output)
    }
}

impl Curves {
    fn run(&self) -> Result<String> {
        let settings = self.source.keys()?.validate()?;
        let began = Instant::now();
        let points = study::run(&settings, &Progress::new(self.json))?;
        if let Some(path) = &self.svg {
            write(path, &chart::svg(&points)?)?;
        }
        if self.json {
            let all = json!({ "settings": settings, "points": points });
            return serde_json::to_string_pretty(&all).map_err(Error::Event);
        }
        let packets: u64 = points.iter().filter(|p| !p.case.layout.is_ring()).map(|p| p.took.packets).sum();
        if std::io::stderr().is_terminal() {
            eprintln!("{packets} packets in {:.1} s", began.elapsed().as_secs_f64());
        }
        Ok(chart::table(&points).to_text())
    }
}
