//! The run for comparison, in which one process computes all workers' gradients on the same batches
//! and takes their exact mean.

use std::thread;
use std::time::Instant;

use super::event::{Times, Traffic};
use super::model::{Gradient, Model};
use super::plan::DemoPlan;
use super::text::Text;
use super::training::{GradientSource, train};
use crate::error::Result;

/// Averages all workers' gradients in this process, in f64.
pub struct ExactMean<'a> {
    plan: &'a DemoPlan,
    times: Times,
}

/// The mean of all workers' gradients in `step`, which this process computes.
pub fn mean_gradient(plan: &DemoPlan, model: &Model, text: &Text, step: u32) -> Gradient {
    let one = |worker| model.gradient(&text.batch(plan.seed, step, worker, plan.batch, model.context()));
    let all: Vec<u8> = (0..plan.workers).collect();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = all.len().div_ceil(threads);
    let gradients = thread::scope(|scope| {
        let part = |part| scope.spawn(move || all_of(part, one));
        let parts: Vec<_> = all.chunks(share).map(part).collect();
        parts.into_iter().flat_map(|part| part.join().expect("a gradient of a batch of the text")).collect()
    });
    mean(gradients)
}

fn all_of(workers: &[u8], gradient: impl Fn(u8) -> Gradient) -> Vec<Gradient> {
    workers.iter().map(|&worker| gradient(worker)).collect()
}

impl GradientSource for ExactMean<'_> {
    fn gradient(&mut self, model: &Model, text: &Text, step: u32) -> Result<Gradient> {
        let started = Instant::now();
        let mean = mean_gradient(self.plan, model, text, step);
        self.times.computing += started.elapsed().as_secs_f64();
        Ok(mean)
    }

    fn account(&self) -> (Times, Option<Traffic>) {
        (self.times, None)
    }
}

/// Replaces the first gradient and its loss by the means of all, which are computed in f64.
fn mean(mut gradients: Vec<Gradient>) -> Gradient {
    let count = gradients.len() as f64;
    let mut first = gradients.remove(0);
    for (i, coordinate) in first.coordinates.iter_mut().enumerate() {
        let others: f64 = gradients.iter().map(|g| f64::from(g.coordinates[i])).sum();
        *coordinate = ((f64::from(*coordinate) + others) / count) as f32;
    }
    let losses: f64 = gradients.iter().map(|g| f64::from(g.loss)).sum();
    first.loss = ((f64::from(first.loss) + losses) / count) as f32;
    first
}

/// The child process of the exact run.
pub fn run(plan: &DemoPlan) -> Result<()> {
    train(plan, &mut ExactMean { plan, times: Times::default() })
}
