//! Training by many workers in one process: every worker has gradients of its own, a scheme's real messages go to a real server's side, and
//! what comes back moves the model, as the simulations of THC's section 8.4.

use std::ops::Range;
use std::path::PathBuf;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use thc_baselines::{Message, Participant, ServerSide, Uncompressed, WorkerSide};
use thc_codec::partition::MIN_PARTITION;
use thc_codec::signs::mix;
use thc_demo::demo::model::{Gradient, Model, Shape};
use thc_demo::demo::text::Text;

use super::schemes::Named;
use crate::error::Result;

/// The size of all trainings of a run of `thc papers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// The text that is learned.
    pub text: PathBuf,
    /// Optimizer steps.
    pub steps: u32,
    /// Rows of a worker's batch.
    pub batch: usize,
    /// Width of the hidden layers.
    pub hidden: usize,
    /// The most characters that measure what was learned.
    pub held_out: usize,
}

/// The first step size of Adam; it falls linearly to a tenth, as the demo's.
const RATE: f64 = 0.002;
/// Epochs of a training, after each of which replicas are made equal where they are.
const EPOCHS: u32 = 5;

/// How a gradient is cut into tensors for a scheme.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cut {
    /// All of it is one tensor.
    Whole,
    /// The tensors of the model, of which those of fewer bytes are averaged exactly (SlimGC's threshold).
    Tensors { exact_below: usize },
    /// Tensors of 1024 coordinates, each of which is one packet, so that packets can be lost.
    Packets,
}

/// What goes wrong in every step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The share of packets that is lost, up and down.
    pub lost: f64,
    /// Whether all workers take the first one's parameters after each epoch.
    pub synchronized: bool,
    /// Workers, drawn anew in each step, whose gradients the server does not wait for.
    pub stragglers: u8,
}

/// One training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    pub workers: u8,
    pub scheme: Named,
    pub cut: Cut,
    pub faults: Faults,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Mean cross entropy of the held-out text, in nats per character; the mean over replicas.
    pub loss: f64,
    /// The share of held-out characters that were guessed.
    pub accuracy: f64,
    /// The same of 1024 places of the training text.
    pub training_accuracy: f64,
    /// Bits per coordinate from a worker to the server.
    pub bits_up: f64,
    /// Bits per coordinate from the server to a worker.
    pub bits_down: f64,
}

impl Run {
    /// All workers, one tensor, no faults.
    pub const fn plain(workers: u8, scheme: Named) -> Self {
        let faults = Faults { lost: 0.0, synchronized: false, stragglers: 0 };
        Self { workers, scheme, cut: Cut::Whole, faults }
    }

    /// As tables write it.
    pub fn label(&self) -> String {
        let mut label = format!("{}, {} workers", self.scheme.label(), self.workers);
        match self.cut {
            Cut::Whole | Cut::Packets => {}
            Cut::Tensors { exact_below: 0 } => label.push_str(", by tensor"),
            Cut::Tensors { exact_below } => label.push_str(&format!(", exact below {exact_below} B")),
        }
        let Faults { lost, synchronized, stragglers } = self.faults;
        if lost > 0.0 {
            let how = if synchronized { "with" } else { "without" };
            label.push_str(&format!(", {:.1} % lost, {how} synchronization", 100.0 * lost));
        }
        if stragglers > 0 {
            label.push_str(&format!(", {stragglers} stragglers"));
        }
        label
    }

