//! Statistics for people: a line at the start and a table at the end.

use std::collections::BTreeMap;
use std::fmt::Write;

use bytesize::ByteSize;
use thc_protocol::Policy;
use thc_protocol::aggregator::Event;
use thc_protocol::wire::Form;

use crate::stats::{ServerStats, WorkerStats};
use thc_config::values::{Fraction, plural};
use thc_config::{job::JobSetup, server::ServerConfig};

/// The line that a server prints when it starts: "thc-ps listening on …, job 1: 4 workers, …". With several
/// shards, the last one's port follows the first.
#[must_use]
pub fn greeting(config: &ServerConfig, listen: std::net::SocketAddr) -> String {
    let mut line = format!("thc-ps listening on {listen}");
    if config.shards > 1 {
        let _ = write!(line, " to {}", listen.port() + u16::from(config.shards) - 1);
    }
    for job in &config.jobs {
        let _ = write!(line, ", {}", describe(job));
    }
    if config.faults.is_some() {
        line += ", injecting faults";
    }
    line
}

fn describe(job: &JobSetup) -> String {
    let (config, welcome) = (&job.config, &job.welcome);
    let first = welcome.tables.first();
    let mut text = format!(
        "job {}: {}, b={} g={} p={}, {} slots, ",
        config.job,
        plural(config.workers.into(), "worker"),
        first.bits,
        first.granularity,
        // Six digits, since the search for tables returns fractions with noise in the others.
        Fraction((first.fraction * 1e6).round() / 1e6),
        config.data_slots
    );
    if config.quorum < config.workers {
        let _ = write!(text, "quorum {}, ", config.quorum);
    }
    if first.form.sums() != 8 {
        let _ = write!(text, "{}, ", lanes(first.form));
    }
    for (i, table) in welcome.tables[1..].iter().enumerate() {
        let separator = if i == 0 { "or table " } else { "" };
        let _ = write!(text, "{separator}{} (b={}, {}), ", table.id, table.bits, lanes(table.form));
    }
    match welcome.policy {
        Policy::Reliable => text += "reliable",
        Policy::BestEffort => {
            let _ = write!(text, "best-effort after {}", humantime::format_duration(welcome.deadline));
        }
    }
    if let Some(nmse) = job.expected_nmse() {
        let _ = write!(text, ", expected NMSE {nmse:.2e}");
    }
    text
}

/// The lanes in which sums travel down.
fn lanes(form: Form) -> String {
    format!("{}-bit lanes", form.sums())
}

fn bytes(count: u64) -> String {
    ByteSize::b(count).display().si().to_string()
}

/// Totals per job and worker as a table.
#[must_use]
pub fn table(stats: &ServerStats) -> String {
    let mut text = format!("totals of {} after {:.1} s\n", stats.listen, stats.seconds);
    for job in &stats.jobs {
        let _ = writeln!(
            text,
            "job {}: {}, sessions {}, results {}, resent {}, nudges {}",
            job.job,
            plural(job.workers.into(), "worker"),
            job.sessions,
            job.results,
            job.resent,
            job.nudges
        );
        let _ = write!(text, "{:>8} {:>12} {:>10}", "worker", "packets", "bytes");
        for event in Event::ALL {
            let _ = write!(text, " {:>10}", event.name());
        }
        let _ = writeln!(text, " {:>10}  reasons", "dropped");
        for worker in &job.members {
            row(&mut text, &worker.worker.to_string(), worker);
        }
        if job.strangers.packets > 0 {
            row(&mut text, "others", &job.strangers);
        }
    }
    let n = &stats.network;
    let _ = writeln!(
        text,
        "network: in {} packets, {}; out {} packets, {}; send errors {}, receive overflows {}",
        n.packets_in,
        bytes(n.bytes_in),
        n.packets_out,
        bytes(n.bytes_out),
        n.send_errors + n.send_failures,
        n.recv_overflows
    );
    let c = &stats.control;
    let _ = writeln!(text, "control: {} packets, {} dropped, {} refused", c.packets, c.dropped, c.refused);
    if stats.memory > 0 {
        let _ = writeln!(text, "memory: {} of jobs", ByteSize::b(stats.memory).display());
    }
    let drops = reasons(&stats.drops);
    if !drops.is_empty() {
        let _ = writeln!(text, "dropped, of no job: {drops}");
    }
    text
}

/// The reasons that have a count.
fn reasons(drops: &BTreeMap<String, u64>) -> String {
    let counted = drops.iter().filter(|(_, count)| **count > 0);
    counted.map(|(reason, count)| format!("{reason} {count}")).collect::<Vec<_>>().join(", ")
}

fn row(text: &mut String, name: &str, worker: &WorkerStats) {
    let _ = write!(text, "{name:>8} {:>12} {:>10}", worker.packets, bytes(worker.bytes));
    for event in Event::ALL {
        let _ = write!(text, " {:>10}", worker.count(event));
    }
    let counts = format!("{:>10}  {}", worker.drop_count(), reasons(&worker.drops));
    let _ = writeln!(text, " {}", counts.trim_end());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_config::server::ServerOptions;

    fn greet(job: &str) -> String {
        let text = format!("shards = 3\n[[job]]\njob = 1\nworkers = 4\ncookie = 0x77\n{job}\n");
        let config = ServerOptions::parse(&text).unwrap().validate().unwrap();
        greeting(&config, "127.0.0.1:9000".parse().unwrap())
    }

    #[test]
    fn the_greeting_says_what_is_served() {
        assert_eq!(
            greet("granularity = 30\nfraction = \"1/32\""),
            "thc-ps listening on 127.0.0.1:9000 to 9002, job 1: 4 workers, b=4 g=30 p=1/32, 1024 slots, reliable, expected NMSE 1.05e-2"
        );
        assert!(
            greet("granularity = 20\nfraction = 0.3\nlane = 16\nquorum = 3\npolicy = \"best-effort\"")
                .contains(
                    "g=20 p=0.3, 1024 slots, quorum 3, 16-bit lanes, best-effort after 200ms, expected"
                )
        );
    }
}
