//! One process of a measurement: a worker, with its share of the server if it has one, or a server.

use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thc_codec::buffer::Buffer;
use thc_codec::signs::SignKey;
use thc_ps::{Server, ServerOptions};
use thc_worker::{Call, Group, GroupConfig, Seat};

use crate::error::{Error, Result};

/// The time for which a server waits at its end for workers that have not left.
const LINGER: Duration = Duration::from_secs(8);
/// Coordinates whose exact mean is known everywhere.
const CHECKED: usize = 4096;

/// The role of a process, which is its first order.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Part {
    /// The server's configuration, as TOML, if there is one in this process.
    pub server: Option<String>,
    /// The worker, if it is one.
    pub worker: Option<WorkerPart>,
}

/// The role of a worker.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct WorkerPart {
    /// Its number among all.
    pub rank: u8,
    /// n.
    pub workers: u8,
    /// The server that it joins.
    pub ps: SocketAddr,
    /// The job's secret.
    pub cookie: u32,
    /// Coordinates of the tensor.
    pub coordinates: usize,
    /// All-reduces in a row that are timed together.
    pub calls: u32,
}

/// Nanoseconds of a clock.
fn clock(which: ClockId) -> u64 {
    let time = clock_gettime(which);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU seconds of this process so far.
fn cpu() -> f64 {
    clock(ClockId::ProcessCPUTime) as f64 / 1e9
}

fn say(answer: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}").and_then(|()| out.flush()).map_err(Error::Output)
}

/// A number in (−1, 1): the same everywhere for a worker and a coordinate.
fn value(worker: u8, index: usize) -> f32 {
    let key = SignKey { job_seed: 0xBE7C, call: u64::from(worker), partition: (index >> 10) as u32 };
    let word = key.signs().word((index & 1023) as u64);
    (word >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// Does what the lines on stdin say, until they end.
pub fn run() -> Result<()> {
    let mut lines = std::io::stdin().lock().lines().map_while(std::result::Result::ok);
    let Some(first) = lines.next() else { return Ok(()) };
    let part: Part = serde_json::from_str(&first).map_err(Error::Event)?;
    let server = match &part.server {
        None => None,
        Some(text) => {
            let options = ServerOptions::parse(text).map_err(Error::failure)?;
            Some(Server::start(options.validate().map_err(Error::failure)?).map_err(Error::failure)?)
        }
    };
    match part.worker {
        None => {
            say(&json!({}))?;
            for _ in lines {
                say(&json!({ "cpu": cpu() }))?;
            }
        }
        Some(worker) => work(&worker, lines)?,
    }
    if let Some(server) = server {
        server.wait_for_leaving(LINGER);
    }
    Ok(())
}

fn work(part: &WorkerPart, lines: impl Iterator<Item = String>) -> Result<()> {
    let seat = Seat { ps: part.ps, worker: part.rank, cookie: part.cookie, ..Seat::default() };
    let config = GroupConfig { seat, ..GroupConfig::default() };
    let group = Group::join(config).map_err(Error::failure)?;
    let original: Vec<f32> = (0..part.coordinates).map(|index| value(part.rank, index)).collect();
    let mean = |index| {
        let sum: f64 = (0..part.workers).map(|worker| f64::from(value(worker, index))).sum();
        sum / f64::from(part.workers)
    };
    let exact: Vec<f64> = (0..CHECKED.min(part.coordinates)).map(mean).collect();
    // It begins at a cache line, as torch's tensors do.
    let mut data = Buffer::from(&original[..]);
    say(&json!({}))?;
    for order in lines {
        let answer = match order.as_str() {
            "fill" => {
                data.copy_from_slice(&original);
                json!({})
            }
            "cpu" => json!({ "cpu": cpu() }),
            "check" => judge(&data, &exact),
            "once" => reduce(&group, 1, &mut data)?,
            _ => reduce(&group, part.calls, &mut data)?,
        };
        say(&answer)?;
    }
    drop(group);
    Ok(())
}

/// Reduces `data` so many times in a row. What that took.
fn reduce(group: &Group, calls: u32, data: &mut [f32]) -> Result<Value> {
    let before = group.stats().map_err(Error::failure)?;
    let began = clock(ClockId::Monotonic);
    for _ in 0..calls {
        group.call(data, Call::default()).map_err(Error::failure)?;
    }
    let ended = clock(ClockId::Monotonic);
    let after = group.stats().map_err(Error::failure)?;
    Ok(json!({
        "began": began,
        "ended": ended,
        "again": after.retransmissions - before.retransmissions,
        "bytes": after.bytes_up + after.bytes_down - before.bytes_up - before.bytes_down,
    }))
}

/// The error and the bits of a mean.
fn judge(data: &[f32], exact: &[f64]) -> Value {
    let error: f64 = data.iter().zip(exact).map(|(x, mean)| (f64::from(*x) - mean).powi(2)).sum();
    let norm: f64 = exact.iter().map(|mean| mean * mean).sum();
    let bits =
        data.iter().fold(0u64, |h, x| (h ^ u64::from(x.to_bits())).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    json!({ "nmse": if norm > 0.0 { error / norm } else { 0.0 }, "checksum": format!("{bits:016x}") })
}
