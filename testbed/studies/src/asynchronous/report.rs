//! What a comparison found, as text and as JSON.

use std::fmt;

use serde::Serialize;

use super::method::Method;
use super::problem::Source;
use super::run::ComparisonPlan;
use super::worker::Event;
use thc_demo::error::{Error, Result};

/// A snapshot of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    pub epoch: u64,
    pub seconds: f64,
    pub loss: f64,
    /// Bits of all workers' pulls and pushes so far, as the paper counts them.
    pub bits: u64,
    /// The same with snapshots and epochs' gradients.
    pub all_bits: u64,
    /// Pulls and pushes as they were written.
    pub written: u64,
    /// Where the time went so far: the mean of the workers that are not slow.
    pub time: Time,
}

/// Where a worker's time goes, in seconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Time {
    pub computing: f64,
    pub coding: f64,
    /// For answers of the model server, in steps.
    pub waiting: f64,
    /// Epochs: snapshot, full-batch gradient, all-reduce.
    pub epochs: f64,
}

/// One method's run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub method: Method,
    pub name: &'static str,
    pub rate: f32,
    pub points: Vec<Point>,
    pub pushes: u64,
    /// Pushes of the slow worker.
    pub slow_pushes: u64,
    pub refused: u64,
    pub mean_delay: f64,
    pub longest_delay: u64,
    /// Pushes that waited for a slower worker.
    pub waits: u64,
    /// Mean of the workers that are not slow, to the target; to the end if it was not reached.
    pub time: Time,
    /// Bits and seconds to the target, between epochs by interpolation; `None`: it was not reached.
    pub bits_to_target: Option<f64>,
    pub all_bits_to_target: Option<f64>,
    pub written_to_target: Option<f64>,
    pub seconds_to_target: Option<f64>,
    pub epochs_to_target: Option<f64>,
}

impl Outcome {
    pub(super) fn new(
        plan: &ComparisonPlan,
        method: Method,
        rate: f32,
        events: &[Vec<Event>],
        waits: u64,
    ) -> Result<Self> {
        let epochs = events.iter().map(Vec::len).min().unwrap_or(0);
        let sum = |epoch: usize, of: fn(&Event) -> u64| events.iter().map(|e| of(&e[epoch])).sum::<u64>();
        let quick = (events.len() - 1).max(1);
        let mean = |epoch: usize, of: fn(&Event) -> f64| {
            events[..quick].iter().map(|e| of(&e[epoch])).sum::<f64>() / quick as f64
        };
        let points: Vec<Point> = (0..epochs)
            .map(|epoch| Point {
                epoch: events[0][epoch].epoch,
                seconds: events[0][epoch].seconds,
                loss: events[0][epoch].loss,
                bits: sum(epoch, |e| e.bits),
                all_bits: sum(epoch, |e| e.bits + e.epoch_bits),
                written: sum(epoch, |e| e.written),
                time: Time {
                    computing: mean(epoch, |e| e.computing),
                    coding: mean(epoch, |e| e.coding),
                    waiting: mean(epoch, |e| e.waiting),
                    epochs: mean(epoch, |e| e.epochs),
                },
            })
            .collect();
        let Some(last) = epochs.checked_sub(1) else {
            return Err(Error::Failure("the workers told nothing".to_owned()));
        };
        if points.iter().any(|point| !point.loss.is_finite()) {
            return Err(Error::Failure(format!(
                "{}: the loss is not finite; take a lower --rate",
                method.name()
            )));
        }
        let pushes = sum(last, |e| e.pushes);
        let at = |of: fn(&Point) -> f64| interpolate_crossing(&points, plan.target, of);
        let spent = |of: fn(&Point) -> f64| at(of).unwrap_or_else(|| of(&points[last]));
        Ok(Self {
            method,
            name: method.name(),
            rate,
            pushes,
            slow_pushes: events.last().map_or(0, |e| e[last].pushes),
            refused: sum(last, |e| e.refused),
            mean_delay: sum(last, |e| e.delays) as f64 / pushes.max(1) as f64,
            longest_delay: events.iter().map(|e| e[last].longest_delay).max().unwrap_or(0),
            waits,
            time: Time {
                computing: spent(|p| p.time.computing),
                coding: spent(|p| p.time.coding),
                waiting: spent(|p| p.time.waiting),
                epochs: spent(|p| p.time.epochs),
            },
            bits_to_target: at(|p| p.bits as f64),
            all_bits_to_target: at(|p| p.all_bits as f64),
            written_to_target: at(|p| p.written as f64),
            seconds_to_target: at(|p| p.seconds),
            epochs_to_target: at(|p| p.epoch as f64),
            points,
        })
    }

    /// Whether it took fewer bits to the target than another; if neither came there, whether it came nearer.
    pub(super) fn beats(&self, other: &Self) -> bool {
        let loss = |outcome: &Self| outcome.points.last().map_or(f64::INFINITY, |point| point.loss);
        match (self.bits_to_target, other.bits_to_target) {
            (Some(own), Some(other)) => own < other,
            (None, None) => loss(self) < loss(other),
            (own, _) => own.is_some(),
        }
    }

    /// While others run.
    pub(super) fn line(&self) -> String {
        let last = self.points.last().map_or(f64::NAN, |point| point.loss);
        let seconds = self.points.last().map_or(0.0, |point| point.seconds);
        format!(
            "{}, rate {}: loss {last:.4} after {} epochs, {seconds:.1} s",
            self.name,
            self.rate,
            self.points.len() - 1
        )
    }
}

