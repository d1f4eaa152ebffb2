//! A whole model in one file: its specification and its vectors, independent of the servers and shards that held it.
//!
//! ```text
//! "THCMODLX", length of the JSON u32, {"spec", "epoch", "step", "version", "phase"}, then those of x, snapshot, full-batch
//! gradient, y, mean, m and s that the spec has, f32 each; SHA-256 of all of this
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ring::digest;
use serde::{Deserialize, Serialize};

use crate::error::ModelError;
use crate::payload;
use crate::shard::{Phase, State};
use crate::spec::Spec;

const MAGIC: &[u8; 8] = b"THCMODLX";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    spec: Spec,
    epoch: u64,
    step: u64,
    version: u64,
    phase: u8,
}

/// A whole model: its specification, its progress and its vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct Archive {
    head: Head,
    vectors: [Vec<f32>; 7],
}

fn wrong(what: &str) -> ModelError {
    ModelError::Config(what.to_owned())
}

impl Archive {
    /// The model's specification.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.head.spec
    }

    /// Pushes that its quickest shard had taken.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.head.version
    }

    /// x.
    #[must_use]
    pub fn numbers(&self) -> &[f32] {
        &self.vectors[0]
    }

    /// Joins the parts of all servers, in order, each with the states of its shards.
    pub(crate) fn join(parts: Vec<(Spec, Vec<State>)>) -> Result<Self, ModelError> {
        let mut all = parts.iter().flat_map(|(_, states)| states);
        let first = all.next().ok_or_else(|| wrong("there is no server"))?;
        let (mut step, mut version) = (first.step, first.version);
        for state in all {
            if (state.phase, state.epoch) != (first.phase, first.epoch) {
                return Err(wrong(
                    "the shards are in different epochs, or some have no value: try again in a moment",
                ));
            }
            (step, version) = (step.max(state.step), version.max(state.version));
        }
        if first.phase == Phase::Empty {
            return Err(ModelError::Empty);
        }
        let mut spec = parts[0].0.clone();
        let mut next = 0;
        for (part, _) in &parts {
            let (from, total) = part.part.unwrap_or((0, part.coordinates));
            if from != next {
                return Err(wrong(
                    "the servers are not all that hold the model, or in another order than workers name them",
                ));
            }
            next += part.coordinates;
            spec.coordinates = total;
        }
        if next != spec.coordinates {
            return Err(wrong("the servers are not all that hold the model: name all of them"));
        }
        spec.part = None;
        let mut vectors: [Vec<f32>; 7] = Default::default();
        for (_, states) in &parts {
            for state in states {
                for (whole, part) in vectors.iter_mut().zip(state.vectors()) {
                    whole.extend_from_slice(part);
                }
            }
        }
        let head = Head { spec, epoch: first.epoch, step, version, phase: first.phase.code() };
        Ok(Self { head, vectors })
    }

    /// Cuts the model over `servers` servers. Returns the part of each server and the states of its shards, in which the
    /// numbers of workers' pushes begin anew.
    pub(crate) fn cut(&self, servers: usize) -> Result<Vec<(Spec, Vec<State>)>, ModelError> {
        let Head { spec, epoch, step, version, phase } = &self.head;
        let (epoch, step, version) = (*epoch, *step, *version);
        let phase = if *phase == Phase::Waiting.code() { Phase::Waiting } else { Phase::Running };
        let mut begin = 0;
        let mut parts = Vec::with_capacity(servers);
        for number in 0..servers {
            let part = if servers == 1 { spec.clone() } else { spec.part_of(number, servers) };
            part.validate()?;
            let states = (0..part.shards()).map(|shard| {
                let range = part.range(shard);
                let range = begin + range.start..begin + range.end;
                let of = |place: usize| {
                    Arc::new(self.vectors[place].get(range.clone()).map(<[f32]>::to_vec).unwrap_or_default())
                };
                let [x, snapshot, gradient, y, mean, first, second] = std::array::from_fn(of);
                let sequences = BTreeMap::new();
                State {
                    phase,
                    epoch,
                    step,
                    version,
                    x,
                    snapshot,
                    gradient,
                    y,
                    mean,
                    first,
                    second,
                    sequences,
                }
            });
            let states = states.collect();
            begin += part.coordinates as usize;
            parts.push((part, states));
        }
        Ok(parts)
    }

    /// Writes the model, or only x as a NumPy array if the file's name ends in `.npy`.
    ///
    /// # Errors
    /// [`ModelError::State`].
    pub fn write(&self, path: &Path) -> Result<(), ModelError> {
        let bytes =
            if path.extension().is_some_and(|end| end == "npy") { self.numpy() } else { self.encode()? };
        std::fs::write(path, bytes).map_err(|error| state_error(path, error.to_string()))
    }

    /// Reads a file that [`Self::write`] wrote.
    ///
    /// # Errors
    /// [`ModelError::State`].
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let bytes = std::fs::read(path).map_err(|error| state_error(path, error.to_string()))?;
        Self::decode(&bytes).ok_or_else(|| {
            state_error(path, "it is damaged, or no exported model (FILE of export)".to_owned())
        })
    }

    fn numpy(&self) -> Vec<u8> {
        let x = self.numbers();
        let mut head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", x.len());
        // Magic, version, length and header together are a multiple of 64 bytes.
        while (10 + head.len() + 1) % 64 != 0 {
            head.push(' ');
        }
        head.push('\n');
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((head.len() as u16).to_le_bytes());
        bytes.extend(head.as_bytes());
        payload::put_floats(x, &mut bytes);
        bytes
    }

    fn encode(&self) -> Result<Vec<u8>, ModelError> {
        let head = serde_json::to_vec(&self.head).map_err(|error| wrong(&error.to_string()))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend((head.len() as u32).to_le_bytes());
        bytes.extend(head);
        self.vectors.iter().for_each(|vector| payload::put_floats(vector, &mut bytes));
        let digest = digest::digest(&digest::SHA256, &bytes);
        bytes.extend(digest.as_ref());
        Ok(bytes)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, digest) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
        if digest::digest(&digest::SHA256, body).as_ref() != digest {
            return None;
        }
        let rest = body.strip_prefix(MAGIC)?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (head, mut rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let head: Head = serde_json::from_slice(head).ok()?;
        head.spec.validate().ok()?;
        let mut vectors: [Vec<f32>; 7] = Default::default();
        for (vector, wanted) in vectors.iter_mut().zip(head.spec.vectors()) {
            *vector = vec![0.0; if wanted { usize::try_from(head.spec.coordinates).ok()? } else { 0 }];
            let (own, after) = rest.split_at_checked(4 * vector.len())?;
            payload::take_floats(own, vector).ok()?;
            rest = after;
        }
        rest.is_empty().then_some(Self { head, vectors })
    }
}

