//! A shard: a range of coordinates with its own clock. Requests go in, answers come out.
//!
//! A shard is empty until it is given a value. With correction it then waits for the full-batch gradient at its
//! snapshot; running, it takes m pushes, sets the next snapshot and waits again (Algorithms 1 and 3).
//!
//! **Delay.** The version of a shard is how many pushes it has taken. The delay of a push is the number of pushes that
//! were taken since its pull. With a bound τ a push with a longer delay is refused, and its worker pulls again.
//!
//! **Sharing.** Vectors are shared: a [`Version`] and a clone of the [`State`] have the numbers of a moment without a copy,
//! so that they are rounded, hashed and written without the shard's lock. A push that comes meanwhile writes the next version
//! into a copy.

mod state;
mod version;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};
use thc_codec::norm;

use crate::codec::lattice::Lattice;
use crate::counters::Reason;
use crate::spec::Spec;
use crate::step::{LARGEST, Proximal, couple, theta};
use crate::tensors::TensorBlock;
pub use state::{Phase, SharedVector, Stamp, State};
pub use version::Version;

/// The answer to a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PullAnswer {
    /// No value yet.
    Empty,
    /// The epoch's gradient is missing.
    Waiting {
        /// The epoch.
        epoch: u64,
    },
    /// A vector was written.
    Running(Stamp),
    /// The vector is that of the pull before.
    Unchanged(Stamp),
    /// The vector is the snapshot, which the worker has.
    Snapshot(Stamp),
}

/// A push, all but its vector.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushHead {
    /// Number of this push, per worker from 1.
    pub sequence: u64,
    /// The stamp of the pull that it answers.
    pub stamp: Stamp,
    /// Factor of the model's rate.
    pub scale: f32,
}

/// The answer to a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The push was taken.
    Taken {
        /// The state after the push.
        stamp: Stamp,
        /// Steps between its pull and itself.
        delay: u64,
        /// It was the last of its epoch.
        ended: bool,
    },
    /// It had been taken before.
    Repeated,
    /// The push is refused.
    Refused(Reason),
}

/// A range of coordinates with its own clock.
#[derive(Debug)]
pub struct ModelShard {
    spec: Arc<Spec>,
    number: u32,
    state: State,
    /// The blocks that have a scale of their own in pulls. Empty if the shard has one scale.
    blocks: Arc<[TensorBlock]>,
    /// Precision of the last pull.
    bits: Arc<AtomicU8>,
    /// Largest delay of a push that was taken.
    pub(crate) longest: u64,
}

impl ModelShard {
    /// An empty shard.
    #[must_use]
    pub fn new(spec: Arc<Spec>, number: u32) -> Self {
        let state = State::empty(&spec, number as usize);
        Self::resume(spec, number, state)
    }

    /// A shard in a state that was kept. Its vectors must have the lengths of [`Self::new`].
    #[must_use]
    pub fn resume(spec: Arc<Spec>, number: u32, state: State) -> Self {
        let blocks = spec.blocks(number as usize);
        Self { spec, number, state, blocks: blocks.into(), bits: Arc::default(), longest: 0 }
    }

