//! The numbers of a shard at one moment, and how a pull rounds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::codec::lattice::{BITS, Lattice};
use thc_codec::CodecError;
use thc_codec::norm;

use super::state::SharedVector;
use crate::payload::{self, Encoding, Roundings};
use crate::spec::{ModelBits, Spec};
use crate::tensors::{EXACT, TensorBlock};

/// One version for one worker. It needs no lock, whatever the shard does meanwhile.
#[derive(Debug)]
pub struct Version {
    pub(super) x: SharedVector,
    pub(super) snapshot: SharedVector,
    pub(super) spec: Arc<Spec>,
    pub(super) blocks: Arc<[TensorBlock]>,
    /// The weight of μ.
    pub(super) weight: f32,
    /// The round of the rounding.
    pub(super) round: u64,
    pub(super) number: u32,
    /// The precision to report: the most bits of a rounded block, 32 if there is none.
    pub(super) bits: Arc<AtomicU8>,
}

impl Version {
    /// Appends the numbers in the precision of the spec.
    ///
    /// # Errors
    /// Numbers that are no longer finite.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let roundings = Roundings { seed: self.spec.seed, round: self.round, shard: self.number };
        let bits = if self.blocks.is_empty() {
            let lattice = self.choose()?;
            match &lattice {
                Some(lattice) => payload::encode_on(&self.x, lattice, roundings.piece(0), out)?,
                None => payload::encode_full(&self.x, out),
            };
            lattice.map_or(EXACT, |lattice| lattice.bits())
        } else {
            let encoding = |block: &TensorBlock| Encoding::Dense { bits: block.bits };
            payload::encode_blocks(&self.x, &self.blocks, encoding, roundings, out)?;
            let bits = self.blocks.iter().map(|block| block.bits);
            bits.filter(|bits| BITS.contains(bits)).max().unwrap_or(EXACT)
        };
        self.bits.store(bits, Ordering::Relaxed);
        Ok(())
    }

    /// The lattice of pulls, `None` for floats.
    fn choose(&self) -> Result<Option<Lattice>, CodecError> {
        let max = norm::max_abs(&self.x);
        match self.spec.bits {
            ModelBits::Fixed(EXACT) => Ok(None),
            ModelBits::Fixed(bits) => Lattice::with_max(max, bits).map(Some),
            ModelBits::Condition(mu) => {
                let allowed = f64::from(self.weight * mu) * drift(&self.x, &self.snapshot);
                for bits in BITS {
                    let lattice = Lattice::with_max(max, bits)?;
                    if lattice.variance(&self.x) <= allowed {
                        return Ok(Some(lattice));
                    }
                }
                Ok(None)
            }
        }
    }
}

/// ‖x − x̃‖², 0 without snapshots.
pub(super) fn drift(x: &[f32], snapshot: &[f32]) -> f64 {
    let difference: Vec<f32> = x.iter().zip(snapshot).map(|(x, s)| x - s).collect();
    f64::from(norm::l2(&difference)).powi(2)
}
