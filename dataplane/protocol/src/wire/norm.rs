//! Payload of NORM and NORM_RESULT (P3).

use super::layout::payload;
use crate::{Rank, TableId};

/// The form in which the coordinates of an all-reduce travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Transformed, quantized, as table indices.
    #[default]
    Compressed = 0,
    /// As scaled 32-bit integers.
    Raw = 1,
}

/// The form in which the coordinates of a span of a tensor travel (P4 partitions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// As indices of this table of the job.
    Table(TableId),
    /// As 32-bit integers.
    Raw,
}

impl Choice {
    /// Table and mode of its NORMs.
    pub const fn of_norm(self) -> (TableId, Mode) {
        match self {
            Choice::Table(id) => (id, Mode::Compressed),
            Choice::Raw => (TableId(0), Mode::Raw),
        }
    }
}

payload! {
    /// A partition's norm, and which all-reduce it belongs to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Norm[NORM_LEN = 20] {
        /// Hash of what all workers must agree on, which [`Norm::with_tag`] gives.
        0 tag: u32,
        /// f32 bits of a norm, or the NaN of P19; [`Norm::is_value`] says which patterns there are.
        4 value: u32,
        /// Coordinates of the tensor from the partition's first one on: in the first NORM those of the whole
        /// all-reduce.
        8 length: u32,
        /// Its number in the session, modulo 2^16.
        12 call: u16,
        /// Its lookup table.
        14 table: TableId,
        /// Its [`Mode`], as on the wire.
        15 mode: u8,
        /// The caller's name for the tensor.
        16 key: u32,
    }
}

impl Norm {
    /// This NORM with its tag (P3), a hash of all fields except the value and of the tensor's number of
    /// partitions. That number is only in the tag, so what an aggregator compares also shows how the workers
    /// have cut the tensor.
    #[must_use]
    pub fn with_tag(self, partitions: u32) -> Norm {
        let fields = (u64::from(self.length) << 32)
            | (u64::from(self.call) << 16)
            | (u64::from(self.table.0) << 8)
            | u64::from(self.mode);
        // A key takes 33 bits here, and no tensor has 2^31 partitions.
        let others = (u64::from(partitions) << 33).wrapping_add(u64::from(self.key) + 1);
        Norm { tag: ((finalize(fields) ^ finalize(others)) >> 32) as u32, ..self }
    }

    /// The value of a worker with a non-finite gradient (P19).
    pub fn non_finite(worker: impl Into<Rank>) -> u32 {
        0x7FC0_0000 | u32::from(worker.into().0)
    }

    /// The worker of such a value, if it is one.
    pub const fn non_finite_worker(value: u32) -> Option<Rank> {
        if value & !0xFFF == 0x7FC0_0000 { Some(Rank(value as u16 & 0xFFF)) } else { None }
    }

    /// f32 bits of the smallest norm that is not zero, 2^-100 (P5 values).
    pub const MIN: u32 = 0x0D80_0000;
    /// f32 bits of the largest norm, 2^122 (P5 values).
    pub const MAX: u32 = 0x7C80_0000;

    /// Returns whether a worker of a job of `workers` may send this value (P5 values, P19 non-finite gradients).
    pub const fn is_value(value: u32, workers: u16) -> bool {
        match Norm::non_finite_worker(value) {
            Some(worker) => worker.0 < workers,
            None => value == 0 || (value >= Norm::MIN && value <= Norm::MAX),
        }
    }

    /// The tag a payload carries.
    #[inline]
    pub fn tag_of(payload: &[u8; NORM_LEN]) -> u32 {
        u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]])
    }
}

/// The finalizer of SplitMix64.
pub(crate) fn finalize(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The digest of some words: h ← 0, then h ← mix(h ⊕ word) + 1 for each (P23 WELCOME, P38 sessions in racks).
pub(crate) fn digest(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0, |hash, word| finalize(hash ^ word).wrapping_add(1))
}
