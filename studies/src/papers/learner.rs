//! A replica of the model with its optimizer.

use thc_demo::demo::model::{Gradient, Model, Shape};

/// The first step size of Adam; it falls linearly to a tenth, as the demo's.
const ADAM: f64 = 0.002;
/// The first step size of SGD with momentum: of 0.02, 0.05, 0.1, 0.2 and 0.5 the one with the least loss after exact means.
const MOMENTUM: f64 = 0.2;
/// What of the last steps SGD keeps.
const KEPT: f32 = 0.9;
/// How much smaller steps are after a warm start.
const WARM: f64 = 0.3;

/// What moves the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// Adam, which scales each coordinate.
    Adam,
    /// SGD with momentum 0.9, which scales none.
    Momentum,
}

/// A model and what its optimizer remembers.
pub struct Learner {
    pub model: Model,
    optimizer: Optimizer,
    velocity: Vec<f32>,
}

impl Learner {
    /// Before its first step.
    pub fn new(shape: Shape, seed: u64, optimizer: Optimizer) -> Self {
        let model = Model::new(shape, seed, ADAM);
        let velocity = match optimizer {
            Optimizer::Adam => Vec::new(),
            Optimizer::Momentum => vec![0.0; model.coordinates()],
        };
        Self { model, optimizer, velocity }
    }

    /// One step along a mean. `part` of all steps are behind it; `warm`: it goes on from an exact training.
    pub fn step(&mut self, mean: Vec<f32>, part: f64, warm: bool) {
        let scale = (1.0 - 0.9 * part) * if warm { WARM } else { 1.0 };
        match self.optimizer {
            Optimizer::Adam => {
                self.model.set_learning_rate(ADAM * scale);
                self.model.update(&Gradient { loss: 0.0, coordinates: mean });
            }
            Optimizer::Momentum => {
                let rate = (MOMENTUM * scale) as f32;
                let moved = self.model.parameters_mut().iter_mut().zip(&mut self.velocity).zip(mean);
                for ((parameter, velocity), gradient) in moved {
                    *velocity = KEPT * *velocity + gradient;
                    *parameter -= rate * *velocity;
                }
            }
        }
    }
}

/// The outer step: of DiLoCo by Nesterov's momentum along the mean of what workers have moved, of SparseLoCo along that mean itself.
pub struct Outer {
    /// Nothing where there is no momentum.
    velocity: Vec<f32>,
}

/// DiLoCo's outer step size and momentum (section 3.1).
const OUTER: f32 = 0.7;

impl Outer {
    /// For so many parameters. `plain`: without momentum, and with a step size of 1.
    pub fn new(parameters: usize, plain: bool) -> Self {
        Self { velocity: if plain { Vec::new() } else { vec![0.0; parameters] } }
    }

    /// Moves what all workers begin from.
    pub fn step(&mut self, start: &mut [f32], mean: &[f32]) {
        if self.velocity.is_empty() {
            start.iter_mut().zip(mean).for_each(|(parameter, moved)| *parameter -= moved);
            return;
        }
        for ((parameter, velocity), moved) in start.iter_mut().zip(&mut self.velocity).zip(mean) {
            *velocity = KEPT * *velocity + moved;
            *parameter -= OUTER * (moved + KEPT * *velocity);
        }
    }
}
