//! The specification of a model and of the rule of its steps.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::error::ModelError;
use crate::step::{Optimizer, Prox};
use crate::tensors::{self, EXACT, MAX_TENSORS, Tensor, TensorBlock};

/// Coordinates of a shard unless a [`Spec`] says otherwise: 1 MiB, less than a millisecond under its lock. A worker encodes
/// one shard while the one before is on its way, so a smaller one is sooner there, and a larger one has fewer frames.
const SHARD: u32 = 1 << 18;
/// Most coordinates of a shard.
const LARGEST_SHARD: u32 = 1 << 24;
/// Most workers of a model: their numbers are below it.
pub const MAX_WORKERS: u16 = 1024;
/// Most shards of a model: each has a stream of a worker's connection.
pub const MAX_SHARDS: u64 = 4095;

/// Coordinates of a shard, unless a [`Spec`] says otherwise: 2^18, or where a server would have too many of them, the next power
/// of two with which it has not.
#[must_use]
pub fn default_shard(coordinates: u64) -> u32 {
    let least = coordinates.div_ceil(MAX_SHARDS).min(u64::from(LARGEST_SHARD));
    SHARD.max((least as u32).next_power_of_two())
}

/// Precision of pulled models.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelBits {
    /// Always so many: 2 to 16, or 32 for the floats themselves.
    Fixed(u8),
    /// As few as condition (2) allows with this μ: E‖Q(x) − x‖² ≤ μ ‖x − x̃‖² in each shard. Floats where 16 do not do.
    /// An accelerated model takes θ·μ, which is condition (4).
    Condition(f32),
}

/// A model. All its workers must give the same; the first to come makes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Length of the vector.
    pub coordinates: u64,
    /// η. Each push may scale it.
    pub rate: f32,
    /// SVRG's correction: pushes are differences from the gradient at the snapshot, and the server adds the
    /// full-batch gradient (Algorithm 1). Without: plain stochastic gradients.
    pub corrected: bool,
    /// Momentum as in Algorithm 3: θ = 2/(s + 2) in epoch s = 1, 2, …, and η/θ for η. It needs the correction, which reduces the
    /// variance of its growing steps.
    pub accelerated: bool,
    /// The rule by which the server steps.
    #[serde(default)]
    pub optimizer: Optimizer,
    /// The tensors of the whole model, in order, each with bits of its own; none: every shard has one scale.
    #[serde(default)]
    pub tensors: Vec<Tensor>,
    /// m: pushes of an epoch. `None`: it never ends, which only models without correction and momentum can do.
    pub epoch: Option<NonZeroU32>,
    /// h.
    #[serde(default)]
    pub prox: Prox,
    /// τ: a push is refused if the model has made more than this many steps since its pull. At least workers − 1.
    /// `None`: there is no bound.
    pub delay: Option<u32>,
    /// The number of workers; each worker's own number is less.
    pub workers: u16,
    /// Precision of pulls, where `tensors` do not say it.
    pub bits: ModelBits,
    /// Coordinates of a shard: what has one clock, one lock, one stream and one file.
    pub shard: u32,
    /// The seed of the rounding of pulls.
    pub seed: u64,
}

impl Spec {
    /// Plain stochastic gradient descent with pulls of 8 bits, for up to 64 workers.
    #[must_use]
    pub fn sgd(coordinates: u64, rate: f32) -> Self {
        Self {
            coordinates,
            rate,
            corrected: false,
            accelerated: false,
            optimizer: Optimizer::Sgd,
            tensors: Vec::new(),
            epoch: None,
            prox: Prox::default(),
            delay: None,
            workers: 64,
            bits: ModelBits::Fixed(8),
            shard: default_shard(coordinates),
            seed: 0,
        }
    }

    /// AsyLPG with pulls of 8 bits, for up to 64 workers; `epoch` is m.
    #[must_use]
    pub fn asylpg(coordinates: u64, rate: f32, epoch: NonZeroU32) -> Self {
        Self { corrected: true, epoch: Some(epoch), ..Self::sgd(coordinates, rate) }
    }

