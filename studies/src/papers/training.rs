//! Training by many workers in one process: every worker has gradients of its own, a scheme's real messages go to a real server's side, and
//! what comes back moves the model, as the simulations of THC's section 8.4.

use std::path::PathBuf;

use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use thc_codec::partition::MIN_PARTITION;
use thc_codec::signs::mix;
use thc_demo::demo::model::{Model, Shape};
use thc_demo::demo::text::Text;

use super::choice::{Family, Policy};
use super::learner::{Learner, Optimizer, Outer};
use super::link::Delivered;
use super::schemes::Named;
use super::tensor::{Sent, Tensor, Weather};
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

/// Epochs of a training, after each of which replicas are made equal where they are, and choices are made again.
const EPOCHS: u32 = 5;

/// How a gradient is cut into tensors for a scheme.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cut {
    /// All of it is one tensor.
    Whole,
    /// The tensors of the model, of which those of fewer bytes are averaged exactly (SlimGC's threshold).
    Tensors { exact_below: usize },
    /// The same with parameters of their own, chosen after the first epoch and after every other one.
    Chosen { family: Family, policy: Policy, exact_below: usize },
    /// Tensors of 1024 coordinates, each of which is one packet, so that packets can be lost.
    Packets,
    /// Blocks as those of ResNet-50 in AQGB's Table 1, each with the bits for which AQGB finds time in its simulator.
    Blocks,
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

/// How long and by what it is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Course {
    pub optimizer: Optimizer,
    /// Steps, in percent of the scale's.
    pub length: u32,
    /// Exact steps before them, which are not counted, in percent of the scale's.
    pub warm: u32,
    /// Of so many steps one averages, and what it averages is how far each worker has gone by itself: DiLoCo. 1: every step does.
    pub every: u32,
    /// The share of steps after which what compression lost goes once more, in percent.
    pub refined: u32,
}

/// One training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    pub workers: u8,
    pub scheme: Named,
    pub cut: Cut,
    pub faults: Faults,
    pub course: Course,
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
    /// Bits per coordinate and step from a worker to the server.
    pub bits_up: f64,
    /// Bits per coordinate and step from the server to a worker.
    pub bits_down: f64,
}

impl Default for Course {
    fn default() -> Self {
        Self { optimizer: Optimizer::Adam, length: 100, warm: 0, every: 1, refined: 0 }
    }
}

/// Steps that are so many percent of others, at least one unless there shall be none.
fn percent(steps: u32, percent: u32) -> u32 {
    (u64::from(steps) * u64::from(percent)).div_ceil(100) as u32
}

impl Run {
    /// All workers, one tensor, no faults.
    pub fn plain(workers: u8, scheme: Named) -> Self {
        Self { workers, scheme, cut: Cut::Whole, faults: Faults::default(), course: Course::default() }
    }

    /// As tables write it.
    pub fn label(&self) -> String {
        let scheme = match self.cut {
            Cut::Chosen { family, .. } => family.name().to_owned(),
            Cut::Blocks => "TFP at random, bits by AQGB".to_owned(),
            _ => self.scheme.label(),
        };
        let mut label = format!("{scheme}, {} workers", self.workers);
        match self.cut {
            Cut::Whole | Cut::Packets | Cut::Blocks => {}
            Cut::Tensors { exact_below: 0 } => label.push_str(", by tensor"),
            Cut::Tensors { exact_below } => label.push_str(&format!(", exact below {exact_below} B")),
            Cut::Chosen { policy, exact_below, .. } => {
                label.push_str(&format!(", {}", policy.label()));
                if exact_below > 0 {
                    label.push_str(&format!(", exact below {exact_below} B"));
                }
            }
        }
        let Faults { lost, synchronized, stragglers } = self.faults;
        if lost > 0.0 {
            let how = if synchronized { "with" } else { "without" };
            label.push_str(&format!(", {:.1} % lost, {how} synchronization", 100.0 * lost));
        }
        if stragglers > 0 {
            label.push_str(&format!(", {stragglers} stragglers"));
        }
        let Course { optimizer, length, warm, every, refined } = self.course;
        if optimizer == Optimizer::Momentum {
            label.push_str(", SGD");
        }
        if warm > 0 {
            label.push_str(", from a trained model");
        }
        if every > 1 {
            label.push_str(&format!(", outer step of {every}"));
        }
        if refined > 0 {
            label.push_str(&format!(", {refined} % of steps refined"));
        }
        if length != 100 {
            label.push_str(&format!(", {length} % of the steps"));
        }
        label
    }

