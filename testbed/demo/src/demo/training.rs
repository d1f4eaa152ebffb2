//! The training loop, which is the same for all ways of averaging gradients.

use std::time::Instant;

use super::event::{Event, Outcome, Server, Times, Traffic};
use super::model::{Gradient, Model, Shape};
use super::plan::DemoPlan;
use super::text::Text;
use crate::error::Result;

/// The largest number of positions of the held-out part over which the final loss is averaged.
const HELD_OUT: usize = 2048;

/// A source of averaged gradients: the exact mean of all workers, computed in this process
/// ([`super::exact::ExactMean`]), or an all-reduce of this worker's own gradient with the others'
/// ([`super::shared::SharedMean`]).
pub trait GradientSource {
    /// Returns the gradient with which `step` updates `model`. Its loss is that of the batches that
    /// this process computed.
    fn gradient(&mut self, model: &Model, text: &Text, step: u32) -> Result<Gradient>;

    /// The seconds spent in [`GradientSource::gradient`] so far, and the traffic if there is a network.
    /// Neither includes the measurement of errors.
    fn account(&self) -> (Times, Option<Traffic>);

    /// The totals of the server's share in this process, if there is one.
    fn server(&self) -> Option<Server> {
        None
    }
}

/// Trains by `plan`, and reports every step on standard output.
pub fn train(plan: &DemoPlan, source: &mut dyn GradientSource) -> Result<()> {
    let text = Text::read(&plan.text)?;
    let shape = Shape::demo(text.vocabulary, plan.hidden);
    let mut model = Model::new(shape, plan.seed, plan.learning_rate);
    Event::Ready { parameters: model.coordinates() }.emit()?;
    let mut updating = 0.0;
    for step in 0..plan.steps {
        let gradient = source.gradient(&model, &text, step)?;
        let loss = gradient.loss;
        let started = Instant::now();
        model.set_learning_rate(plan.rate(step));
        model.update(&gradient);
        updating += started.elapsed().as_secs_f64();
        Event::Step { step, loss }.emit()?;
    }
    let (mut times, traffic) = source.account();
    times.computing += updating;
    Event::Done(Outcome {
        held_out: model.loss(&text.held_out(HELD_OUT, shape.context)),
        digest: model.digest(),
        times,
        traffic,
        server: source.server(),
    })
    .emit()
}