    /// The state that survives a restart.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The stamp of the current state.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.state.stamp()
    }

    /// Precision of the last pull, 0 before the first.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits.load(Ordering::Relaxed)
    }

    /// The number of the last push of a worker.
    #[must_use]
    pub fn sequence(&self, worker: u16) -> u64 {
        self.state.sequences.get(&worker).copied().unwrap_or(0)
    }

    /// Returns whether it may hold these numbers.
    #[must_use]
    pub fn holds(x: &[f32]) -> bool {
        norm::max_abs(x) <= LARGEST
    }

    /// Gives an empty shard its value, which it must be able to hold: whether it was empty.
    pub fn initialise(&mut self, x: &[f32]) -> bool {
        if self.state.phase != Phase::Empty || !Self::holds(x) {
            return false;
        }
        self.state.x = Arc::new(x.to_vec());
        for copy in [&mut self.state.snapshot, &mut self.state.y] {
            if !copy.is_empty() {
                *copy = Arc::clone(&self.state.x);
            }
        }
        self.begin_epoch();
        true
    }

    /// The state between two epochs, after the snapshot was set.
    fn begin_epoch(&mut self) {
        let State { x, snapshot, y, mean, epoch, .. } = &mut self.state;
        if self.spec.accelerated {
            // x₀ = θ·y₀ + (1 − θ)·x̃ (line 3), in the form of line 8.
            let weight = theta(*epoch);
            let first = y.iter().zip(&**snapshot).map(|(y, snapshot)| snapshot + weight * (y - snapshot));
            *x = Arc::new(first.collect());
            *mean = Arc::new(vec![0.0; y.len()]);
        }
        self.state.step = 0;
        self.state.phase = if self.spec.corrected { Phase::Waiting } else { Phase::Running };
    }

    /// Gives the full-batch gradient of an epoch: whether it was missing.
    pub fn begin(&mut self, epoch: u64, gradient: &[f32]) -> bool {
        if self.state.phase != Phase::Waiting || self.state.epoch != epoch {
            return false;
        }
        self.state.gradient = Arc::new(gradient.to_vec());
        self.state.phase = Phase::Running;
        true
    }

    /// Appends the model to `out`, in the precision of the spec, unless the worker has it: `known` is the stamp of
    /// its last pull, and `snapshot` the epoch of its snapshot.
    ///
    /// # Errors
    /// A model that is no longer finite.
    pub fn pull(
        &self,
        worker: u16,
        known: Option<Stamp>,
        snapshot: Option<u64>,
        out: &mut Vec<u8>,
    ) -> Result<PullAnswer, thc_codec::CodecError> {
        let (answer, version) = self.prepare(worker, known, snapshot);
        if let Some(version) = version {
            version.write(out)?;
        }
        Ok(answer)
    }

    /// [`Self::pull`] without the writing, for which the shard is not needed.
    pub fn prepare(
        &self,
        worker: u16,
        known: Option<Stamp>,
        snapshot: Option<u64>,
    ) -> (PullAnswer, Option<Version>) {
        match self.state.phase {
            Phase::Empty => return (PullAnswer::Empty, None),
            Phase::Waiting => return (PullAnswer::Waiting { epoch: self.state.epoch }, None),
            Phase::Running => {}
        }
        let stamp = self.stamp();
        if known == Some(stamp) {
            (PullAnswer::Unchanged(stamp), None)
        } else if stamp.step == 0
            && self.spec.snapshots()
            && !self.spec.accelerated
            && snapshot == Some(stamp.epoch)
        {
            (PullAnswer::Snapshot(stamp), None)
        } else {
            (PullAnswer::Running(stamp), Some(self.version(worker)))
        }
    }

    /// Step 7 of Algorithm 1. The same worker gets the same rounding of the same version.
    fn version(&self, worker: u16) -> Version {
        Version {
            x: Arc::clone(&self.state.x),
            snapshot: Arc::clone(&self.state.snapshot),
            spec: Arc::clone(&self.spec),
            blocks: Arc::clone(&self.blocks),
            weight: self.weight(),
            round: self.state.version << 16 | u64::from(worker),
            number: self.number,
            bits: Arc::clone(&self.bits),
        }
    }

    /// The weight of μ: θ for accelerated models (condition (4)).
    fn weight(&self) -> f32 {
        if self.spec.accelerated { theta(self.state.epoch) } else { 1.0 }
    }

    /// The least μ for which condition (2) holds with `bits`, and E‖Q(x) − x‖²: Figs. 2 and 5 of the paper.
    ///
    /// # Errors
    /// `bits` out of range, and a model that is no longer finite.
    pub fn condition(&self, bits: u8) -> Result<(f64, f64), thc_codec::CodecError> {
        let variance = Lattice::fit(&self.state.x, bits)?.variance(&self.state.x);
        Ok((variance / version::drift(&self.state.x, &self.state.snapshot), variance))
    }

    /// Takes the gradient `zeta` of a worker.
    pub fn push(&mut self, worker: u16, head: &PushHead, zeta: &[f32]) -> Applied {
        if head.sequence <= self.sequence(worker) {
            return Applied::Repeated;
        }
        let stamp = self.stamp();
        match self.state.phase {
            Phase::Empty => return Applied::Refused(Reason::Empty),
            Phase::Waiting => return Applied::Refused(Reason::Epoch),
            Phase::Running => {}
        }
        if self.spec.corrected && head.stamp.epoch != stamp.epoch {
            return Applied::Refused(Reason::Epoch);
        }
        let Some(delay) = stamp.version.checked_sub(head.stamp.version) else {
            return Applied::Refused(Reason::Future);
        };
        if self.spec.delay.is_some_and(|limit| delay > limit.into()) {
            return Applied::Refused(Reason::Late);
        }
        if !self.advance(zeta, head.scale) {
            return Applied::Refused(Reason::Range);
        }
        self.state.sequences.insert(worker, head.sequence);
        self.longest = self.longest.max(delay);
        let ended = self.spec.epoch.is_some_and(|m| self.state.step >= u64::from(m.get()));
        if ended {
            self.end_epoch();
        }
        Applied::Taken { stamp: self.stamp(), delay, ended }
    }

    /// Makes the step, unless it would take a number out of range: whether it did.
    fn advance(&mut self, zeta: &[f32], scale: f32) -> bool {
        let State { x, snapshot, gradient, y, mean, first, second, epoch, step, version, .. } =
            &mut self.state;
        let weight = if self.spec.accelerated { theta(*epoch) } else { 1.0 };
        let rate = self.spec.rate * scale / weight;
        let (prox, optimizer) = (Proximal::new(&self.spec.prox, rate), self.spec.optimizer);
        let v = if self.spec.accelerated { &mut *y } else { &mut *x };
        if !optimizer.keeps(*version, &prox, v, zeta, gradient, first) {
            return false;
        }
        let [v, m, s] = [v, first, second].map(|vector| -> &mut Vec<f32> { Arc::make_mut(vector) });
        optimizer.advance(*version, &prox, v, zeta, gradient, m, s);
        if self.spec.accelerated {
            // Between numbers that are in range.
            let [x, mean] = [x, mean].map(|vector| -> &mut Vec<f32> { Arc::make_mut(vector) });
            couple(x, y, snapshot, mean, weight, *step);
        }
        *step += 1;
        *version += 1;
        true
    }

    /// Sets the next snapshot: the last x, or with momentum the mean.
    fn end_epoch(&mut self) {
        let State { x, snapshot, mean, .. } = &mut self.state;
        *snapshot = Arc::clone(if self.spec.accelerated { mean } else { x });
        self.state.epoch += 1;
        self.begin_epoch();
    }
}

#[cfg(test)]
mod tests;