    /// Checks the specification.
    ///
    /// # Errors
    /// [`ModelError::Config`], which names the field.
    pub fn validate(&self) -> Result<(), ModelError> {
        let fault = self.fault().or_else(|| {
            let least = self.coordinates.div_ceil(MAX_SHARDS);
            (least > u64::from(self.shard)).then(|| {
                format!(
                    "shard is {}, and a server takes at most {MAX_SHARDS} shards: give at least {least} coordinates",
                    self.shard
                )
            })
        });
        fault.map_or(Ok(()), |fault| Err(ModelError::Config(format!("model: {fault}"))))
    }

    fn fault(&self) -> Option<String> {
        let finite = |number: f32, least: f32| number.is_finite() && number >= least;
        let Prox { l1, l2, bounds } = self.prox;
        let ordered = |(lower, upper): (f32, f32)| lower.is_finite() && upper.is_finite() && lower <= upper;
        let keepable = |delay: u32| delay >= u32::from(self.workers).saturating_sub(1);
        let bits = match self.bits {
            ModelBits::Fixed(bits) => matches!(bits, 2..=16 | EXACT),
            ModelBits::Condition(mu) => mu.is_finite() && mu > 0.0,
        };
        let checks = [
            (self.coordinates > 0, "coordinates is 0: a model has at least one"),
            (self.rate.is_finite() && self.rate > 0.0, "rate must be a finite number above 0"),
            (finite(l1, 0.0) && finite(l2, 0.0), "prox.l1 and prox.l2 must be finite and not negative"),
            (bounds.is_none_or(ordered), "prox.bounds must be a finite lower and upper bound, in this order"),
            ((1..=MAX_WORKERS).contains(&self.workers), "workers must be 1 to 1024"),
            (
                self.delay.is_none_or(keepable),
                "delay is below workers − 1, which not all can keep at once: raise it, or leave it out",
            ),
            (
                self.epoch.is_some() || !(self.corrected || self.accelerated),
                "epoch is missing: correction and momentum need the pushes of an epoch",
            ),
            (
                self.corrected || !self.accelerated,
                "accelerated needs corrected, which reduces the variance of its growing steps",
            ),
            (
                !self.accelerated || self.optimizer == Optimizer::Sgd,
                "optimizer and accelerated are two momentums: leave one out",
            ),
            (bits, "bits must be 2 to 16, or 32; μ of condition (2) a finite number above 0"),
            ((16..=LARGEST_SHARD).contains(&self.shard), "shard must be 16 to 16777216 coordinates"),
        ];
        let wrong = checks.into_iter().find_map(|(holds, fault)| (!holds).then_some(fault));
        wrong.or_else(|| self.optimizer.fault()).or_else(|| self.tensors_fault()).map(str::to_owned)
    }

