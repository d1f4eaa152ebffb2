//! A run: join, reduce, write, report.

use super::metrics::RunMetrics;
use super::options::{RunConfig, TensorSource};
use super::output::Output;
use super::tensors::{self, Tensor};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use thc_codec::signs::SignKey;
use thc_protocol::worker::SessionError;
use thc_worker::{Call, Group, Mode, Plan, Span, Stats, WorkerError};

/// The key of the tensor's error feedback.
const KEY: u64 = 1;

/// The tensor to reduce, and its mean.
struct Work {
    data: Vec<f32>,
    mean: Vec<f32>,
    /// How its spans travel, if `--plan` says it.
    spans: Option<Vec<Span>>,
}

/// Joins, reduces, writes the mean, and prints the report.
pub fn run(config: &RunConfig) -> anyhow::Result<()> {
    // What can go wrong on this host goes wrong before anybody waits for this worker.
    let (Tensor { shape, data }, output) = match &config.source {
        TensorSource::File { input, output } => {
            (tensors::read(input)?, output.as_deref().map(Output::check).transpose()?)
        }
        &TensorSource::MadeUp(count) => (Tensor { shape: vec![count], data: tensors::room(count)? }, None),
    };
    let coordinates = shape.iter().product();
    let mut work = Work { data, mean: tensors::room(coordinates)?, spans: None };
    let metrics = RunMetrics::default();
    let _endpoint = config.http.map(|at| metrics.serve(at)).transpose()?;
    let group = Group::join(config.group.clone())?;
    let workers = group.parameters()?.all_workers();
    config.method.check(group.parameters()?.tables.first(), group.block()?).map_err(anyhow::Error::msg)?;
    let (job, worker) = (group.job(), group.worker());
    metrics.set_worker(job, worker);
    match &config.group.controller {
        Some(controller) => tracing::info!("joined {} as worker {worker} of {workers}", controller.url),
        None => tracing::info!("joined job {job} as worker {worker} of {workers}"),
    }
    if let Some(spans) = &config.spans {
        let tables = group.parameters()?.tables;
        work.spans = Some(spans.plan(coordinates, &tables).map_err(anyhow::Error::msg)?);
    }
    if let TensorSource::MadeUp(count) = config.source {
        make_up(&mut work.data, count, worker);
    }
    let bar = progress(config.repeat);
    let times = loop {
        let end = match reduce(&group, config, &mut work, (&bar, &metrics)) {
            Ok(times) => break times,
            Err(end) => end,
        };
        match end.downcast_ref() {
            Some(WorkerError::Session(
                why @ (SessionError::Reforming { .. }
                | SessionError::Changed { .. }
                | SessionError::Left { .. }),
            )) if config.rejoin => {
                tracing::warn!("{why}; joining anew and beginning again");
                group.reset_feedback(KEY)?;
                group.rejoin()?;
            }
            _ => return Err(end),
        }
    };
    bar.finish_and_clear();
    if let Some(output) = output {
        output.write(&Tensor { shape, data: work.mean })?;
    }
    let stats = group.stats()?;
    drop(group);
    report(config, (job, worker, workers), coordinates, &times, &stats)
}

/// Does all repetitions, and returns how long each took. The mean of the last one stays in `work`.
fn reduce(
    group: &Group,
    config: &RunConfig,
    work: &mut Work,
    (bar, metrics): (&ProgressBar, &RunMetrics),
) -> anyhow::Result<Vec<Duration>> {
    bar.reset();
    let mut times = Vec::new();
    for _ in 0..config.repeat {
        work.mean.clear();
        work.mean.extend_from_slice(&work.data);
        let plan = work.spans.as_deref().map_or(Plan::Whole(config.mode), Plan::Spans);
        let call = Call { plan, feedback: config.error_feedback.then_some(KEY) };
        metrics.begin_call();
        let started = Instant::now();
        group.call(&mut work.mean, call)?;
        times.push(started.elapsed());
        metrics.set_stats(group.stats()?);
        bar.inc(1);
        if config.each {
            print_call(config, &times, &work.mean)?;
        }
    }
    Ok(times)
}

/// Prints a line about the last all-reduce.
fn print_call(config: &RunConfig, times: &[Duration], mean: &[f32]) -> anyhow::Result<()> {
    let number = times.len() - 1;
    let seconds = times.last().map_or(0.0, Duration::as_secs_f64);
    let checksum = format!("{:016x}", checksum(mean));
    let line = match config.json {
        true => json!({ "all_reduce": number, "seconds": seconds, "checksum": checksum }).to_string(),
        false => format!("all-reduce {number}: {:.2} ms, mean {checksum}", seconds * 1e3),
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// A checksum by words of 32 bits, since one by bytes would take longer than the all-reduce.
fn checksum(values: &[f32]) -> u64 {
    values.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, value| {
        (h ^ u64::from(value.to_bits())).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    })
}

/// Numbers in (−1, 1) that differ between workers.
fn make_up(data: &mut Vec<f32>, count: usize, worker: u8) {
    let word = |call| SignKey { job_seed: 0x5EED, call, partition: u32::from(worker) }.signs().word(0);
    data.extend((0..count).map(|i| (word(i as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0));
}

fn progress(repeat: u32) -> ProgressBar {
    if repeat < 2 || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} all-reduces, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(u64::from(repeat)).with_style(style)
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
    let mut out = std::io::stdout().lock();
    if config.json {
        let report = json!({
            "job": job,
            "worker": worker,
            "workers": workers,
            "mode": if config.mode == Mode::Raw { "raw" } else { "thc" },
            "coordinates": coordinates,
            "repeat": config.repeat,
            "seconds": times.iter().map(Duration::as_secs_f64).collect::<Vec<_>>(),
            "median_seconds": median,
            "bytes_per_coordinate_up": up,
            "bytes_per_coordinate_down": down,
            "stats": stats,
        });
        writeln!(out, "{report}")?;
        return Ok(());
    }
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    writeln!(
        out,
        "{coordinates} coordinate{} averaged over {workers} worker{}, {} time{}",
        plural(coordinates as u64),
        plural(workers.into()),
        config.repeat,
        plural(config.repeat.into())
    )?;
    writeln!(out, "  time            median {:.2} ms, best {:.2} ms", median * 1e3, sorted[0] * 1e3)?;
    writeln!(out, "  bytes           {up:.3} up, {down:.3} down per coordinate (f32: 4)")?;
    writeln!(
        out,
        "  packets         {} up, {} down, {} sent again, {} lost",
        stats.packets_up, stats.packets_down, stats.retransmissions, stats.lost
    )?;
    writeln!(
        out,
        "  time spent      compression {:.2} s, network {:.2} s, waiting {:.2} s",
        stats.compression.as_secs_f64(),
        stats.network.as_secs_f64(),
        stats.waiting.as_secs_f64()
    )?;
    Ok(())
}