    /// Trains on this many threads; how many does not change what comes of it.
    pub fn train(&self, scale: &Scale, seed: u64, threads: usize) -> Result<Outcome> {
        let text = Text::read(&scale.text)?;
        let shape = Shape::demo(text.vocabulary, scale.hidden);
        let Course { optimizer, length, warm, every, .. } = self.course;
        // Replicas differ where packets get lost on their way down, and where each goes by itself for a while.
        let replicas = if self.faults.lost > 0.0 || every > 1 { self.workers } else { 1 };
        let mut learners: Vec<Learner> =
            (0..replicas).map(|_| Learner::new(shape, seed, optimizer)).collect();
        let context = learners[0].model.context();
        let gradients = |learners: &[Learner], step: u32| {
            let gradient = |worker: u8| {
                let batch = text.batch(seed, step, worker, scale.batch, context);
                learners[usize::from(worker.min(replicas - 1))].model.gradient(&batch).coordinates
            };
            parallel(self.workers, threads, gradient)
        };
        let (before, steps) = (percent(scale.steps, warm), percent(scale.steps, length));
        for step in 0..before {
            let mean = exact_mean(&gradients(&learners, step));
            for learner in &mut learners {
                learner.step(mean.clone(), f64::from(step) / f64::from(before), false);
            }
        }
        let mut way = Way::new(self, &learners[0].model, seed)?;
        let mut outer =
            Outer::new(learners[0].model.coordinates(), self.scheme.takes_the_place_of_momentum());
        let mut start = learners[0].model.parameters().to_vec();
        for step in 0..steps {
            let gradients = gradients(&learners, before + step);
            let part = f64::from(step) / f64::from(steps);
            if every > 1 {
                for (learner, gradient) in learners.iter_mut().zip(gradients) {
                    learner.step(gradient, part, warm > 0);
                }
                if (step + 1).is_multiple_of(every) || step + 1 == steps {
                    let moved = |learner: &Learner| {
                        start.iter().zip(learner.model.parameters()).map(|(from, to)| from - to).collect()
                    };
                    let moved: Vec<Vec<f32>> = learners.iter().map(moved).collect();
                    let means = way.average(self, &moved, 1, step, steps)?;
                    outer.step(&mut start, &means[0]);
                    for learner in &mut learners {
                        learner.model.parameters_mut().copy_from_slice(&start);
                    }
                }
                continue;
            }
            let means = way.average(self, &gradients, learners.len(), step, steps)?;
            for (learner, mean) in learners.iter_mut().zip(means) {
                learner.step(mean, part, warm > 0);
            }
            if self.faults.synchronized && (step + 1).is_multiple_of(steps.div_ceil(EPOCHS)) {
                let (first, others) = learners.split_at_mut(1);
                others.iter_mut().for_each(|other| other.model.take(&first[0].model));
            }
        }
        let held_out = text.held_out(scale.held_out, context);
        let known = text.batch(seed, u32::MAX, 0, 1024.min(scale.held_out), context);
        let mean = |measure: &dyn Fn(&Model) -> f32| {
            learners.iter().map(|learner| f64::from(measure(&learner.model))).sum::<f64>()
                / learners.len() as f64
        };
        let coordinates = (learners[0].model.coordinates() * steps as usize) as f64;
        let loss = mean(&|model| model.loss(&held_out));
        // A model that diverged knows no more than how many characters there are.
        let guess = (text.vocabulary as f64).ln();
        Ok(Outcome {
            loss: if loss.is_finite() { loss } else { guess },
            accuracy: mean(&|model| model.accuracy(&held_out)),
            training_accuracy: mean(&|model| model.accuracy(&known)),
            bits_up: way.sent.up as f64 / (coordinates * f64::from(self.workers)),
            bits_down: way.sent.down as f64 / coordinates,
        })
    }

