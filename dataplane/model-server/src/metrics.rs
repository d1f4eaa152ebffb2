//! The server's metrics.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use thc_config::metrics::{DescriptorEncoder, MetricsServer, counters, gauges};
use thc_model::{ModelJobStats, ModelServer, ModelServerStats, ModelStats};

/// Serves the server's counters.
pub fn serve(at: SocketAddr, server: Arc<ModelServer>) -> io::Result<MetricsServer> {
    let make = move || {
        let stats = server.stats();
        thc_config::metrics::text("thc_model", move |encoder| write(encoder, &stats))
    };
    MetricsServer::serve(at, make)
}

fn write(encoder: &mut DescriptorEncoder<'_>, stats: &ModelServerStats) -> fmt::Result {
    let refused = stats.refused.iter().map(|(reason, count)| (None, *reason, *count));
    let of_jobs = stats.jobs.iter().flat_map(|(job, stats)| {
        stats.refused.iter().map(move |(reason, count)| (Some(job), *reason, *count))
    });
    let rows = refused.chain(of_jobs).map(|(job, reason, count)| {
        let job = job.cloned().unwrap_or_default();
        ([("thc_job", job), ("reason", reason.to_owned())], count)
    });
    counters(
        encoder,
        "refused",
        "Requests and connections refused; without a job, before it was known",
        rows,
    )?;
    let each = |value: fn(&ModelJobStats) -> u64| {
        stats.jobs.iter().map(move |(job, stats)| ([("thc_job", job.clone())], value(stats)))
    };
    counters(encoder, "connections", "Connections of workers that ever were", each(|job| job.connections))?;
    counters(encoder, "pulls", "Pulls answered, of one shard each", each(|job| job.pulls))?;
    counters(encoder, "pushes", "Pushes taken, of one shard each", each(|job| job.pushes))?;
    counters(encoder, "pulled_bytes", "Bytes of vectors pulled", each(|job| job.pulled_bytes))?;
    counters(encoder, "pushed_bytes", "Bytes of vectors pushed", each(|job| job.pushed_bytes))?;
    counters(encoder, "saves", "State files written", each(|job| job.saves))?;
    models(encoder, stats)
}

fn models(encoder: &mut DescriptorEncoder<'_>, stats: &ModelServerStats) -> fmt::Result {
    let each = |value: fn(&ModelStats) -> u64| {
        stats.jobs.iter().flat_map(move |(job, stats)| {
            stats.models.iter().map(move |model| {
                ([("thc_job", job.clone()), ("thc_model", model.name.clone())], value(model) as f64)
            })
        })
    };
    let mut gauge = |name: &str, help: &str, value| gauges(encoder, name, help, each(value));
    gauge("version", "Pushes taken by the model's slowest shard", |model| model.version)?;
    gauge("durable_version", "Of these, the ones in its state file", |model| {
        model.shards.iter().map(|shard| shard.durable).min().unwrap_or(0)
    })?;
    gauge("longest_delay", "Longest delay of a push, in steps", |model| {
        model.shards.iter().map(|shard| shard.longest_delay).max().unwrap_or(0)
    })?;
    gauge("stopped_shards", "Shards that take no pushes now", |model| {
        model.shards.iter().filter(|shard| shard.phase != "running").count() as u64
    })
}
