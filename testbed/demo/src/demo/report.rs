//! The demo's report, as a table and as JSON.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::curve;
use super::event::{ErrorSample, Outcome, Server, Times, Traffic};
use super::plan::DemoPlan;

/// Characters of a sparkline.
const WIDTH: usize = 60;

/// Rows of the loss table.
const ROWS: usize = 8;

/// One of the two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Training loss of every step, mean of the workers, nats per character.
    pub losses: Vec<f32>,
    /// Mean of the last twentieth of them.
    pub final_loss: f32,
    /// Loss on the held-out part of the text.
    pub held_out_loss: f32,
    /// Wall clock from the first step to the last, seconds.
    pub seconds: f64,
}

/// What the processes of one run reported.
pub struct RunResult {
    /// Coordinates of a gradient.
    pub parameters: usize,
    /// Losses and time.
    pub run: Run,
    /// Errors of the sampled steps.
    pub errors: Vec<ErrorSample>,
    /// What each process ended with.
    pub outcomes: Vec<Outcome>,
}

/// The whole demo.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The text.
    pub text: PathBuf,
    /// Workers.
    pub workers: u8,
    /// Steps.
    pub steps: u32,
    /// Seed.
    pub seed: u64,
    /// `true` if workers kept error feedback.
    pub error_feedback: bool,
    /// `true` if each worker's host had a share of the server.
    pub shares: bool,
    /// Coordinates of a gradient.
    pub parameters: usize,
    /// The run through THC.
    pub thc: Run,
    /// The run with exact averaging.
    pub exact: Run,
    /// Errors of the averaged gradient in sampled steps.
    pub errors: Vec<ErrorSample>,
    /// Mean NMSE of the applied gradients.
    pub nmse: f64,
    /// Mean NMSE without error feedback.
    pub nmse_without_feedback: f64,
    /// The traffic of all workers together.
    pub traffic: Traffic,
    /// Bytes to the server per coordinate and worker, headers from IP on included.
    pub bytes_per_coordinate_up: f64,
    /// Bytes from the server per coordinate and worker.
    pub bytes_per_coordinate_down: f64,
    /// Seconds per worker by activity, mean of all workers.
    pub times: Times,
    /// The parameter server's totals; a switch's are in its counters.
    pub server: Option<Server>,
    /// The digest of the final model of all workers.
    pub digest: String,
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