    fn tensors(&self, model: &Model, seed: u64) -> Result<Vec<Tensor>> {
        let all = model.coordinates();
        let lengths = match self.cut {
            Cut::Whole => vec![all],
            Cut::Tensors { .. } | Cut::Chosen { .. } => model.tensors(),
            Cut::Packets => {
                (0..all).step_by(MIN_PARTITION).map(|start| MIN_PARTITION.min(all - start)).collect()
            }
            Cut::Blocks => Delivered::blocks(all),
        };
        let (least, usual) = match self.cut {
            Cut::Tensors { exact_below } => (exact_below, self.scheme),
            Cut::Chosen { family, exact_below, .. } => (exact_below, family.usual()),
            _ => (0, self.scheme),
        };
        let mut start = 0;
        let mut tensors = Vec::new();
        for (number, length) in lengths.into_iter().enumerate() {
            let seed = mix(seed.wrapping_add(number as u64));
            let scheme = if 4 * length < least { Named::Exact } else { usual.of_length(length) };
            tensors.push(Tensor::new(start..start + length, scheme, self.workers, seed)?);
            start += length;
        }
        Ok(tensors)
    }

    /// Which workers are late in a step.
    fn draw_late(&self, chance: &mut ChaCha8Rng) -> Vec<bool> {
        let mut late = vec![false; usize::from(self.workers)];
        late[..usize::from(self.faults.stragglers)].fill(true);
        late.shuffle(chance);
        late
    }
}