    /// Trains on this many threads; how many does not change what comes of it.
    pub fn train(&self, scale: &Scale, seed: u64, threads: usize) -> Result<Outcome> {
        let text = Text::read(&scale.text)?;
        let shape = Shape::demo(text.vocabulary, scale.hidden);
        // Replicas differ only where packets get lost on their way down.
        let replicas = if self.faults.lost > 0.0 { self.workers } else { 1 };
        let mut models: Vec<Model> = (0..replicas).map(|_| Model::new(shape, seed, RATE)).collect();
        let mut tensors = self.tensors(&models[0], seed)?;
        let context = models[0].context();
        let mut chance = ChaCha8Rng::seed_from_u64(mix(seed));
        let (mut up, mut down) = (0, 0);
        for step in 0..scale.steps {
            let gradient = |worker: u8| {
                let batch = text.batch(seed, step, worker, scale.batch, context);
                models[usize::from(worker.min(replicas - 1))].gradient(&batch).coordinates
            };
            let gradients = parallel(self.workers, threads, gradient);
            let late = self.late(&mut chance);
            let mut means = vec![vec![0.0; models[0].coordinates()]; models.len()];
            for tensor in &mut tensors {
                let (sent, received) =
                    tensor.average(&gradients, &late, self.faults.lost, &mut chance, &mut means)?;
                up += sent;
                down += received;
            }
            for (model, coordinates) in models.iter_mut().zip(means) {
                model.set_learning_rate(RATE * (1.0 - 0.9 * f64::from(step) / f64::from(scale.steps)));
                model.update(&Gradient { loss: 0.0, coordinates });
            }
            if self.faults.synchronized && (step + 1).is_multiple_of(scale.steps.div_ceil(EPOCHS)) {
                let (first, others) = models.split_at_mut(1);
                others.iter_mut().for_each(|other| other.take(&first[0]));
            }
        }
        let held_out = text.held_out(scale.held_out, context);
        let known = text.batch(seed, u32::MAX, 0, 1024.min(scale.held_out), context);
        let mean = |measure: &dyn Fn(&Model) -> f32| {
            models.iter().map(|model| f64::from(measure(model))).sum::<f64>() / models.len() as f64
        };
        let coordinates = (models[0].coordinates() * scale.steps as usize) as f64;
        Ok(Outcome {
            loss: mean(&|model| model.loss(&held_out)),
            accuracy: mean(&|model| model.accuracy(&held_out)),
            training_accuracy: mean(&|model| model.accuracy(&known)),
            bits_up: up as f64 / (coordinates * f64::from(self.workers)),
            bits_down: down as f64 / coordinates,
        })
    }

    fn tensors(&self, model: &Model, seed: u64) -> Result<Vec<Tensor>> {
        let lengths = match self.cut {
            Cut::Whole => vec![model.coordinates()],
            Cut::Tensors { .. } => model.tensors(),
            Cut::Packets => {
                let all = model.coordinates();
                (0..all).step_by(MIN_PARTITION).map(|start| MIN_PARTITION.min(all - start)).collect()
            }
        };
        let least = if let Cut::Tensors { exact_below } = self.cut { exact_below } else { 0 };
        let mut start = 0;
        let mut tensors = Vec::new();
        for (number, length) in lengths.into_iter().enumerate() {
            let seed = mix(seed.wrapping_add(number as u64));
            let exact = 4 * length < least;
            tensors.push(Tensor::new(self, start..start + length, exact, seed)?);
            start += length;
        }
        Ok(tensors)
    }

    /// Which workers are late in a step.
    fn late(&self, chance: &mut ChaCha8Rng) -> Vec<bool> {
        let mut late = vec![false; usize::from(self.workers)];
        late[..usize::from(self.faults.stragglers)].fill(true);
        late.shuffle(chance);
        late
    }
}

/// What `work` gives for 0 to `count` − 1, in their order.
fn parallel<T: Send>(count: u8, threads: usize, work: impl Fn(u8) -> T + Sync) -> Vec<T> {
    let numbers: Vec<u8> = (0..count).collect();
    let each = numbers.len().div_ceil(threads.max(1));
    std::thread::scope(|scope| {
        let begun: Vec<_> = numbers
            .chunks(each)
            .map(|chunk| scope.spawn(|| chunk.iter().map(|number| work(*number)).collect::<Vec<T>>()))
            .collect();
        begun.into_iter().flat_map(|thread| thread.join().expect("gradients do not panic")).collect()
    })
}

/// A piece of the gradient with the sides of its scheme.
struct Tensor {
    range: Range<usize>,
    workers: Vec<Box<dyn WorkerSide>>,
    server: Box<dyn ServerSide>,
}

impl Tensor {
    fn new(run: &Run, range: Range<usize>, exact: bool, seed: u64) -> Result<Self> {
        let scheme = if exact { Box::new(Uncompressed) } else { run.scheme.scheme()? };
        let (length, count) = (range.len(), u32::from(run.workers));
        let workers =
            (0..count).map(|worker| scheme.worker(Participant::worker(length, count, worker, seed)));
        Ok(Self {
            workers: workers.collect::<std::result::Result<_, _>>()?,
            server: scheme.server(Participant::server(length, count, seed))?,
            range,
        })
    }

