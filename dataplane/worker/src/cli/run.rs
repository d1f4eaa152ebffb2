//! A run: join, reduce, write, report.

use super::options::{RunConfig, TensorSource};
use super::output::Output;
use super::signals::{Signals, Stopped};
use super::tensors::{self, Tensor};
use anyhow::{Context, anyhow};
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thc_codec::signs::SignKey;
use thc_config::logs::print;
use thc_config::values::plural;
use thc_protocol::worker::{SessionError, Workers};
use thc_worker::{Call, Group, Mode, Plan, Span, Stats, WorkerError};

/// The name of the tensor's error feedback.
const KEY: u64 = 1;

/// A tensor to reduce, and room for its mean.
struct Work {
    tensor: Tensor,
    mean: Vec<f32>,
    /// The form in which each span travels, if a plan gives them.
    spans: Option<Vec<Span>>,
}

/// Does a run.
pub fn run(config: &RunConfig) -> anyhow::Result<()> {
    // Failures of this host come first, before other workers wait for this one.
    let (tensor, output) = match &config.source {
        TensorSource::File { input, output } => {
            let tensor = tensors::read(input)?;
            if output.is_none() {
                tracing::warn!("there is no --output: the mean of --input is not kept");
            }
            (tensor, output.as_deref().map(Output::check).transpose()?)
        }
        TensorSource::MadeUp(count) => {
            let mut data = tensors::room(*count)?;
            data.resize(*count, 0.0);
            (Tensor { shape: format!("{count},"), data }, None)
        }
    };
    let coordinates = tensor.data.len();
    let mut work = Work { tensor, mean: tensors::room(coordinates)?, spans: None };
    let signals = Signals::handle().context("cannot handle signals")?;
    let joined = Group::join_until(config.group.clone(), Arc::clone(&signals.stop));
    let group = joined
        .map_err(|error| signals.explain(error.into(), || "ended the wait for the others".to_owned()))?;
    let workers = group.parameters()?.all_workers();
    check_method(config, &group)?;
    let (job, worker) = (group.job(), group.worker());
    match &config.group.controller {
        Some(controller) => tracing::info!("joined {} as worker {worker} of {workers}", controller.url),
        None => tracing::info!("joined job {job} as worker {worker} of {workers}"),
    }
    if let Some(spans) = &config.spans {
        let plan = spans.plan(coordinates, &group.parameters()?.tables);
        work.spans = Some(plan.map_err(anyhow::Error::msg)?);
    }
    if let TensorSource::MadeUp(_) = config.source {
        make_up(&mut work.tensor.data, worker);
    }
    let bar = progress(config.repeat, coordinates);
    let mut times = Vec::new();
    let end = reduce_with_rejoins(&group, config, &mut work, &bar, &mut times);
    bar.finish_and_clear();
    let end = end.map_err(|error| {
        let done = format!("{} of {} all-reduces", times.len(), config.repeat);
        match error.downcast_ref() {
            Some(&WorkerError::Session(SessionError::Left { members, .. })) => {
                anyhow!("{} left or ended after {done}: all workers must join anew", Workers(members))
            }
            _ => signals.explain(error, || format!("made worker {worker} leave after {done}")),
        }
    });
    match &end {
        Ok(()) => {
            if let Some(output) = output {
                output.write(&Tensor { data: work.mean, ..work.tensor })?;
            }
        }
        Err(error) if error.is::<Stopped>() => {}
        Err(_) => return end,
    }
    let stats = group.stats()?;
    drop(group);
    if !times.is_empty() {
        report(config, (job, worker, workers), coordinates, &times, &stats)?;
    }
    end
}

/// Checks that the job is as the run's method has it.
fn check_method(config: &RunConfig, group: &Group) -> anyhow::Result<()> {
    config.method.check(group.parameters()?.tables.first(), group.block()?).map_err(anyhow::Error::msg)
}

/// All repetitions, begun anew in a new session each time that one ends, if the run is to rejoin.
fn reduce_with_rejoins(
    group: &Group,
    config: &RunConfig,
    work: &mut Work,
    bar: &ProgressBar,
    times: &mut Vec<Duration>,
) -> anyhow::Result<()> {
    loop {
        times.clear();
        let Err(end) = reduce(group, config, work, bar, times) else { return Ok(()) };
        match end.downcast_ref() {
            Some(WorkerError::Session(
                why @ (SessionError::Reforming { .. }
                | SessionError::Changed { .. }
                | SessionError::Left { .. }),
            )) if config.rejoin => {
                tracing::warn!("{why}; joining anew and beginning again");
                group.reset_feedback(KEY)?;
                group.rejoin()?;
                check_method(config, group)?;
            }
            _ => return Err(end),
        }
    }
}

