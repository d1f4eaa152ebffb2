//! The training loop, the same whatever averages the gradients.

use std::time::Instant;

use super::event::{Event, Outcome, Server, Times, Traffic};
use super::model::{Gradient, Model, Shape};
use super::plan::DemoPlan;
use super::text::Text;
use crate::error::Result;

/// Places of the held-out part that the final loss is taken over, at most.
const HELD_OUT: usize = 2048;

/// Where a step's averaged gradient comes from: the exact mean of all workers computed in
/// this process ([`super::exact::ExactMean`]), or this worker's own gradient all-reduced with the others
/// ([`super::shared::SharedMean`]).
pub trait GradientSource {
    /// The gradient that `model` is updated with in `step`; its loss is that of the
    /// batches this process computed.
    fn gradient(&mut self, model: &Model, text: &Text, step: u32) -> Result<Gradient>;

    /// Seconds spent in [`GradientSource::gradient`] so far, and network use if there is a network.
    /// What the error is measured with is in neither.
    fn account(&self) -> (Times, Option<Traffic>);

    /// Totals of the share of the server in this process, if there is one.
    fn server(&self) -> Option<Server> {
        None
    }
}

/// Trains as `plan` says and tells every step on standard output.
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
