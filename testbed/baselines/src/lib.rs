//! Other schemes that compress gradients, behind one trait, to compare THC with.
//!
//! Each scheme follows its paper for one tensor and n workers around a parameter server, and the
//! server does what servers of real systems do: most decode the workers' messages, add them up, and
//! compress the mean again for the way down, which costs time and adds an error a second time (THC
//! paper, section 2.1). Messages are real encodings, so a scheme is charged with the bits that its
//! own decoder reads. All code is plain Rust, for experiments and not for speed.
//!
//! [`SchemeGroup`] runs all-reduces. Workers and servers are separate objects that exchange only messages:
//!
//! 1. workers [`announce`](WorkerSide::announce) something small (a norm, a range), and the server
//!    [`agree`](ServerSide::agree)s on one answer for all; empty for most schemes;
//! 2. workers [`compress`](WorkerSide::compress) their gradients, each with its own random stream and
//!    error feedback; the server [`aggregate`](ServerSide::aggregate)s;
//! 3. workers [`decompress`](WorkerSide::decompress) the result: the estimate of the mean.
#![forbid(unsafe_code)]

mod group;
mod lanes;
mod message;
mod qsgd;
mod sparse;
mod tern_grad;
mod thc;
mod top_k;
mod uncompressed;
mod uniform_thc;

#[cfg(test)]
mod tests;

pub use group::{MeanEstimate, SchemeGroup};
pub use message::Message;
pub use qsgd::Qsgd;
pub use tern_grad::TernGrad;
pub use thc::Thc;
pub use top_k::TopK;
pub use uncompressed::Uncompressed;
pub use uniform_thc::UniformThc;

use thc_codec::CodecError;
use thc_codec::signs::{GOLDEN_GAMMA, mix};

type Result<T> = std::result::Result<T, CodecError>;

/// The properties of a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Properties {
    /// The expectation of the estimate over the workers' and the server's random numbers is the mean of
    /// the gradients, so averaging over workers makes the error smaller.
    pub unbiased: bool,
    /// Decompressing the aggregate gives the mean of the decompressed messages (THC paper, definitions
    /// 1 and 3), so the server adds without decompressing.
    pub homomorphic: bool,
    /// Workers keep the part of a gradient that was not sent, and add it to the next gradient.
    pub error_feedback: bool,
    /// The server compresses the mean again, with an error of its own.
    pub recompressed: bool,
}

/// The bits of one all-reduce of one tensor in both stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits {
    /// From one worker to the server.
    pub up: u64,
    /// From the server to each worker.
    pub down: u64,
}

/// The tensor, the number of workers and the seeds of one [`WorkerSide`] or [`ServerSide`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Participant {
    /// The number of coordinates of the tensor, at least 1.
    pub dimension: usize,
    /// The number n of workers, at least 1.
    pub workers: u32,
    /// The seed that all workers share.
    pub shared_seed: u64,
    /// The seed that each worker and the server has for itself.
    pub private_seed: u64,
}

impl Participant {
    /// A worker, whose private seed follows from `seed` and its number.
    #[must_use]
    pub fn worker(dimension: usize, workers: u32, worker: u32, seed: u64) -> Self {
        let private_seed = mix(seed.wrapping_add(GOLDEN_GAMMA.wrapping_mul(u64::from(worker) + 2)));
        Self { dimension, workers, shared_seed: seed, private_seed }
    }

    /// The server.
    #[must_use]
    pub fn server(dimension: usize, workers: u32, seed: u64) -> Self {
        let private_seed = mix(seed.wrapping_add(GOLDEN_GAMMA));
        Self { dimension, workers, shared_seed: seed, private_seed }
    }

    /// Checks that there is at least one coordinate and one worker.
    fn check(&self) -> Result<()> {
        if self.workers == 0 {
            return Err(CodecError::EmptySum);
        }
        if self.dimension == 0 {
            return Err(CodecError::Parameter {
                what: "the number of coordinates of a tensor",
                value: 0.0,
                allowed: "at least 1",
            });
        }
        Ok(())
    }
}

/// A compression scheme with its parameters.
pub trait Scheme: Send + Sync {
    /// The name and the parameters, as a legend shows them.
    fn name(&self) -> String;

    /// Whether the scheme is unbiased, homomorphic and so on.
    fn properties(&self) -> Properties;

    /// The bits of one all-reduce of a tensor of `dimension` coordinates by `workers` workers. Errors
    /// are those of [`worker`](Self::worker) and [`server`](Self::server).
    fn bits(&self, dimension: usize, workers: u32) -> Result<Bits>;

    /// Creates a worker with empty error feedback. Fails if the scheme's parameters are wrong.
    fn worker(&self, participant: Participant) -> Result<Box<dyn WorkerSide>>;

    /// Creates the parameter server. Fails if the scheme's parameters are wrong.
    fn server(&self, participant: Participant) -> Result<Box<dyn ServerSide>>;
}

/// One worker's side of a scheme.
pub trait WorkerSide {
    /// Returns the message of the preliminary stage. `gradient` is finite and as long as the tensor.
    fn announce(&mut self, gradient: &[f32]) -> Result<Message> {
        let _ = gradient;
        Ok(Message::default())
    }

    /// Returns the message of the main stage, for the gradient that was announced. `agreed` is the
    /// server's answer to the announcements. Updates the error feedback, and moves on to the random
    /// numbers of the next call.
    fn compress(&mut self, gradient: &[f32], agreed: &Message) -> Result<Message>;

    /// Returns the estimate of the mean of `count` workers' gradients, from the server's `result` of the
    /// call that was compressed last.
    fn decompress(&self, result: &Message, count: u32) -> Result<Vec<f32>>;

    /// Takes the state for the next call from the result.
    fn learn(&mut self, result: &Message, count: u32) -> Result<()> {
        let _ = (result, count);
        Ok(())
    }

    /// The error feedback of this worker, one value per coordinate, if the scheme has any.
    fn feedback(&self) -> Option<&[f32]> {
        None
    }
}

/// The parameter server's side of a scheme.
pub trait ServerSide {
    /// Returns the answer to the announcements of all workers.
    fn agree(&mut self, announcements: &[Message]) -> Result<Message> {
        let _ = announcements;
        Ok(Message::default())
    }

    /// Returns the result for all workers, from the messages of at least one of them.
    fn aggregate(&mut self, messages: &[Message]) -> Result<Message>;
}

/// [`CodecError::Length`] unless `actual == expected`.
fn check_len(what: &'static str, expected: usize, actual: usize) -> Result<()> {
    if expected == actual { Ok(()) } else { Err(CodecError::Length { what, expected, actual }) }
}

/// `gradient` plus `feedback`, with which every scheme with error feedback begins.
fn with_feedback(gradient: &[f32], feedback: &[f32]) -> Result<Vec<f32>> {
    check_len("gradient", feedback.len(), gradient.len())?;
    Ok(gradient.iter().zip(feedback).map(|(g, e)| g + e).collect())
}

/// The number of bits of a number from 0 to `largest`.
fn width(largest: u64) -> u32 {
    u64::BITS - largest.leading_zeros()
}