impl Report {
    /// Makes the report of both runs. `thc` is what the workers reported, `server` the totals of their server if
    /// a program was the server, and `feedback` says whether the workers kept error feedback.
    pub fn new(
        plan: &DemoPlan,
        (feedback, shares): (bool, bool),
        server: Option<Server>,
        thc: RunResult,
        exact: Run,
    ) -> Self {
        let RunResult { parameters, run: thc, errors, outcomes } = thc;
        let mut traffic = Traffic::default();
        for one in outcomes.iter().filter_map(|outcome| outcome.traffic) {
            traffic.add(&one);
        }
        let time = |part: fn(&Times) -> f64| mean(outcomes.iter().map(|outcome| part(&outcome.times)));
        Self {
            text: plan.text.clone(),
            workers: plan.workers,
            steps: plan.steps,
            seed: plan.seed,
            error_feedback: feedback,
            shares,
            parameters,
            nmse: mean(errors.iter().map(|e| e.applied)),
            nmse_without_feedback: mean(errors.iter().map(|e| e.without_feedback)),
            errors,
            bytes_per_coordinate_up: traffic.bytes_up as f64 / traffic.coordinates as f64,
            bytes_per_coordinate_down: traffic.bytes_down as f64 / traffic.coordinates as f64,
            traffic,
            times: Times {
                computing: time(|t| t.computing),
                compression: time(|t| t.compression),
                communication: time(|t| t.communication),
                waiting: time(|t| t.waiting),
            },
            digest: outcomes.first().map(|o| o.digest.clone()).unwrap_or_default(),
            server,
            thc,
            exact,
        }
    }
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl Report {
    /// Bytes of all gradients that cross a worker's link in the fuller direction: of THC with its headers, and of ring all-reduces of
    /// bf16 and f32 without. With shares, a link carries what the host's share receives and sends, too, but for its own worker.
    fn link_bytes(&self) -> [f64; 3] {
        let (up, down) = (self.bytes_per_coordinate_up, self.bytes_per_coordinate_down);
        let others = f64::from(self.workers - 1) / f64::from(self.workers);
        let thc = if self.shares { others * (up + down) } else { up.max(down) };
        let ring = 2.0 * others;
        let coordinates = self.parameters as f64 * f64::from(self.steps);
        [thc, 2.0 * ring, 4.0 * ring].map(|bytes| bytes * coordinates)
    }

    fn write_links(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nLink of a worker, each way (bf16 and f32: by a ring all-reduce)")?;
        writeln!(f, "  {:<34} {:>12} {:>12} {:>12}", "", "THC", "bf16", "f32")?;
        let bytes = self.link_bytes();
        let [thc, bf16, f32] = bytes.map(|bytes| thousands(bytes as u64));
        writeln!(f, "  {:<34} {thc:>12} {bf16:>12} {f32:>12}", "bytes of all steps")?;
        for rate in [1e9, 10e9] {
            let name = format!("seconds at {} Gb/s", rate / 1e9);
            let [thc, bf16, f32] = bytes.map(|bytes| bytes * 8.0 / rate);
            writeln!(f, "  {name:<34} {thc:>12.2} {bf16:>12.2} {f32:>12.2}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} workers, {} steps, {} parameters, text {}, seed {}",
            self.workers,
            self.steps,
            thousands(self.parameters as u64),
            self.text.display(),
            self.seed
        )?;
        writeln!(f, "\nTraining loss, nats per character")?;
        let runs = [("THC", &self.thc), ("exact", &self.exact)];
        let range = curve::range(&[&self.thc.losses, &self.exact.losses], WIDTH);
        for (name, run) in runs {
            let first = run.losses.first().copied().unwrap_or_default();
            let line = curve::sparkline(&run.losses, WIDTH, range);
            writeln!(f, "  {name:<6} {line}  {first:.3} → {:.3}", run.final_loss)?;
        }
        writeln!(f, "\n  {:<22} {:>9} {:>9} {:>11}", "loss", "THC", "exact", "difference")?;
        let mut row = |name: &str, thc: f32, exact: f32| {
            writeln!(f, "  {name:<22} {thc:>9.4} {exact:>9.4} {:>+11.4}", thc - exact)
        };
        let exact = curve::thin(&self.exact.losses, ROWS);
        let mut before = 0;
        for ((step, thc), (_, exact)) in curve::thin(&self.thc.losses, ROWS).into_iter().zip(exact) {
            row(&format!("steps {} to {step}", before + 1), thc, exact)?;
            before = step;
        }
        row("final (last 5 %)", self.thc.final_loss, self.exact.final_loss)?;
        row("on held-out text", self.thc.held_out_loss, self.exact.held_out_loss)?;

        writeln!(f, "\nAveraged gradient against the exact mean ({} steps sampled)", self.errors.len())?;
        writeln!(f, "  {:<34} {:>12.5}", "NMSE of one all-reduce", self.nmse_without_feedback)?;
        writeln!(
            f,
            "  {:<34} {:>12.5}",
            if self.error_feedback { "NMSE as applied, with feedback" } else { "NMSE as applied" },
            self.nmse
        )?;
        writeln!(f, "  {:<34} {:>12}", "models equal bit for bit", format!("all {}", self.workers))?;

        writeln!(f, "\nNetwork, all workers together (bytes from the IP header on)")?;
        let mut row = |name: &str, up: String, down: String| writeln!(f, "  {name:<34} {up:>12} {down:>12}");
        row("", "up".into(), "down".into())?;
        row(
            "bytes per coordinate and worker",
            format!("{:.4}", self.bytes_per_coordinate_up),
            format!("{:.4}", self.bytes_per_coordinate_down),
        )?;
        let traffic = &self.traffic;
        row("bytes", thousands(traffic.bytes_up), thousands(traffic.bytes_down))?;
        row("packets", thousands(traffic.packets_up), thousands(traffic.packets_down))?;
        let resent = self.server.as_ref().map(|server| thousands(server.resent)).unwrap_or_default();
        row("retransmissions", thousands(traffic.retransmissions), resent)?;
        if let Some(server) = &self.server {
            row("dropped by the server as invalid", thousands(server.dropped), String::new())?;
        }

        self.write_links(f)?;
        writeln!(f, "\nTime of a worker (mean of {})", self.workers)?;
        let Times { computing, compression, communication, waiting } = self.times;
        let total = computing + compression + communication + waiting;
        for (name, seconds) in [
            ("computing", computing),
            ("compression", compression),
            ("communication", communication),
            ("waiting", waiting),
        ] {
            writeln!(f, "  {name:<34} {seconds:>10.2} s {:>10.1} %", 100.0 * seconds / total)?;
        }
        write!(
            f,
            "  {:<34} {:>10.2} s   (the exact run in one process: {:.2} s)",
            "whole run", self.thc.seconds, self.exact.seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }
}
