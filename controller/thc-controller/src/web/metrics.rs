//! The metrics for Prometheus.

use crate::live::{CARRIER, JobReading, WorkerReading};
use crate::service::{Service, places};
use std::fmt;
use thc_config::metrics::{DescriptorEncoder, counters, gauges};
use thc_control_proto::v1::{JobPlace, Target, Use};
use thc_protocol::aggregator::{DropReason, Event};

/// All metrics, as OpenMetrics text.
pub fn text(service: Service) -> Result<String, fmt::Error> {
    thc_config::metrics::text("thc", move |encoder| write(encoder, &service))
}

/// Metrics of targets beside their counters.
fn target_metrics(encoder: &mut DescriptorEncoder<'_>, targets: &[Target]) -> fmt::Result {
    let up = targets.iter().map(|t| ([("target", t.name.clone())], f64::from(u8::from(t.connected))));
    gauges(encoder, "target_up", "Whether the target is connected", up)?;
    let built = [([("version", env!("CARGO_PKG_VERSION").to_owned())], 1.0)];
    gauges(encoder, "controller_build", "The version of this controller", built)?;
    let targets = || targets.iter();
    let repairs = targets().map(|target| ([("target", target.name.clone())], target.repairs));
    counters(encoder, "target_repairs", "How often its rows were repaired", repairs)?;
    let compared = targets().filter_map(|t| Some(([("target", t.name.clone())], t.compared?)));
    gauges(encoder, "target_compared_seconds", "Time since its rows were compared", compared)?;
    let room = |value: fn(&Use) -> u32| {
        targets().flat_map(move |target| {
            let of = |of: &Use| {
                ([("target", target.name.clone()), ("what", of.what.clone())], f64::from(value(of)))
            };
            target.uses.iter().map(of).collect::<Vec<_>>()
        })
    };
    gauges(encoder, "target_room", "What it has room for", room(|of| of.all))?;
    gauges(encoder, "target_used", "What jobs take of that", room(|of| of.used))
}

fn write(encoder: &mut DescriptorEncoder<'_>, service: &Service) -> fmt::Result {
    let unsaved = [([], service.state().unsaved().as_secs_f64())];
    let help = "How long the last change has been waiting to be written to the state file";
    gauges(encoder, "controller_unsaved_seconds", help, unsaved)?;
    let certificates = service.state().certificates.get();
    let expires = certificates.and_then(|certificates| certificates.not_after()).map(|end| ([], end as f64));
    let help = "When the certificate of the service expires, in seconds since 1970";
    gauges(encoder, "certificate_expiry_timestamp_seconds", help, expires)?;
    target_metrics(encoder, &service.targets())?;
    job_metrics(encoder, service)?;
    let counted = service.counters(None);
    let answers = |number: usize| {
        let labels = |job: &JobReading| [("thc_job", job.job.clone()), ("target", job.target.clone())];
        counted.jobs.iter().map(move |job| (labels(job), job.answers[number]))
    };
    counters(encoder, "results", "Sums sent to all workers", answers(0))?;
    counters(encoder, "results_resent", "Sums sent again to one worker", answers(1))?;
    counters(encoder, "nudges", "Answers that say who is missing", answers(2))?;
    counters(encoder, "recirculations", "Passes after the first", answers(3))?;
    worker_metrics(encoder, &counted.jobs)?;
    let others = counted.carrier.iter().flat_map(|(target, dropped)| {
        let dropped = CARRIER.iter().zip(dropped).filter(|(_, packets)| **packets > 0);
        dropped.map(move |((_, reason), &packets)| {
            ([("target", target.clone()), ("reason", (*reason).to_owned())], packets)
        })
    });
    counters(encoder, "carrier_drops", "Packets of no job that were dropped", others)
}

fn job_metrics(encoder: &mut DescriptorEncoder<'_>, service: &Service) -> fmt::Result {
    // Name, workers and places of each job.
    let jobs: Vec<(String, u8, Vec<JobPlace>)> = {
        let (store, views) = (service.state().store(), service.state().views());
        let jobs = store.jobs.iter();
        jobs.map(|(name, job)| (name.clone(), job.spec.config().workers, places(job, &views).collect()))
            .collect()
    };
    gauges(encoder, "jobs", "Jobs", [([], jobs.len() as f64)])?;
    let workers = jobs.iter().map(|(name, workers, _)| ([("thc_job", name.clone())], f64::from(*workers)));
    gauges(encoder, "job_workers", "Workers that the job is for", workers)?;
    let places = || {
        jobs.iter().flat_map(|(name, _, places)| {
            places.iter().map(|place| ([("thc_job", name.clone()), ("target", place.target.clone())], place))
        })
    };
    let joined = places().map(|(labels, place)| (labels, f64::from(place.joined.count_ones())));
    gauges(encoder, "job_workers_joined", "Workers that are here", joined)?;
    let running = places().map(|(labels, place)| (labels, f64::from(u8::from(place.running))));
    gauges(encoder, "job_running", "Whether the job's session runs", running)?;
    let sessions = places().map(|(labels, place)| (labels, u64::from(place.sessions)));
    counters(encoder, "job_sessions", "Sessions begun", sessions)
}

fn worker_metrics(encoder: &mut DescriptorEncoder<'_>, jobs: &[JobReading]) -> fmt::Result {
    let workers = || {
        jobs.iter().flat_map(|job| {
            job.workers.iter().map(move |worker| {
                let labels = [
                    ("thc_job", job.job.clone()),
                    ("target", job.target.clone()),
                    ("worker", worker.worker.to_string()),
                ];
                (labels, worker)
            })
        })
    };
    let of_workers =
        |value: fn(&WorkerReading) -> u64| workers().map(move |(labels, worker)| (labels, value(worker)));
    counters(encoder, "packets", "Packets of a worker that came", of_workers(|w| w.counted.packets))?;
    counters(encoder, "bytes", "Bytes of a worker's frames that came", of_workers(|w| w.counted.bytes))?;
    let events = workers().flat_map(|([job, target, worker], w)| {
        Event::ALL.iter().zip(w.counted.events).map(move |(event, packets)| {
            ([job.clone(), target.clone(), worker.clone(), ("event", event.name().to_owned())], packets)
        })
    });
    counters(encoder, "packet_events", "What became of packets that were let in", events)?;
    let drops = workers().flat_map(|([job, target, worker], w)| {
        let drops = DropReason::ALL.iter().zip(w.counted.drops).filter(|(_, packets)| *packets > 0);
        drops.map(move |(reason, packets)| {
            ([job.clone(), target.clone(), worker.clone(), ("reason", reason.name().to_owned())], packets)
        })
    });
    counters(encoder, "drops", "Packets of a worker that were dropped", drops)?;
    let silent = workers().filter_map(|(labels, w)| Some((labels, w.silent?)));
    gauges(encoder, "worker_silent_seconds", "Time since a worker's last packet", silent)?;
    let lag = workers().filter_map(|(labels, w)| Some((labels, w.behind? as f64)));
    let help = "Packets in sums of this session that a worker is behind the foremost";
    gauges(encoder, "worker_lag_packets", help, lag)?;
    let trips = workers().filter_map(|(labels, w)| {
        let report = w.report?;
        (report.round_trip_us > 0).then(|| (labels, f64::from(report.round_trip_us) / 1e6))
    });
    gauges(encoder, "worker_round_trip_seconds", "Round-trip time that a worker reports", trips)?;
    let repeated = workers().filter_map(|(labels, w)| Some((labels, w.report?.repeated_packets)));
    counters(encoder, "worker_repeated_packets", "Packets that a worker reports to have sent again", repeated)
}
