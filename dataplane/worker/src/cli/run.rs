//! A run: join, reduce, write, report.

use super::options::{Plan, Source};
use super::{capture, tensors};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use thc_codec::signs::SignKey;
use thc_protocol::worker::SessionError;
use thc_worker::{CallOptions, Group, Mode, Stats, WorkerError};

type Reduced = (Vec<Duration>, Vec<Vec<f32>>);

/// Carries out a plan.
pub fn run(plan: &Plan) -> anyhow::Result<()> {
    let input = match &plan.source {
        Source::File { input, .. } => tensors::read(input)?,
        Source::MadeUp(_) => Vec::new(),
    };
    let mut config = plan.group.clone();
    config.capture = plan.capture.as_ref().map(capture::open).transpose()?;
    let group = Group::join(config)?;
    let workers = group.parameters()?.workers;
    let (job, worker) = (group.job(), group.worker());
    match &plan.group.controller {
        Some(controller) => tracing::info!("joined {} as worker {worker} of {workers}", controller.url),
        None => tracing::info!("joined job {job} as worker {worker} of {workers}"),
    }
    let data: Vec<(u64, Vec<f32>)> = match &plan.source {
        Source::MadeUp(count) => vec![(1, made_up(*count, worker))],
        Source::File { .. } => input.iter().map(|t| (key(&t.name), t.data.clone())).collect(),
    };
    let bar = progress(plan.repeat);
    let (times, means) = loop {
        match reduce(&group, plan, &data, &bar) {
            Err(WorkerError::Session(
                end @ (SessionError::Reforming { .. } | SessionError::Changed { .. }),
            )) if plan.rejoin => {
                tracing::warn!("{end}; joining anew and beginning again");
                for (key, _) in &data {
                    group.reset_feedback(*key)?;
                }
                group.rejoin()?;
            }
            done => break done?,
        }
    };
    bar.finish_and_clear();
    if let Source::File { output: Some(output), .. } = &plan.source {
        let mut results = input;
        results.iter_mut().zip(means).for_each(|(tensor, mean)| tensor.data = mean);
        tensors::write(output, &results)?;
    }
    let stats = group.stats()?;
    drop(group);
    let coordinates = data.iter().map(|(_, data)| data.len()).sum();
    report(plan, (job, worker, workers), coordinates, &times, &stats)
}

/// All repetitions: how long each took, and the last one's means.
fn reduce(
    group: &Group,
    plan: &Plan,
    data: &[(u64, Vec<f32>)],
    bar: &ProgressBar,
) -> Result<Reduced, WorkerError> {
    bar.reset();
    let mut times = Vec::new();
    let mut means = Vec::new();
    for _ in 0..plan.repeat {
        let mut work: Vec<Vec<f32>> = data.iter().map(|(_, d)| d.clone()).collect();
        let started = Instant::now();
        if let [only] = work.as_mut_slice() {
            group.allreduce_with(only, options(plan, data[0].0))?;
            means = work;
        } else {
            let started: Result<Vec<_>, _> = data
                .iter()
                .zip(work)
                .map(|((key, _), tensor)| group.allreduce_async(tensor, options(plan, *key)))
                .collect();
            means = started?.into_iter().map(thc_worker::Handle::wait).collect::<Result<_, _>>()?;
        }
        times.push(started.elapsed());
        bar.inc(1);
    }
    Ok((times, means))
}

fn options(plan: &Plan, key: u64) -> CallOptions {
    CallOptions { mode: plan.mode, feedback: plan.error_feedback.then_some(key) }
}

/// FNV-1a: the same name is the same tensor on every worker.
fn key(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Numbers in (−1, 1) that differ between workers.
fn made_up(count: usize, worker: u8) -> Vec<f32> {
    let word = |round| SignKey { job_seed: 0x5EED, round, partition: u32::from(worker) }.signs().word(0);
    (0..count).map(|i| (word(i as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
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
    plan: &Plan,
    (job, worker, workers): (u16, u8, u8),
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
    if plan.json {
        let report = json!({
            "job": job,
            "worker": worker,
            "workers": workers,
            "mode": if plan.mode == Mode::Raw { "raw" } else { "thc" },
            "coordinates": coordinates,
            "repeat": plan.repeat,
            "seconds": times.iter().map(Duration::as_secs_f64).collect::<Vec<_>>(),
            "median_seconds": median,
            "bytes_per_coordinate_up": up,
            "bytes_per_coordinate_down": down,
            "stats": stats,
        });
        writeln!(out, "{report}")?;
        return Ok(());
    }
    writeln!(out, "{} coordinates averaged over {workers} workers, {} times", coordinates, plan.repeat)?;
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