/// What `of` is where the loss first falls to `target`, on the line between two points.
fn interpolate_crossing(points: &[Point], target: f64, of: fn(&Point) -> f64) -> Option<f64> {
    let after = points.iter().position(|point| point.loss <= target)?;
    let Some(before) = after.checked_sub(1) else { return Some(of(&points[0])) };
    let (a, b) = (&points[before], &points[after]);
    let share = (a.loss - target) / (a.loss - b.loss);
    Some(of(a) + share * (of(b) - of(a)))
}

/// All methods of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub source: Source,
    pub scale: f64,
    pub workers: u8,
    /// How many times slower the last worker computes.
    pub slow: f64,
    pub delay: Option<u32>,
    pub seed: u64,
    pub target: f64,
    /// The rates that were tried for each method.
    pub rates: Vec<f32>,
    pub outcomes: Vec<Outcome>,
}

impl Comparison {
    pub(super) fn new(plan: &ComparisonPlan, outcomes: Vec<Outcome>) -> Self {
        let ComparisonPlan { source, scale, workers, slow, delay, seed, target, .. } = *plan;
        Self { source, scale, workers, slow, delay, seed, target, rates: plan.rates.clone(), outcomes }
    }

    fn base(&self) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.method == Method::Asyfpg)
    }
}

fn ratio(base: Option<f64>, own: Option<f64>) -> String {
    match (base, own) {
        (Some(base), Some(own)) if own > 0.0 => format!("{:.2}", base / own),
        _ => "–".to_owned(),
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = clap::ValueEnum::to_possible_value(&self.source);
        let name = name.as_ref().map_or("", |name| name.get_name());
        let delay = self.delay.map_or_else(|| "unbounded".to_owned(), |delay| delay.to_string());
        writeln!(
            f,
            "{name}{}, {} workers, one {} × slower, delays {delay}; to a loss of {}, against AsyFPG:\n",
            if self.scale == 1.0 { String::new() } else { format!(" at {} of its size", self.scale) },
            self.workers,
            self.slow,
            self.target
        )?;
        writeln!(
            f,
            "{:<17} {:>5} {:>8} {:>7} {:>8} {:>8} {:>7} {:>7} {:>9} {:>8} {:>7}",
            "method", "rate", "loss", "epochs", "Mbit", "fewer", "paper", "wire", "epochs in", "delay", "max"
        )?;
        let base = self.base();
        for o in &self.outcomes {
            writeln!(
                f,
                "{:<17} {:>5} {:>8.4} {:>7} {:>8} {:>8} {:>7} {:>7} {:>9} {:>8.1} {:>7}",
                o.name,
                o.rate,
                o.points.last().map_or(f64::NAN, |point| point.loss),
                number(o.epochs_to_target, 2),
                number(o.bits_to_target.map(|bits| bits / 1e6), 1),
                ratio(base.and_then(|b| b.bits_to_target), o.bits_to_target),
                number(o.method.published_factor(self.source), 2),
                ratio(base.and_then(|b| b.written_to_target), o.written_to_target),
                ratio(base.and_then(|b| b.all_bits_to_target), o.all_bits_to_target),
                o.mean_delay,
                o.longest_delay,
            )?;
        }
        let rates: Vec<String> = self.rates.iter().map(f32::to_string).collect();
        let tried = match rates.len() {
            0 | 1 => String::new(),
            _ => format!("\nRates tried for each method: {}.\n", rates.join(", ")),
        };
        writeln!(
            f,
            "{tried}\nMbit: pulls and pushes of all workers to that loss, counted as the paper does; fewer: than AsyFPG's, the \
             paper's\nbeside it; wire: by the bytes as written, zeros and signs included; epochs in: with snapshots and \
             full-batch\ngradients, which are floats.\n\nSeconds of a worker that is not slow, to that loss (or to the end, if it was not reached):\n"
        )?;
        writeln!(
            f,
            "{:<17} {:>8} {:>9} {:>7} {:>8} {:>7} {:>9} {:>12} {:>12}",
            "method",
            "to loss",
            "computing",
            "coding",
            "waiting",
            "epochs",
            "pushes",
            "of the slow",
            "at 100 Mb/s"
        )?;
        for o in &self.outcomes {
            // What one worker's share of the bits takes on a link of that speed.
            let link = o.bits_to_target.map(|bits| bits / f64::from(self.workers) / 1e8);
            writeln!(
                f,
                "{:<17} {:>8} {:>9.2} {:>7.2} {:>8.2} {:>7.2} {:>9} {:>12} {:>12}",
                o.name,
                number(o.seconds_to_target, 2),
                o.time.computing,
                o.time.coding,
                o.time.waiting,
                o.time.epochs,
                o.pushes,
                o.slow_pushes,
                number(link, 2),
            )?;
        }
        write!(f, "\nat 100 Mb/s: what a worker's bits to that loss would take on such a link, calculated.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossings_are_interpolated() {
        let point = |epoch: u64, loss: f64| Point {
            epoch,
            seconds: 0.0,
            loss,
            bits: 100 * epoch,
            all_bits: 0,
            written: 0,
            time: Time::default(),
        };
        let points = [point(0, 0.7), point(1, 0.5), point(2, 0.3)];
        let close = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-9);
        assert!(close(interpolate_crossing(&points, 0.4, |p| p.bits as f64), 150.0));
        assert!(close(interpolate_crossing(&points, 0.7, |p| p.bits as f64), 0.0));
        assert_eq!(interpolate_crossing(&points, 0.2, |p| p.bits as f64), None);
    }
}
