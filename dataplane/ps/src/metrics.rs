//! The metrics of a server.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use thc_config::metrics::{DescriptorEncoder, MetricsServer, counters, gauges};
use thc_ps::{JobStats, NetworkStats, Server, ServerStats, WorkerStats};

/// Serves the server's counters.
pub fn serve(at: SocketAddr, server: Arc<Server>) -> io::Result<MetricsServer> {
    let make = move || {
        let shards = server.shard_stats();
        thc_config::metrics::text("thc_ps", move |encoder| write(encoder, &shards))
    };
    MetricsServer::serve(at, make)
}

/// The counters of each shard, by its number.
type Shards = [(u8, ServerStats)];

fn write(encoder: &mut DescriptorEncoder<'_>, shards: &Shards) -> fmt::Result {
    // Jobs and sessions are the same in all shards.
    let Some((_, server)) = shards.first() else { return Ok(()) };
    gauges(encoder, "uptime_seconds", "Time since the server's start", [([], server.seconds)])?;
    let memory: u64 = shards.iter().map(|(_, stats)| stats.memory).sum();
    gauges(encoder, "memory_bytes", "Bytes that jobs take", [([], memory as f64)])?;
    jobs(encoder, &server.jobs)?;
    answers(encoder, shards)?;
    workers(encoder, shards)?;
    network(encoder, shards)?;
    let control = &server.control;
    let dropped: u64 = shards.iter().map(|(_, stats)| stats.control.dropped).sum();
    let rows = [("taken", control.packets), ("dropped", dropped), ("refused", control.refused)];
    let rows = rows.map(|(event, count)| ([("event", event.to_owned())], count));
    counters(encoder, "control_packets", "JOIN and LEAVE packets", rows)?;
    let drops = shards.iter().flat_map(|(shard, stats)| {
        let named = move |(reason, &count): (&String, &u64)| {
            ([number_label("shard", shard), ("reason", reason.clone())], count)
        };
        stats.drops.iter().map(named)
    });
    counters(encoder, "carrier_drops", "Packets of no job that were dropped", drops)
}

fn number_label(label: &'static str, number: impl fmt::Display) -> (&'static str, String) {
    (label, number.to_string())
}

fn jobs(encoder: &mut DescriptorEncoder<'_>, jobs: &[JobStats]) -> fmt::Result {
    let each = |value: fn(&JobStats) -> f64| {
        jobs.iter().map(move |job| ([number_label("thc_job", job.job)], value(job)))
    };
    gauges(encoder, "job_workers", "Workers that the job is for", each(|job| f64::from(job.workers)))?;
    gauges(encoder, "job_workers_joined", "Workers that are here", each(|job| job.joined.len() as f64))?;
    let running = each(|job| f64::from(u8::from(job.running)));
    gauges(encoder, "job_running", "Whether the job's session runs", running)?;
    let sessions = jobs.iter().map(|job| ([number_label("thc_job", job.job)], job.sessions));
    counters(encoder, "job_sessions", "Sessions begun", sessions)
}

fn answers(encoder: &mut DescriptorEncoder<'_>, shards: &Shards) -> fmt::Result {
    let each = |value: fn(&JobStats) -> u64| {
        shards.iter().flat_map(move |(shard, stats)| {
            stats.jobs.iter().map(move |job| {
                ([number_label("thc_job", job.job), number_label("shard", shard)], value(job))
            })
        })
    };
    counters(encoder, "results", "Sums sent to all workers", each(|job| job.results))?;
    counters(encoder, "results_resent", "Sums sent again to one worker", each(|job| job.resent))?;
    counters(encoder, "nudges", "Answers that say who is missing", each(|job| job.nudges))
}

fn workers(encoder: &mut DescriptorEncoder<'_>, shards: &Shards) -> fmt::Result {
    let rows = || {
        shards.iter().flat_map(|(shard, stats)| {
            stats.jobs.iter().flat_map(move |job| {
                let members = job.members.iter().map(|worker| (worker.worker.to_string(), worker));
                members.chain([("others".to_owned(), &job.strangers)]).map(move |(name, worker)| {
                    (
                        [number_label("thc_job", job.job), number_label("shard", shard), ("worker", name)],
                        worker,
                    )
                })
            })
        })
    };
    let each = |value: fn(&WorkerStats) -> u64| rows().map(move |(labels, worker)| (labels, value(worker)));
    counters(encoder, "packets", "Packets of a worker that came", each(|worker| worker.packets))?;
    let help = "Bytes of a worker's packets that came, from the protocol's header upwards";
    counters(encoder, "bytes", help, each(|worker| worker.bytes))?;
    let by = |label: &'static str, counts: fn(&WorkerStats) -> &BTreeMap<String, u64>| {
        rows().flat_map(move |([job, shard, worker], stats)| {
            counts(stats).iter().map(move |(name, &count)| {
                ([job.clone(), shard.clone(), worker.clone(), (label, name.clone())], count)
            })
        })
    };
    let events = by("event", |worker| &worker.events);
    counters(encoder, "packet_events", "What became of packets that were let in", events)?;
    counters(encoder, "drops", "Packets of a worker that were dropped", by("reason", |worker| &worker.drops))
}

fn network(encoder: &mut DescriptorEncoder<'_>, shards: &Shards) -> fmt::Result {
    let both = |values: fn(&NetworkStats) -> [u64; 2]| {
        shards.iter().flat_map(move |(shard, stats)| {
            let named = ["in", "out"].into_iter().zip(values(&stats.network));
            named.map(move |(way, count)| {
                ([number_label("shard", shard), ("direction", way.to_owned())], count)
            })
        })
    };
    let each = |value: fn(&NetworkStats) -> u64| {
        shards.iter().map(move |(shard, stats)| ([number_label("shard", shard)], value(&stats.network)))
    };
    counters(encoder, "network_packets", "Datagrams", both(|n| [n.packets_in, n.packets_out]))?;
    let help = "Bytes of datagrams, from the IPv4 header upwards";
    counters(encoder, "network_bytes", help, both(|n| [n.bytes_in, n.bytes_out]))?;
    let errors = each(|n| n.send_errors + n.send_failures);
    counters(encoder, "network_send_errors", "Datagrams that could not be sent", errors)?;
    let help = "How often a receive buffer was full";
    counters(encoder, "network_receive_overflows", help, each(|n| n.recv_overflows))
}
