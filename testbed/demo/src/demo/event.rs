//! Events that child processes report to the demo as JSON lines on their standard output.

use std::io::Write;

use serde::{Deserialize, Serialize};
use thc_ps::ServerStats;

use crate::error::{Error, Result};

/// The seconds that a worker spent, by activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Forward, backward and optimizer.
    pub computing: f64,
    /// Transform, quantization, packing and their inverses.
    pub compression: f64,
    /// Sending and receiving packets.
    pub communication: f64,
    /// Idle in the all-reduce: for other workers or the parameter server.
    pub waiting: f64,
}

/// The traffic of a worker in the all-reduces of the training, without those that measure errors.
/// Bytes count from the IP header on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Coordinates all-reduced.
    pub coordinates: u64,
    /// Bytes to the parameter server.
    pub bytes_up: u64,
    /// Bytes from the parameter server.
    pub bytes_down: u64,
    /// Packets to the parameter server.
    pub packets_up: u64,
    /// Packets from the parameter server.
    pub packets_down: u64,
    /// Packets sent more than once.
    pub retransmissions: u64,
}

impl Traffic {
    /// Adds another worker's traffic.
    pub fn add(&mut self, other: &Self) {
        self.coordinates += other.coordinates;
        self.bytes_up += other.bytes_up;
        self.bytes_down += other.bytes_down;
        self.packets_up += other.packets_up;
        self.packets_down += other.packets_down;
        self.retransmissions += other.retransmissions;
    }
}

/// The parameter server's counters, which include the all-reduces that measure errors.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Server {
    /// Slots completed, each answered by one result to all workers.
    pub results: u64,
    /// Results sent again to a single worker.
    pub resent: u64,
    /// Packets dropped, for any reason.
    pub dropped: u64,
}

impl Server {
    /// The totals of a server, or of a share of one.
    pub(crate) fn from_totals(totals: &ServerStats) -> Self {
        let dropped: u64 =
            totals.jobs.iter().flat_map(|job| &job.members).map(|member| member.drop_count()).sum();
        Self {
            results: totals.jobs.iter().map(|job| job.results).sum(),
            resent: totals.jobs.iter().map(|job| job.resent).sum(),
            dropped: totals.drops.values().sum::<u64>() + dropped,
        }
    }

    /// Adds another share.
    pub fn add(&mut self, other: &Self) {
        self.results += other.results;
        self.resent += other.resent;
        self.dropped += other.dropped;
    }
}

/// The error of a step's averaged gradient relative to the exact mean of the workers' gradients, as NMSE.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ErrorSample {
    /// The step.
    pub step: u32,
    /// The error of the gradient that was applied. It includes error feedback, which is what earlier steps lost, so its distance
    /// from this step's mean is larger than that of compression alone.
    pub applied: f64,
    /// The error of an all-reduce of the same gradients without error feedback.
    pub without_feedback: f64,
}

/// ‖estimate − mean‖² / ‖mean‖².
pub fn nmse(mean: &[f32], estimate: &[f32]) -> f64 {
    let (mut error, mut norm) = (0.0, 0.0);
    for (mean, estimate) in mean.iter().map(|v| f64::from(*v)).zip(estimate) {
        error += (f64::from(*estimate) - mean).powi(2);
        norm += mean * mean;
    }
    error / norm
}

/// The outcome of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Loss on the held-out part of the text, nats per character.
    pub held_out: f32,
    /// Digest of the final parameters' bits; equal on all workers if they stayed in step.
    pub digest: String,
    /// The time by activity.
    pub times: Times,
    /// Network traffic; `None` in the exact run.
    pub traffic: Option<Traffic>,
    /// Totals of the share of the server that was beside the worker.
    pub server: Option<Server>,
}

/// One line from a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// The process is about to take its first step.
    Ready {
        /// Parameters of the model.
        parameters: usize,
    },
    /// A step is done.
    Step {
        /// Its number, from 0.
        step: u32,
        /// Training loss before the update, nats per character.
        loss: f32,
    },
    /// The errors of a step.
    Sample(ErrorSample),
    /// The run is over.
    Done(Outcome),
}

impl Event {
    /// Writes the event as one line to standard output.
    pub fn emit(&self) -> Result<()> {
        let mut line = serde_json::to_string(self).map_err(Error::Event)?;
        line.push('\n');
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(Error::Output)
    }

    /// Reads a line that a child wrote.
    pub fn parse(line: &str) -> Result<Self> {
        serde_json::from_str(line).map_err(Error::Event)
    }
}