    /// Puts the mean of those who are in time into each replica's gradient, unless its packet gets lost. Returns bits up, of all workers, and
    /// down, to one. What agrees on norms and ranges is not lost: it is repeated until it comes.
    fn average(
        &mut self,
        gradients: &[Vec<f32>],
        late: &[bool],
        lost: f64,
        chance: &mut ChaCha8Rng,
        means: &mut [Vec<f32>],
    ) -> Result<(u64, u64)> {
        let mine = |gradient: &'_ Vec<f32>| gradient[self.range.clone()].to_vec();
        let gradients: Vec<Vec<f32>> = gradients.iter().map(mine).collect();
        let mut announced = Vec::new();
        for (worker, gradient) in self.workers.iter_mut().zip(&gradients) {
            announced.push(worker.announce(gradient)?);
        }
        let agreed = self.server.agree(&announced)?;
        let (mut up, mut arrived) = (announced.iter().map(Message::bits).sum::<u64>(), Vec::new());
        for ((worker, gradient), late) in self.workers.iter_mut().zip(&gradients).zip(late) {
            let message = worker.compress(gradient, &agreed)?;
            up += message.bits();
            let arrives = lost <= 0.0 || chance.random::<f64>() >= lost;
            if arrives && !late {
                arrived.push(message);
            }
        }
        let mut down = agreed.bits();
        if !arrived.is_empty() {
            let result = self.server.aggregate(&arrived)?;
            let count = arrived.len() as u32;
            let mean = self.workers[0].decompress(&result, count)?;
            for worker in &mut self.workers {
                worker.learn(&result, count)?;
            }
            down += result.bits();
            for replica in means {
                if lost <= 0.0 || chance.random::<f64>() >= lost {
                    replica[self.range.clone()].copy_from_slice(&mean);
                }
            }
        }
        Ok((up, down))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn text(folder: &tempfile::TempDir) -> PathBuf {
        let path = folder.path().join("text");
        std::fs::write(&path, "the quick brown fox jumps over the lazy dog; ".repeat(100)).unwrap();
        path
    }

    #[test]
    fn how_many_threads_does_not_matter_and_training_learns() {
        let folder = tempfile::tempdir().unwrap();
        let scale = |steps| Scale { text: text(&folder), steps, batch: 4, hidden: 24, held_out: 100 };
        let run = Run::plain(5, Named::THC);
        let one = run.train(&scale(20), 3, 1).unwrap();
        assert_eq!(one, run.train(&scale(20), 3, 4).unwrap());
        let untrained = run.train(&scale(1), 3, 2).unwrap();
        assert!(one.loss < 0.95 * untrained.loss, "{one:?} {untrained:?}");
        assert!((4.0..4.4).contains(&one.bits_up) && (8.0..8.8).contains(&one.bits_down), "{one:?}");
    }

    #[test]
    fn lost_packets_make_replicas_differ_until_they_are_synchronized() {
        let folder = tempfile::tempdir().unwrap();
        let scale = Scale { text: text(&folder), steps: 10, batch: 2, hidden: 16, held_out: 50 };
        let run = |lost, synchronized| Run {
            cut: Cut::Packets,
            faults: Faults { lost, synchronized, stragglers: 0 },
            ..Run::plain(3, Named::THC)
        };
        let [none, lost, synchronized] =
            [run(0.0, false), run(0.2, false), run(0.2, true)].map(|run| run.train(&scale, 1, 1).unwrap());
        assert!(none != lost && lost != synchronized);
        assert!(run(0.2, true).label().contains("20.0 % lost, with synchronization"));
        // Without anybody in time nothing moves.
        let nobody =
            Run { faults: Faults { stragglers: 3, ..Faults::default() }, ..Run::plain(3, Named::Exact) };
        let one_step = Scale { steps: 1, ..scale.clone() };
        assert_eq!(nobody.train(&scale, 1, 1).unwrap().loss, nobody.train(&one_step, 1, 1).unwrap().loss);
    }

    #[test]
    fn small_tensors_are_exact_below_the_threshold() {
        let folder = tempfile::tempdir().unwrap();
        let scale = Scale { text: text(&folder), steps: 2, batch: 2, hidden: 16, held_out: 50 };
        let bits = |exact_below| {
            let run = Run { cut: Cut::Tensors { exact_below }, ..Run::plain(2, Named::OneBit) };
            run.train(&scale, 1, 1).unwrap().bits_up
        };
        let [none, some, all] = [bits(0), bits(1500), bits(1 << 30)];
        assert!(none < some && some < all && all == 32.0, "{none} {some} {all}");
    }
}