impl Work {
    /// Puts the coordinates where their mean is to be.
    fn fill(&mut self) -> anyhow::Result<()> {
        self.mean.clear();
        // A call that failed has taken the memory along.
        tensors::reserve(&mut self.mean, self.tensor.data.len())?;
        self.mean.extend_from_slice(&self.tensor.data);
        Ok(())
    }
}

/// All repetitions: adds the time of each to `times`. The last one's mean stays in `work`.
fn reduce(
    group: &Group,
    config: &RunConfig,
    work: &mut Work,
    bar: &ProgressBar,
    times: &mut Vec<Duration>,
) -> anyhow::Result<()> {
    bar.reset();
    for _ in 0..config.repeat {
        // A worker that waits may join between any two.
        work.fill()?;
        let started = Instant::now();
        let plan = work.spans.as_deref().map_or(Plan::Whole(config.mode), Plan::Spans);
        group.call(&mut work.mean, Call { plan, feedback: config.error_feedback.then_some(KEY) })?;
        times.push(started.elapsed());
        bar.inc(1);
        if config.each {
            print_each(config, times, &work.mean)?;
        }
    }
    Ok(())
}

/// Prints a line about the last all-reduce, as soon as it is done.
fn print_each(config: &RunConfig, times: &[Duration], mean: &[f32]) -> anyhow::Result<()> {
    let number = times.len() - 1;
    let seconds = times.last().map_or(0.0, Duration::as_secs_f64);
    let checksum = format!("{:016x}", checksum(mean));
    let line = match config.json {
        true => json!({ "all_reduce": number, "seconds": seconds, "checksum": checksum }).to_string(),
        false => format!("all-reduce {number}: {:.2} ms, mean {checksum}", seconds * 1e3),
    };
    Ok(print(line)?)
}

/// A checksum of the bits. It takes words of 32 bits, because bytes would take longer than the mean.
fn checksum(values: &[f32]) -> u64 {
    values.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, value| {
        (h ^ u64::from(value.to_bits())).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    })
}

/// Numbers in (−1, 1) that differ between workers.
fn make_up(data: &mut [f32], worker: u8) {
    let word = |call| SignKey { job_seed: 0x5EED, call, partition: u32::from(worker) }.signs().word(0);
    data.iter_mut().zip(0..).for_each(|(x, i)| *x = (word(i) >> 40) as f32 / (1 << 23) as f32 - 1.0);
}

/// The bar of a run. When something is done it shows the rate at which coordinates, as f32, are averaged, and the time left.
fn progress(repeat: u32, coordinates: usize) -> ProgressBar {
    if repeat < 2 || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bytes = 4.0 * coordinates as f64;
    let rate = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        if state.pos() > 0 {
            let rate = state.per_sec() * bytes / 1e9;
            let _ = write!(out, ", {rate:.2} GB/s, {:#} left", HumanDuration(state.eta()));
        }
    };
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} all-reduces{rate}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(u64::from(repeat)).with_style(style.with_key("rate", rate).progress_chars("#>-"))
}

fn report(
    config: &RunConfig,
    (job, worker, workers): (u16, u8, u16),
    coordinates: usize,
    times: &[Duration],
    stats: &Stats,
) -> anyhow::Result<()> {
    let mut sorted: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    let reduced = stats.coordinates.max(1) as f64;
    let (up, down) = (stats.bytes_up as f64 / reduced, stats.bytes_down as f64 / reduced);
    if config.json {
        print(json!({
            "job": job,
            "worker": worker,
            "workers": workers,
            "mode": if config.mode == Mode::Raw { "raw" } else { "thc" },
            "coordinates": coordinates,
            "repeat": times.len(),
            "seconds": times.iter().map(Duration::as_secs_f64).collect::<Vec<_>>(),
            "median_seconds": median,
            "bytes_per_coordinate_up": up,
            "bytes_per_coordinate_down": down,
            "stats": stats,
        }))?;
        return Ok(());
    }
    let Stats { packets_up, packets_down, retransmissions, lost, .. } = stats;
    let [compression, network, waiting] =
        [stats.compression, stats.network, stats.waiting].map(|time| time.as_secs_f64());
    print(format_args!(
        "worker {worker}: {} averaged over {}, {}\n  \
         time            median {:.2} ms, best {:.2} ms, {:.2} GB/s of f32\n  \
         bytes           {up:.3} up, {down:.3} down per coordinate (f32: 4, bf16: 2)\n  \
         packets         {packets_up} up, {packets_down} down, {retransmissions} sent again, {lost} lost\n  \
         time spent      compression {compression:.2} s, network {network:.2} s, waiting {waiting:.2} s",
        plural(coordinates as u64, "coordinate"),
        plural(workers.into(), "worker"),
        if times.len() == 1 { "once".to_owned() } else { plural(times.len() as u64, "time") },
        median * 1e3,
        sorted[0] * 1e3,
        4.0 * coordinates as f64 / median / 1e9,
    ))?;
    Ok(())
}