fn state_error(path: &Path, reason: String) -> ModelError {
    ModelError::State { path: path.to_owned(), reason }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::optimizer::Optimizer;

    fn archive() -> Archive {
        let optimizer = Optimizer::Adam { beta1: 0.9, beta2: 0.99, epsilon: 1e-8 };
        let spec = Spec { shard: 16, optimizer, ..Spec::sgd(100, 0.1) };
        let vector = |from: u8| (from..from + 100).map(f32::from).collect::<Vec<_>>();
        let vectors = [vector(0), vec![], vec![], vec![], vec![], vector(1), vector(2)];
        Archive { head: Head { spec, epoch: 0, step: 7, version: 7, phase: 2 }, vectors }
    }

    #[test]
    fn any_number_of_servers_holds_the_same_model() {
        for servers in [1, 2, 3, 7] {
            let parts = archive().cut(servers).unwrap();
            assert_eq!(parts.len(), servers);
            assert_eq!(Archive::join(parts).unwrap(), archive(), "{servers} servers");
        }
        let mut parts = archive().cut(3).unwrap();
        parts.swap(0, 1);
        assert!(Archive::join(parts.clone()).is_err());
        parts.remove(0);
        assert!(Archive::join(parts).is_err());
        let mut parts = archive().cut(2).unwrap();
        parts[1].1[0].phase = Phase::Empty;
        assert!(Archive::join(parts).is_err());
    }

    #[test]
    fn what_is_written_is_read_and_damage_is_noticed() {
        let bytes = archive().encode().unwrap();
        assert_eq!(Archive::decode(&bytes), Some(archive()));
        for at in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Archive::decode(&damaged), None);
            assert_eq!(Archive::decode(&bytes[..at]), None);
        }
        let numpy = archive().numpy();
        assert_eq!(numpy.len() % 64, 400 % 64);
        assert_eq!(numpy[..6], *b"\x93NUMPY");
    }
}
