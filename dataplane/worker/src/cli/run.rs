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

/// A tensor to reduce, and room for its mean.
struct Work {
    key: u64,
    data: Vec<f32>,
    coordinates: usize,
    mean: Vec<f32>,
    /// How it travels, if the plan says so.
    spans: Option<Vec<Span>>,
}

/// Does a run.
pub fn run(config: &RunConfig) -> anyhow::Result<()> {
    // Failures of this host come first, before other workers wait for this one.
    let mut input = match &config.source {
        TensorSource::File { input, .. } => tensors::read(input)?,
        TensorSource::MadeUp(_) => Vec::new(),
    };
    let output = match &config.source {
        TensorSource::File { output: Some(output), .. } => Some(Output::check(output, input.len())?),
        TensorSource::File { output: None, .. } => {
            tracing::warn!("there is no --output: the mean of --input is not kept");
            None
        }
        TensorSource::MadeUp(_) => None,
    };
    let mut work = match config.source {
        TensorSource::MadeUp(count) => vec![Work::new(1, tensors::room(count)?, count)?],
        TensorSource::File { .. } => {
            input.iter_mut().map(Work::from_tensor).collect::<anyhow::Result<_>>()?
        }
    };
    let signals = Signals::handle().context("cannot handle signals")?;
    let joined = Group::join_until(config.group.clone(), Arc::clone(&signals.stop));
    let group = joined
        .map_err(|error| signals.explain(error.into(), || "ended the wait for a session".to_owned()))?;
    let workers = group.parameters()?.all_workers();
    check_method(config, &group)?;
    let (job, worker) = (group.job(), group.worker());
    match &config.group.controller {
        Some(controller) => tracing::info!("joined {} as worker {worker} of {workers}", controller.url),
        None => tracing::info!("joined job {job} as worker {worker} of {workers}"),
    }
    if let Some(spans) = &config.spans {
        let tables = group.parameters()?.tables;
        for work in &mut work {
            work.spans = Some(spans.plan(work.coordinates, &tables).map_err(anyhow::Error::msg)?);
        }
    }
    if let TensorSource::MadeUp(count) = config.source {
        make_up(&mut work[0].data, count, worker);
    }
    let coordinates = work.iter().map(|work| work.data.len()).sum();
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
                input.iter_mut().zip(work).for_each(|(tensor, work)| tensor.data = work.mean);
                output.write(&input)?;
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
    work: &mut [Work],
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
                work.iter().try_for_each(|work| group.reset_feedback(work.key))?;
                group.rejoin()?;
                check_method(config, group)?;
            }
            _ => return Err(end),
        }
    }
}

impl Work {
    fn new(key: u64, data: Vec<f32>, coordinates: usize) -> anyhow::Result<Work> {
        Ok(Work { key, data, coordinates, mean: tensors::room(coordinates)?, spans: None })
    }

    /// Takes the coordinates of a tensor.
    fn from_tensor(tensor: &mut Tensor) -> anyhow::Result<Work> {
        let data = std::mem::take(&mut tensor.data);
        let coordinates = data.len();
        Work::new(key(&tensor.name), data, coordinates)
    }

    /// Puts the coordinates where their mean is to be.
    fn fill(&mut self) -> anyhow::Result<()> {
        self.mean.clear();
        // A call that failed has taken the memory along.
        tensors::reserve(&mut self.mean, self.data.len())?;
        self.mean.extend_from_slice(&self.data);
        Ok(())
    }
}

/// All repetitions: adds the time of each to `times`. The last one's means stay in `work`.
fn reduce(
    group: &Group,
    config: &RunConfig,
    work: &mut [Work],
    bar: &ProgressBar,
    times: &mut Vec<Duration>,
) -> anyhow::Result<()> {
    bar.reset();
    for _ in 0..config.repeat {
        // A worker that waits may join between any two.
        work.iter_mut().try_for_each(Work::fill)?;
        let started = Instant::now();
        if let [work] = work {
            let call = call(config, work.key, work.spans.as_deref());
            group.call(&mut work.mean, call)?;
        } else {
            let start = |work: &mut Work| {
                let mean = std::mem::take(&mut work.mean);
                group.start(mean, call(config, work.key, work.spans.as_deref()))
            };
            let handles: Result<Vec<_>, _> = work.iter_mut().map(start).collect();
            for (work, handle) in work.iter_mut().zip(handles?) {
                work.mean = handle.wait()?;
            }
        }
        times.push(started.elapsed());
        bar.inc(1);
        if config.each {
            print_each(config, times, work)?;
        }
    }
    Ok(())
}

/// Prints a line about the last all-reduce, as soon as it is done.
fn print_each(config: &RunConfig, times: &[Duration], work: &[Work]) -> anyhow::Result<()> {
    let number = times.len() - 1;
    let seconds = times.last().map_or(0.0, Duration::as_secs_f64);
    let checksum = format!("{:016x}", checksum(work.iter().flat_map(|work| &work.mean)));
    let line = match config.json {
        true => json!({ "all_reduce": number, "seconds": seconds, "checksum": checksum }).to_string(),
        false => format!("all-reduce {number}: {:.2} ms, mean {checksum}", seconds * 1e3),
    };
    Ok(print(line)?)
}

/// A checksum of the bits. It takes words of 32 bits, because bytes would take longer than the mean.
fn checksum<'a>(values: impl Iterator<Item = &'a f32>) -> u64 {
    values.fold(0xcbf2_9ce4_8422_2325, |h: u64, value| {
        (h ^ u64::from(value.to_bits())).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    })
}

/// The all-reduce of a tensor, span by span if the plan has spans.
fn call<'a>(config: &RunConfig, key: u64, spans: Option<&'a [Span]>) -> Call<'a> {
    let plan = spans.map_or(Plan::Whole(config.mode), Plan::Spans);
    Call { plan, feedback: config.error_feedback.then_some(key) }
}

/// FNV-1a: the same name is the same tensor on every worker.
fn key(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Numbers in (−1, 1) that differ between workers.
fn make_up(data: &mut Vec<f32>, count: usize, worker: u8) {
    let word = |call| SignKey { job_seed: 0x5EED, call, partition: u32::from(worker) }.signs().word(0);
    data.extend((0..count).map(|i| (word(i as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0));
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
