//! The state of a shard that survives a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::spec::Spec;

/// The phase of a shard, which decides what it can do next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It has no value.
    #[default]
    Empty,
    /// It waits for the full-batch gradient at its snapshot.
    Waiting,
    /// It takes pushes.
    Running,
}

impl Phase {
    /// Its name in statistics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Waiting => "waiting",
            Self::Running => "running",
        }
    }
}

/// Which state of a shard a vector is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Epochs completed.
    pub epoch: u64,
    /// Pushes taken in this epoch.
    pub step: u64,
    /// Pushes taken in all.
    pub version: u64,
}

/// Numbers that may be shared.
pub type SharedVector = Arc<Vec<f32>>;

/// Everything of a shard that survives a restart. A clone shares the numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// The operations that are possible.
    pub phase: Phase,
    /// Epochs completed.
    pub epoch: u64,
    /// Pushes taken in this epoch: t.
    pub step: u64,
    /// Pushes taken in all.
    pub version: u64,
    /// x.
    pub x: SharedVector,
    /// x̃; empty if the model has no epochs.
    pub snapshot: SharedVector,
    /// ∇f(x̃); empty without correction.
    pub gradient: SharedVector,
    /// y of Algorithm 3; empty without momentum.
    pub y: SharedVector,
    /// Mean of x over the epoch; empty without momentum.
    pub mean: SharedVector,
    /// m of the optimizer; empty for SGD.
    pub first: SharedVector,
    /// s of Adam; empty for others.
    pub second: SharedVector,
    /// The last push of each worker, by number.
    pub sequences: BTreeMap<u16, u64>,
}

impl State {
    /// All vectors, in the order of a state file.
    #[must_use]
    pub fn vectors(&self) -> [&SharedVector; 7] {
        [&self.x, &self.snapshot, &self.gradient, &self.y, &self.mean, &self.first, &self.second]
    }

    /// A state without a value, for shard `number`.
    #[must_use]
    pub fn empty(spec: &Spec, number: usize) -> Self {
        let [x, snapshot, gradient, y, mean, first, second] = spec
            .vectors()
            .map(|wanted| Arc::new(if wanted { vec![0.0; spec.range(number).len()] } else { Vec::new() }));
        Self { x, snapshot, gradient, y, mean, first, second, ..Self::default() }
    }

    /// Which state it is.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp { epoch: self.epoch, step: self.step, version: self.version }
    }
}
