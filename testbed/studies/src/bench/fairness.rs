//! How jobs share a link: each with a server of its own behind the same link, which has a shallow queue.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use thc_netns::{Network, Queue};

use super::crew::Crew;
use super::part::{Part, WorkerPart};
use crate::charts::Table;
use crate::error::{Error, Result};
use crate::units::{Link, Rate, size};

/// The first job's server; the others' are behind it.
const PORT: u16 = 9000;
/// A RESULT on the wire: 1024 sums of 8 bits, and the headers of THC, UDP, IPv4 and Ethernet.
const PACKET: u32 = 1024 + 20 + 28 + 14;

/// `thc bench fairness`
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Hosts are network namespaces of this machine, made for the run and removed after it, which needs root. Every job has its \
own\nserver; all servers are on one host, whose link all packets pass. A job's part is its all-reduces that ended while all \
jobs\nran. Jain's index is 1 where all parts are the same, 1/jobs where one has all.\n\n\
Examples:\n  thc bench fairness\n  thc bench fairness --jobs 4 --queue 128 --json"
)]
pub struct FairnessArgs {
    /// Jobs that share the link
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=8))]
    jobs: u8,
    /// Workers of each, on hosts of their own
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    workers: u8,
    /// What the link carries, each way
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    rate: Link,
    /// RESULTs that its queues hold, each way
    #[arg(long, value_name = "PACKETS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=100_000))]
    queue: u32,
    /// Bytes of the tensor of f32
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = size)]
    size: u64,
    /// All-reduces of each job
    #[arg(long, value_name = "NUMBER", default_value_t = 60, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    calls: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One job's part.
