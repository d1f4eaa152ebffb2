//! A worker of the demo, which all-reduces its own gradient with the other workers' through THC.

use std::time::Instant;

use thc_transport::Backend;
use thc_worker::{Call, Controller, Group, GroupConfig, Rounding, Seat, Stats, Timeouts};

use super::event::{ErrorSample, Event, Server, Times, Traffic, nmse};
use super::exact;
use super::model::{Gradient, Model};
use super::plan::WorkerPlan;
use super::server::Share;
use super::text::Text;
use super::training::{GradientSource, train};
use super::{server, switch};
use crate::error::{Error, Result};

/// The key of the gradient's error feedback.
const TENSOR: u64 = 1;

/// The worker that reports the errors of averaged gradients. All workers have the same ones.
const REPORTER: u8 = 0;

/// Averages this worker's gradient with the other workers'.
pub struct SharedMean<'a> {
    order: &'a WorkerPlan,
    group: Group,
    share: Option<thc_ps::Server>,
    times: Times,
    traffic: Traffic,
}

impl SharedMean<'_> {
    /// The all-reduce of the training, with its time and traffic.
    fn reduce(&mut self, coordinates: &mut [f32]) -> Result<()> {
        let before = self.group.stats()?;
        let started = Instant::now();
        let call = Call { feedback: self.order.feedback.then_some(TENSOR), ..Call::default() };
        self.group.call(coordinates, call)?;
        let seconds = started.elapsed().as_secs_f64();
        self.account_for(&before, &self.group.stats()?, seconds, coordinates.len());
        Ok(())
    }

    fn account_for(&mut self, before: &Stats, after: &Stats, seconds: f64, coordinates: usize) {
        let compression = (after.compression - before.compression).as_secs_f64();
        let waiting = (after.waiting - before.waiting).as_secs_f64();
        self.times.compression += compression;
        self.times.waiting += waiting;
        // System calls, and the work on packets around them.
        self.times.communication += (seconds - compression - waiting).max(0.0);
        self.traffic.add(&Traffic {
            coordinates: coordinates as u64,
            bytes_up: after.bytes_up - before.bytes_up,
            bytes_down: after.bytes_down - before.bytes_down,
            packets_up: after.packets_up - before.packets_up,
            packets_down: after.packets_down - before.packets_down,
            retransmissions: (after.retransmissions + after.nudged)
                - (before.retransmissions + before.nudged),
        });
    }
}

impl GradientSource for SharedMean<'_> {
    fn gradient(&mut self, model: &Model, text: &Text, step: u32) -> Result<Gradient> {
        let WorkerPlan { plan, worker, .. } = self.order;
        let started = Instant::now();
        let batch = text.batch(plan.seed, step, *worker, plan.batch, model.context());
        let mut gradient = model.gradient(&batch);
        self.times.computing += started.elapsed().as_secs_f64();
        if !plan.samples(step) {
            self.reduce(&mut gradient.coordinates)?;
            return Ok(gradient);
        }
        // Every worker can compute the others' gradients: their batches follow from the seed, and all models are equal.
        let exact = (*worker == REPORTER).then(|| exact::mean_gradient(plan, model, text, step).coordinates);
        let mut alone = gradient.coordinates.clone();
        self.group.allreduce(&mut alone)?;
        self.reduce(&mut gradient.coordinates)?;
        if let Some(exact) = exact {
            let applied = nmse(&exact, &gradient.coordinates);
            Event::Sample(ErrorSample { step, applied, without_feedback: nmse(&exact, &alone) }).emit()?;
        }
        Ok(gradient)
    }

    fn account(&self) -> (Times, Option<Traffic>) {
        (self.times, Some(self.traffic))
    }

    fn server(&self) -> Option<Server> {
        self.share.as_ref().map(|share| Server::from_totals(&share.stats()))
    }
}

/// Runs the child process of one worker. The job's cookie comes from the controller, or from the environment, where
/// other users of the machine do not see it.
pub fn run(order: &WorkerPlan) -> Result<()> {
    let io = order.link.as_ref().map_or(Backend::Udp, |link| link.backend());
    let mut config = match &order.controller {
        Some(url) => {
            GroupConfig { controller: Some(controller(url, order.worker)?), io, ..GroupConfig::default() }
        }
        None => {
            let (job, cookie) = (server::JOB, server::cookie_from_environment()?);
            let mut timeouts = Timeouts::default();
            if order.slow {
                timeouts.min_rto = switch::MIN_RTO;
            }
            let seat = Seat { ps: order.server, job, worker: order.worker, cookie };
            GroupConfig { seat, io, timeouts, ..GroupConfig::default() }
        }
    };
    if order.independent {
        config.rounding = Rounding::Independent;
    }
    let share = order.share.as_ref().map(|share| share.serve(order.worker)).transpose()?;
    let group = Group::join(config)?;
    let mut source = SharedMean { order, group, share, times: Times::default(), traffic: Traffic::default() };
    let trained = train(&order.plan, &mut source);
    let SharedMean { group, share, .. } = source;
    drop(group);
    if let (Some(share), Ok(())) = (share, &trained) {
        share.wait_for_leaving(Share::LINGER);
    }
    trained
}

/// The URL of the job at the controller, with this worker's number.
#[cfg(feature = "controller")]
fn controller(url: &str, worker: u8) -> Result<Controller> {
    let mut controller = Controller::new(url.parse().map_err(|_| Error::orphaned())?);
    controller.rank = Some(worker);
    Ok(controller)
}

#[cfg(not(feature = "controller"))]
fn controller(_: &str, _: u8) -> Result<Controller> {
    Err(Error::no_controller())
}

impl From<thc_worker::WorkerError> for Error {
    fn from(error: thc_worker::WorkerError) -> Self {
        Self::Worker(Box::new(error))
    }
}
