//! Simulated times beside those of real processes on links of a given rate.

use std::io::Write;
use std::path::PathBuf;
use std::thread;

use clap::Args;
use serde::Serialize;

use super::error::value_error;
use super::job::Case;
use super::layout::{Layout, SwitchKind};
use super::settings::{JobValue, Keys, Settings};
use super::study::point;
use crate::bench::{AllreduceArgs, Measured, Place, measure};
use crate::charts::Table;
use crate::error::{Error, Result};
use crate::units::Rate;

/// What is around an IP packet where tc counts it: the Ethernet header.
const FRAMING: u32 = 14;
/// One way over two virtual cables and a bridge.
const LATENCY_US: f64 = 2.0;
/// Bits a second that bound nothing.
const UNBOUND: u64 = 10_000_000_000_000;

/// `thc simulate check`
#[derive(Args)]
#[command(
    after_help = "Measures as `thc bench allreduce` does, with its flags, and simulates the same: hosts that share this machine's \
                  cores,\nthc-ps at the switch's place. It fails if a median is farther from the simulated time than --within \
                  says. What computing\nand packets cost comes from --config: take `thc simulate calibrate` of the same \
                  machine, when nothing else runs.\n\n\
                  Examples:\n  \
                  thc simulate calibrate > here.toml && sudo thc simulate check --config here.toml\n  \
                  sudo thc simulate check --config here.toml --rate 1gbit,2.5gbit --place colocated --against gloo"
)]
pub struct CheckArgs {
    /// A file of settings, such as `thc simulate calibrate` prints; may be repeated, later files override earlier ones
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Greatest allowed difference between a simulated time and the median measured, in per cent
    #[arg(long, value_name = "PER CENT", default_value_t = 15.0)]
    within: f64,
    #[command(flatten)]
    measured: AllreduceArgs,
}

/// One setting, measured and simulated.
#[derive(Clone, Debug, Serialize)]
struct Compared {
    layout: Layout,
    workers: u8,
    bytes: u64,
    rate: Rate,
    measured_seconds: f64,
    measured_spread: [f64; 2],
    simulated_seconds: f64,
    /// By which share of the measured time the simulated one is longer.
    more: f64,
}

impl CheckArgs {
    /// Measures, simulates, compares.
    ///
    /// # Errors
    /// What stands in the way, or times too far apart.
    pub fn run(&self) -> Result<()> {
        let settings = self.settings()?;
        if self.measured.rate.iter().any(|rate| rate.0.is_none()) {
            let remedy = "the loopback interface has no rate to simulate: give one like 1gbit";
            return Err(value_error("rate", "loopback", remedy));
        }
        if self.measured.jobs != [1] {
            let jobs = format!("{:?}", self.measured.jobs);
            return Err(value_error("jobs", jobs, "one job is simulated: leave --jobs out"));
        }
        let measured = measure(&self.measured)?;
        let mut found = Vec::new();
        for measured in &measured {
            found.extend(compare(&settings, self.measured.racks, measured)?);
        }
        let text = if self.measured.json {
            serde_json::to_string_pretty(&found).map_err(Error::Event)?
        } else {
            table(&found).to_markdown()
        };
        writeln!(std::io::stdout(), "{text}").map_err(Error::Output)?;
        let far = found.iter().filter(|compared| 100.0 * compared.more.abs() > self.within).count();
        if far > 0 {
            let all = found.len();
            return Err(Error::Failure(format!(
                "{far} of {all} simulated times are more than {} % from those measured",
                self.within
            )));
        }
        Ok(())
    }

    fn settings(&self) -> Result<Settings> {
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u16);
        // Shards and buffers are the server's, the rest the job's.
        let own = ["shards", "recv_buffer", "send_buffer", "busy_poll", "pin"];
        let job = self.measured.server.iter().filter(|(key, _)| !own.contains(&key.as_str()));
        let value =
            |text: &str| text.parse().map_or_else(|_| JobValue::Text(text.to_owned()), JobValue::Number);
        let mut keys = Keys {
            shared_cores: Some(cores),
            framing: Some(FRAMING),
            latency_us: Some(LATENCY_US),
            switch: Some(SwitchKind::Software),
            root: Some(SwitchKind::Software),
            // Neither racks nor the root have a bound there.
            uplink: Some(Rate(UNBOUND)),
            feedback: Some(self.measured.feedback),
            rounds: Some(2),
            threads: self.measured.threads,
            job: job.map(|(key, text)| (key.clone(), value(text))).collect(),
            ..Keys::default()
        };
        for path in self.config.iter().rev() {
            keys = keys.or(Keys::read(path)?);
        }
        keys.validate()
    }
}

fn compare(settings: &Settings, racks: u8, measured: &Measured) -> Result<Vec<Compared>> {
    let Some(rate) = measured.rate.map(Rate) else { return Ok(Vec::new()) };
    let layout = match measured.place {
        Place::Switch => Layout::Switch,
        Place::Colocated => Layout::Colocated,
        Place::Server => Layout::Server,
        Place::Racks => Layout::Racks,
    };
    let settings = &Settings { rack: u16::from(measured.workers.div_ceil(racks)), ..settings.clone() };
    let one = |layout, seconds: f64, spread| -> Result<Compared> {
        let case = Case { layout, workers: measured.workers.into(), rate, coordinates: measured.bytes / 4 };
        let simulated = point(settings, case)?.seconds;
        Ok(Compared {
            layout,
            workers: measured.workers,
            bytes: measured.bytes,
            rate,
            measured_seconds: seconds,
            measured_spread: spread,
            simulated_seconds: simulated,
            more: simulated / seconds - 1.0,
        })
    };
    let mut found = vec![one(layout, measured.seconds, measured.spread)?];
    if let (Some(seconds), Some(spread)) = (measured.against_seconds, measured.against_spread) {
        found.push(one(Layout::RingFp32, seconds, spread)?);
    }
    Ok(found)
}

fn table(found: &[Compared]) -> Table {
    let header =
        ["layout", "workers", "MiB", "link", "measured, ms: median (spread)", "simulated, ms", "more"];
    let row = |compared: &Compared| {
        let ms = |seconds: f64| format!("{:.1}", seconds * 1e3);
        let [least, most] = compared.measured_spread.map(ms);
        vec![
            compared.layout.name().to_owned(),
            compared.workers.to_string(),
            (compared.bytes as f64 / f64::from(1 << 20)).to_string(),
            compared.rate.name(),
            format!("{} ({least} to {most})", ms(compared.measured_seconds)),
            ms(compared.simulated_seconds),
            format!("{:+.1} %", 100.0 * compared.more),
        ]
    };
    Table::new(&header, found.iter().map(row))
}