    fn tensors_fault(&self) -> Option<&'static str> {
        if self.tensors.is_empty() {
            return None;
        }
        let sum = self.tensors.iter().try_fold(0_u64, |sum, tensor| sum.checked_add(tensor.length));
        if self.tensors.len() > MAX_TENSORS {
            Some("tensors are more than 16384")
        } else if sum != Some(self.coordinates) {
            Some("tensors do not have as many coordinates together as the model")
        } else if self.tensors.iter().any(|tensor| !matches!(tensor.bits, 2..=16 | EXACT)) {
            Some("tensors: bits must be 2 to 16, or 32")
        } else if self.tensors.iter().any(|tensor| tensor.length == 0) {
            Some("tensors: one has no coordinates: leave it out")
        } else if matches!(self.bits, ModelBits::Condition(_)) {
            Some("tensors have bits of their own, and μ chooses them for a shard: leave one out")
        } else {
            None
        }
    }

    /// Which of the vectors of [`State`](crate::shard::State) it has, in their order.
    #[must_use]
    pub fn vectors(&self) -> [bool; 7] {
        let moments = self.optimizer.vectors();
        let (snapshots, corrected, accelerated) = (self.snapshots(), self.corrected, self.accelerated);
        [true, snapshots, corrected, accelerated, accelerated, moments > 0, moments > 1]
    }

    /// The parts of shard `number` with a scale each; if empty, the shard has one scale.
    #[must_use]
    pub fn blocks(&self, number: usize) -> Vec<TensorBlock> {
        let range = self.range(number);
        tensors::blocks(&self.tensors, &(range.start as u64..range.end as u64))
    }

    /// The number of shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.coordinates.div_ceil(u64::from(self.shard)) as usize
    }

    /// The coordinates of shard `number`.
    #[must_use]
    pub fn range(&self, number: usize) -> std::ops::Range<usize> {
        let from = number as u64 * u64::from(self.shard);
        from as usize..(from + u64::from(self.shard)).min(self.coordinates) as usize
    }

    /// Returns whether the model has snapshots.
    pub(crate) fn snapshots(&self) -> bool {
        self.epoch.is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn wrong_fields_are_named() {
        let good = Spec::asylpg(100, 0.1, NonZeroU32::MIN);
        good.validate().unwrap();
        let wrong = [
            ("coordinates", Spec { coordinates: 0, ..good.clone() }),
            ("rate", Spec { rate: f32::NAN, ..good.clone() }),
            ("rate", Spec { rate: 0.0, ..good.clone() }),
            ("prox", Spec { prox: Prox { l1: -1.0, ..Prox::default() }, ..good.clone() }),
            ("prox", Spec { prox: Prox { bounds: Some((1.0, 0.0)), ..Prox::default() }, ..good.clone() }),
            ("workers", Spec { workers: 0, ..good.clone() }),
            ("delay", Spec { delay: Some(3), workers: 6, ..good.clone() }),
            ("shard", Spec { coordinates: 4096 * 16, shard: 16, ..good.clone() }),
            ("epoch", Spec { epoch: None, ..good.clone() }),
            ("accelerated", Spec { corrected: false, accelerated: true, ..good.clone() }),
            (
                "accelerated",
                Spec { accelerated: true, optimizer: Optimizer::Momentum { beta: 0.9 }, ..good.clone() },
            ),
            ("β", Spec { optimizer: Optimizer::Momentum { beta: 2.0 }, ..good.clone() }),
            ("tensors", Spec { tensors: vec![(99, 8).into()], ..good.clone() }),
            ("tensors", Spec { tensors: vec![(100, 1).into()], ..good.clone() }),
            ("tensors", Spec { tensors: vec![(100, 8).into(), (0, 8).into()], ..good.clone() }),
            ("μ", Spec { tensors: vec![(100, 8).into()], bits: ModelBits::Condition(1.0), ..good.clone() }),
            ("bits", Spec { bits: ModelBits::Fixed(17), ..good.clone() }),
            ("μ", Spec { bits: ModelBits::Condition(0.0), ..good.clone() }),
            ("shard", Spec { shard: 1, ..good.clone() }),
        ];
        for (field, spec) in wrong {
            let message = spec.validate().unwrap_err().to_string();
            assert!(message.contains(field), "{field}: {message}");
        }
    }

    #[test]
    fn the_largest_values_are_values() {
        Spec { delay: Some(u32::MAX), workers: MAX_WORKERS, ..Spec::sgd(100, 0.1) }.validate().unwrap();
        Spec { coordinates: 4095 * 16, shard: 16, ..Spec::sgd(1, 0.1) }.validate().unwrap();
        let most = Spec { shard: 1 << 24, ..Spec::sgd(u64::MAX, 0.1) };
        assert!(most.validate().unwrap_err().to_string().contains("4095 shards"));
    }

    #[test]
    fn models_of_any_size_have_shards_by_default() {
        for (coordinates, shard) in
            [(1, 1 << 18), (4095 << 18, 1 << 18), ((4095 << 18) + 1, 1 << 19), (4095 << 24, 1 << 24)]
        {
            let spec = Spec::sgd(coordinates, 0.1);
            assert_eq!(spec.shard, shard);
            spec.validate().unwrap();
        }
        // More than a server takes.
        assert!(Spec::sgd((4095 << 24) + 1, 0.1).validate().is_err());
        assert!(Spec::sgd(u64::MAX, 0.1).validate().is_err());
    }

    #[test]
    fn shards_cover_everything_once() {
        for (coordinates, shard) in [(1, 16), (100, 16), (1000, 100), (17, 16)] {
            let spec = Spec { shard, ..Spec::sgd(coordinates, 1.0) };
            let mut next = 0;
            for number in 0..spec.shards() {
                let range = spec.range(number);
                assert_eq!(range.start, next);
                assert!(!range.is_empty() && range.len() <= shard as usize);
                next = range.end;
            }
            assert_eq!(next as u64, coordinates);
        }
    }
}
