//! The plan of a demo run, which the exact run and every worker process have in common. Child
//! processes receive it as one JSON argument.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::memif::Link;
use super::server::Share;

/// The number of steps of a run whose error is measured.
const SAMPLES: u32 = 10;

/// Everything that determines the training, so that two runs of one plan differ only in the way in
/// which gradients are averaged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DemoPlan {
    /// The text to learn.
    pub text: PathBuf,
    /// The number of workers, each of which has its own batches.
    pub workers: u8,
    /// The number of optimizer steps.
    pub steps: u32,
    /// Rows per worker and step.
    pub batch: usize,
    /// Width of the model's hidden layers.
    pub hidden: usize,
    /// Seed of initial parameters and batches.
    pub seed: u64,
    /// The first step size, which falls linearly to a tenth.
    pub learning_rate: f64,
}

impl DemoPlan {
    /// The step size of `step`.
    pub fn rate(&self, step: u32) -> f64 {
        self.learning_rate * (1.0 - 0.9 * f64::from(step) / f64::from(self.steps))
    }

    /// Whether the gradients of `step` are measured. About ten evenly spread steps are, including the
    /// first one.
    pub fn samples(&self, step: u32) -> bool {
        step.is_multiple_of(self.steps.div_ceil(SAMPLES))
    }
}

/// The plan of a worker process, with the address of its parameter server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerPlan {
    /// The plan of all workers.
    pub plan: DemoPlan,
    /// This worker's number.
    pub worker: u8,
    /// The parameter server's address.
    pub server: SocketAddr,
    /// The share of the server that runs beside this worker. `None` if the server is a process of its own.
    pub share: Option<Share>,
    /// The job's URL at a controller, which provides all other settings. `None` if this plan has them.
    pub controller: Option<String>,
    /// The link to the server over DPDK. `None` for kernel sockets.
    pub link: Option<Link>,
    /// Whether the aggregator needs milliseconds per packet.
    pub slow: bool,
    /// Whether the worker keeps error feedback for the next step.
    pub feedback: bool,
    /// Whether the worker rounds independently of the others.
    pub independent: bool,
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
