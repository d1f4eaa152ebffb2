//! What a demo run does: the same for the exact run and for every worker process, handed to
//! child processes as one JSON argument.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::memif::Link;
use super::server::Share;

/// How many steps of a run have their gradients kept for measuring the error.
const SAMPLES: u32 = 10;

/// Everything that determines the training, so that two runs of one plan differ only in how
/// gradients are averaged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DemoPlan {
    /// The text to learn.
    pub text: PathBuf,
    /// Workers, each with its own batches.
    pub workers: u8,
    /// Optimizer steps.
    pub steps: u32,
    /// Rows per worker and step.
    pub batch: usize,
    /// Width of the model's hidden layers.
    pub hidden: usize,
    /// Seed of initial parameters and batches.
    pub seed: u64,
    /// First step size; it falls linearly to a tenth.
    pub learning_rate: f64,
}

impl DemoPlan {
    /// Step size of `step`.
    pub fn rate(&self, step: u32) -> f64 {
        self.learning_rate * (1.0 - 0.9 * f64::from(step) / f64::from(self.steps))
    }

    /// Whether the gradients of `step` are measured: about ten steps, evenly spread, and the
    /// first among them.
    pub fn samples(&self, step: u32) -> bool {
        step.is_multiple_of(self.steps.div_ceil(SAMPLES))
    }
}

/// A worker process: the plan and where its parameter server is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerPlan {
    /// What all workers do.
    pub plan: DemoPlan,
    /// This worker's number.
    pub worker: u8,
    /// The parameter server.
    pub server: SocketAddr,
    /// The share of the server that is beside this worker; else the server is a process of its own.
    pub share: Option<Share>,
    /// The job at a controller, which knows the rest; else everything is told here.
    pub controller: Option<String>,
    /// The way there over DPDK; else by kernel sockets, or through an interface.
    pub link: Option<Link>,
    /// The interface that it goes through, by AF_XDP.
    pub interface: Option<String>,
    /// Whether the aggregator takes milliseconds for a packet.
    pub slow: bool,
    /// Whether what quantization loses is kept for the next step.
    pub feedback: bool,
    /// Where gradients of sampled steps go.
    pub samples: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_ten_steps_are_sampled() {
        for (steps, expected) in [(1, 1), (5, 5), (10, 10), (11, 6), (400, 10), (399, 10)] {
            let plan = DemoPlan {
                text: PathBuf::new(),
                workers: 4,
                steps,
                batch: 1,
                hidden: 8,
                seed: 0,
                learning_rate: 1.0,
            };
            let count = (0..steps).filter(|&step| plan.samples(step)).count();
            assert_eq!(count, expected, "{steps} steps");
            assert!(plan.samples(0));
        }
    }
}