fn exact_mean(gradients: &[Vec<f32>]) -> Vec<f32> {
    let mut mean = vec![0.0; gradients[0].len()];
    for gradient in gradients {
        mean.iter_mut().zip(gradient).for_each(|(sum, x)| *sum += x);
    }
    mean.iter_mut().for_each(|sum| *sum /= gradients.len() as f32);
    mean
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

/// All pieces of the gradient on their way, step after step.
struct Way {
    tensors: Vec<Tensor>,
    chance: ChaCha8Rng,
    seed: u64,
    sent: Sent,
    /// The sum of the exact means since choices were made.
    seen: Vec<f32>,
    /// What AQGB has time for.
    delivered: Option<Delivered>,
}

impl Way {
    fn new(run: &Run, model: &Model, seed: u64) -> Result<Self> {
        Ok(Self {
            tensors: run.tensors(model, seed)?,
            chance: ChaCha8Rng::seed_from_u64(mix(seed)),
            seed,
            sent: Sent::default(),
            seen: vec![0.0; model.coordinates()],
            delivered: (run.cut == Cut::Blocks).then(|| Delivered::of_aqgb(run.workers.into(), seed)),
        })
    }

    /// The means of a step, one for each replica.
    fn average(
        &mut self,
        run: &Run,
        gradients: &[Vec<f32>],
        replicas: usize,
        step: u32,
        steps: u32,
    ) -> Result<Vec<Vec<f32>>> {
        if let Some(delivered) = &self.delivered {
            for (number, tensor) in self.tensors.iter_mut().enumerate() {
                tensor.change(Named::Truncated { bits: delivered.bits(step, number) })?;
            }
        }
        let late = run.draw_late(&mut self.chance);
        let weather = Weather { late: &late, lost: run.faults.lost };
        let mut means = vec![vec![0.0; gradients[0].len()]; replicas];
        let mut passes = vec![gradients.iter().map(Vec::as_slice).collect::<Vec<_>>()];
        let nothing = vec![0.0; gradients[0].len()];
        if run.course.refined > 0 && self.chance.random_range(0..100) < run.course.refined {
            // A gradient of zeros: error feedback is all that travels.
            passes.push(vec![&nothing[..]; gradients.len()]);
        }
        for pass in &passes {
            for tensor in &mut self.tensors {
                self.sent += tensor.average(pass, &weather, &mut self.chance, &mut means)?;
            }
        }
        if let Cut::Chosen { family, policy, .. } = run.cut {
            let mean = exact_mean(gradients);
            self.seen.iter_mut().zip(mean).for_each(|(sum, x)| *sum += x);
            if (step + 1).is_multiple_of(steps.div_ceil(EPOCHS)) {
                self.choose(family, policy, run.workers, u64::from(step))?;
            }
        }
        Ok(means)
    }

    fn choose(&mut self, family: Family, policy: Policy, workers: u8, step: u64) -> Result<()> {
        let chosen: Vec<usize> =
            (0..self.tensors.len()).filter(|number| self.tensors[*number].scheme != Named::Exact).collect();
        let pieces: Vec<&[f32]> =
            chosen.iter().map(|number| &self.seen[self.tensors[*number].range.clone()]).collect();
        let choices = policy.choose(family, &pieces, workers, mix(self.seed ^ step << 32))?;
        for (number, choice) in chosen.into_iter().zip(choices) {
            let tensor = &mut self.tensors[number];
            tensor.change(choice.of_length(tensor.range.len()))?;
        }
        self.seen.fill(0.0);
        Ok(())
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

    #[test]
    fn a_course_decides_how_often_and_by_what_is_averaged() {
        let folder = tempfile::tempdir().unwrap();
        let scale = Scale { text: text(&folder), steps: 20, batch: 4, hidden: 16, held_out: 50 };
        let run = |course| Run { course, ..Run::plain(2, Named::THC) }.train(&scale, 1, 1).unwrap();
        let usual = run(Course::default());
        // An outer step of five sends a fifth, and learns.
        let outer = run(Course { every: 5, ..Course::default() });
        assert!((outer.bits_up * 5.0 / usual.bits_up - 1.0).abs() < 0.01, "{outer:?} {usual:?}");
        let one_step = Scale { steps: 1, ..scale.clone() };
        let untrained = Run::plain(2, Named::THC).train(&one_step, 1, 1).unwrap();
        assert!(outer.loss < untrained.loss, "{outer:?} {untrained:?}");
        // Refined steps send twice; a warm start is better than none; another optimizer goes another way.
        let refined = run(Course { refined: 100, ..Course::default() });
        assert!((refined.bits_up / usual.bits_up - 2.0).abs() < 0.01, "{refined:?}");
        let warm = run(Course { warm: 200, ..Course::default() });
        assert!(warm.loss < usual.loss, "{warm:?} {usual:?}");
        assert_ne!(run(Course { optimizer: Optimizer::Momentum, ..Course::default() }).loss, usual.loss);
        let half = run(Course { length: 50, ..Course::default() });
        assert!(half.loss > usual.loss && half.bits_up == usual.bits_up, "{half:?}");
    }

    #[test]
    fn a_ring_carries_lanes_and_sparse_outer_steps_learn_without_momentum() {
        let folder = tempfile::tempdir().unwrap();
        let scale = Scale { text: text(&folder), steps: 20, batch: 4, hidden: 24, held_out: 100 };
        let train = |scheme, every| {
            let course = Course { every, ..Course::default() };
            Run { course, ..Run::plain(4, scheme) }.train(&scale, 1, 1).unwrap()
        };
        // Three quarters of eight bits each way; 64 values lose less than 16.
        let lanes = train(Named::Lanes { bits: 8, workers: 4 }, 1);
        assert!((6.0..6.6).contains(&lanes.bits_up), "{lanes:?}");
        assert!((lanes.bits_down / lanes.bits_up - 1.0).abs() < 1e-3, "{lanes:?}");
        let exact = train(Named::Exact, 1);
        assert!((lanes.loss - exact.loss).abs() < 0.02, "{lanes:?} {exact:?}");
        let sparse = train(Named::SparseLoCo { inverse: 32 }, 5);
        let untrained =
            Run::plain(4, Named::Exact).train(&Scale { steps: 1, ..scale.clone() }, 1, 1).unwrap();
        assert!(sparse.loss < untrained.loss && sparse.bits_up < 0.2, "{sparse:?} {untrained:?}");
        assert!((sparse.bits_down / sparse.bits_up - 4.0).abs() < 1e-6, "{sparse:?}");
    }

    #[test]
    fn choices_save_bits_and_blocks_have_the_bits_of_the_simulator() {
        let folder = tempfile::tempdir().unwrap();
        let scale = Scale { text: text(&folder), steps: 10, batch: 2, hidden: 16, held_out: 50 };
        let chosen = |policy| {
            let cut = Cut::Chosen { family: Family::Qsgd, policy, exact_below: 1500 };
            Run { cut, ..Run::plain(2, Named::Exact) }.train(&scale, 1, 1).unwrap()
        };
        let [uniform, chosen, groups] = [Policy::Uniform, Policy::LGreco, Policy::KMeans].map(chosen);
        assert!(chosen.bits_up <= uniform.bits_up && groups != uniform, "{chosen:?} {uniform:?} {groups:?}");
        let blocks = Run { cut: Cut::Blocks, ..Run::plain(8, Named::Exact) }.train(&scale, 1, 1).unwrap();
        assert!((4.0..32.1).contains(&blocks.bits_up), "{blocks:?}");
    }
}
