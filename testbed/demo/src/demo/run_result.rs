//! The result of a run of the demo.

use serde::Serialize;

use super::error_sample::ErrorSample;
use super::event::Outcome;

/// One of the two runs.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Training loss of every step, mean of the workers, nats per character.
    pub losses: Vec<f32>,
    /// Mean of the last twentieth of them.
    pub final_loss: f32,
    /// Loss on the held-out part of the text.
    pub held_out_loss: f32,
    /// Wall clock from the first step to the last, seconds.
    pub seconds: f64,
}

/// What the processes of one run reported.
pub struct RunResult {
    /// Coordinates of a gradient.
    pub parameters: usize,
    /// Losses and time.
    pub run: Run,
    /// Errors of the sampled steps.
    pub errors: Vec<ErrorSample>,
    /// What each process ended with.
    pub outcomes: Vec<Outcome>,
}