#[derive(Clone, Debug, Serialize)]
struct Shared {
    job: u16,
    /// Coordinates a second, while all jobs ran.
    coordinates_per_second: f64,
    /// Seconds of all its all-reduces.
    seconds: f64,
    /// Packets that its workers sent, and how many of them again.
    packets: u64,
    again: u64,
    /// Means over its workers: round trips in seconds, data packets that may be outstanding at the end, how often that was reduced.
    round_trip: f64,
    shortest_round_trip: f64,
    window: f64,
    decreases: f64,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
struct Fairness {
    workers: u8,
    rate: u64,
    queue: u32,
    jobs: Vec<Shared>,
    jain: f64,
    /// What the busier way of the link carried, of its rate, until the last job had ended.
    utilization: f64,
    /// The share of all packets, both ways, that found the queue full.
    loss: f64,
}

/// (Σ x)² / (n · Σ x²).
fn jain(parts: &[f64]) -> f64 {
    let sum: f64 = parts.iter().sum();
    let squares: f64 = parts.iter().map(|part| part * part).sum();
    if squares > 0.0 { sum * sum / (parts.len() as f64 * squares) } else { 0.0 }
}

fn nanos(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or(0)
}

impl FairnessArgs {
    /// Measures and reports.
    pub fn run(&self) -> Result<()> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(Error::Process)?;
        }
        let found = self.measure(&interrupted)?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&found).map_err(Error::Event)?);
        } else {
            println!("{}", found.table());
        }
        Ok(())
    }

    fn measure(&self, interrupted: &Arc<AtomicBool>) -> Result<Fairness> {
        let no = |reason| Error::NoNetwork { reason };
        let Some(Rate(bits)) = self.rate.0 else {
            return Err(Error::NoNetwork {
                reason: "the loopback interface has no rate to share".to_owned(),
            });
        };
        let workers = usize::from(self.jobs) * usize::from(self.workers);
        let network = Network::star(workers as u8 + 1).map_err(no)?;
        network.hosts().iter().try_for_each(thc_netns::Host::assign).map_err(no)?;
        network.shape_shallow(workers, bits, self.queue, PACKET).map_err(no)?;
        let program = std::env::current_exe().map_err(Error::Process)?;
        let cookie = thc_ps::cookie::random();
        let mut servers = Crew::new(Arc::clone(interrupted));
        let mut crew = Crew::new(Arc::clone(interrupted));
        for job in 1..=u16::from(self.jobs) {
            let at = SocketAddr::from((network.host(workers).address, PORT + job));
            let n = self.workers;
            let file = format!("listen = \"{at}\"\n[[job]]\njob = {job}\ncookie = {cookie}\nworkers = {n}\n");
            let mut command = network.host(workers).command(&program);
            command.arg("bench-part");
            let part = Part { server: Some(file), worker: None, core: None };
            servers.start(format!("the server of job {job}"), &mut command, &json!(part))?;
        }
        servers.answers()?;
        for job in 1..=u16::from(self.jobs) {
            for number in 0..self.workers {
                let host =
                    network.host(usize::from(job - 1) * usize::from(self.workers) + usize::from(number));
                let worker = WorkerPart {
                    job,
                    number,
                    rank: number,
                    workers: self.workers,
                    ps: SocketAddr::from((network.host(workers).address, PORT + job)),
                    cookie,
                    coordinates: (self.size / 4) as usize,
                    calls: self.calls,
                    threads: Some(1),
                    feedback: false,
                };
                let mut command = host.command(&program);
                command.arg("bench-part");
                let part = Part { server: None, worker: Some(worker), core: None };
                crew.start(format!("worker {number} of job {job}"), &mut command, &json!(part))?;
            }
        }
        crew.answers()?;
        let before = network.queues(workers).map_err(no)?;
        let answers = crew.ask("go")?;
        let after = network.queues(workers).map_err(no)?;
        Ok(self.evaluate(bits, &answers, &before, &after))
    }

    fn evaluate(&self, bits: u64, answers: &[Value], before: &[Queue], after: &[Queue]) -> Fairness {
        let of_jobs = || answers.chunks(self.workers.into());
        let latest = |of: &[Value], key| of.iter().map(|answer| nanos(answer, key)).max().unwrap_or(0);
        let began = latest(answers, "began");
        let first_end = of_jobs().map(|of| latest(of, "ended")).min().unwrap_or(0);
        let together = first_end.saturating_sub(began) as f64 / 1e9;
        let jobs: Vec<Shared> = (1u16..)
            .zip(of_jobs())
            .map(|(job, of)| {
                let ends: Vec<u64> =
                    of[0]["ends"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
                // Of the one under way at either end, the part that lies between.
                let mut calls = 0.0;
                let mut from = nanos(&of[0], "began");
                for end in ends {
                    let inside = end.min(first_end).saturating_sub(from.max(began)) as f64;
                    calls += inside / end.saturating_sub(from).max(1) as f64;
                    from = end;
                }
                let mean = |key: &str| {
                    of.iter().filter_map(|answer| answer[key].as_f64()).sum::<f64>() / of.len() as f64
                };
                let sum = |key| of.iter().map(|answer| nanos(answer, key)).sum();
                Shared {
                    job,
                    coordinates_per_second: calls * (self.size / 4) as f64 / together.max(1e-9),
                    seconds: latest(of, "ended").saturating_sub(latest(of, "began")) as f64 / 1e9,
                    packets: sum("packets"),
                    again: sum("again"),
                    round_trip: mean("round_trip"),
                    shortest_round_trip: mean("shortest_round_trip"),
                    window: mean("window"),
                    decreases: mean("decreases"),
                }
            })
            .collect();
        let parts: Vec<f64> = jobs.iter().map(|job| job.coordinates_per_second).collect();
        let seconds = latest(answers, "ended").saturating_sub(began) as f64 / 1e9;
        let carried =
            before.iter().zip(after).map(|(before, after)| after.bytes - before.bytes).max().unwrap_or(0);
        let count = |of: fn(&Queue) -> u64| {
            before.iter().zip(after).map(|(before, after)| of(after) - of(before)).sum::<u64>() as f64
        };
        let (sent, dropped) = (count(|queue| queue.packets), count(|queue| queue.dropped));
        Fairness {
            workers: self.workers,
            rate: bits,
            queue: self.queue,
            jain: jain(&parts),
            utilization: carried as f64 * 8.0 / bits as f64 / seconds.max(1e-9),
            loss: dropped / (sent + dropped).max(1.0),
            jobs,
        }
    }
}

impl Fairness {
    fn table(&self) -> String {
        let header = [
            "job",
            "M coordinates/s",
            "s",
            "packets",
            "again",
            "round trip ms",
            "shortest",
            "window",
            "decreases",
        ];
        let row = |job: &Shared| {
            vec![
                job.job.to_string(),
                format!("{:.2}", job.coordinates_per_second / 1e6),
                format!("{:.2}", job.seconds),
                job.packets.to_string(),
                job.again.to_string(),
                format!("{:.3}", job.round_trip * 1e3),
                format!("{:.3}", job.shortest_round_trip * 1e3),
                format!("{:.0}", job.window),
                format!("{:.0}", job.decreases),
            ]
        };
        format!(
            "{}{} jobs of {} workers, {} Gb/s, queue of {} packets: Jain {:.4}, {:.2} % lost, {:.1} % of the rate",
            Table::new(&header, self.jobs.iter().map(row)).to_text(),
            self.jobs.len(),
            self.workers,
            self.rate as f64 / 1e9,
            self.queue,
            self.jain,
            self.loss * 100.0,
            self.utilization * 100.0
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_index_of_shares() {
        assert!((jain(&[2.0, 2.0, 2.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[3.0, 0.0]) - 0.5).abs() < 1e-12);
        assert!((jain(&[]) - 0.0).abs() < 1e-12);
    }
}
