//! Payload of NORM and NORM_RESULT (P3).

use super::{bytes, put, u16_at, u32_at};
use crate::{Rank, TableId};

/// Length in bytes.
pub const NORM_LEN: usize = 20;

/// How the coordinates of an all-reduce travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Transformed, quantized, as table indices.
    #[default]
    Compressed = 0,
    /// As scaled 32-bit integers.
    Raw = 1,
}

/// How the coordinates of a span of a tensor travel (P4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// As indices of this table of the job.
    Table(TableId),
    /// As 32-bit integers.
    Raw,
}

impl Choice {
    /// Table and mode of its NORMs.
    #[must_use]
    pub const fn of_norm(self) -> (TableId, Mode) {
        match self {
            Choice::Table(id) => (id, Mode::Compressed),
            Choice::Raw => (TableId(0), Mode::Raw),
        }
    }
}

/// A partition's norm, and which all-reduce it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Norm {
    /// Hash of what all workers must agree on, which [`Norm::with_tag`] gives.
    pub tag: u32,
    /// f32 bits of a norm, or the NaN of P19; [`Norm::is_value`] says which patterns there are.
    pub value: u32,
    /// Coordinates of the tensor from the partition's first one on: in the first NORM those of the whole
    /// all-reduce.
    pub length: u32,
    /// Its number in the session, modulo 2^16.
    pub call: u16,
    /// Its lookup table.
    pub table: TableId,
    /// How its coordinates travel, as on the wire.
    pub mode: u8,
    /// The caller's name for the tensor.
    pub key: u32,
}

impl Norm {
    /// The same with its tag (P3), a hash of all fields except the value and of the tensor's number of
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

    /// P19: the value that says that `worker` has a non-finite gradient.
    #[must_use]
    pub fn non_finite(worker: impl Into<Rank>) -> u32 {
        0x7FC0_0000 | u32::from(worker.into().0)
    }

    /// P19 read back: the worker whose gradient was not finite, if any.
    #[must_use]
    pub const fn non_finite_worker(value: u32) -> Option<Rank> {
        if value & !0xFFF == 0x7FC0_0000 { Some(Rank(value as u16 & 0xFFF)) } else { None }
    }

    /// f32 bits of the smallest norm that is not zero, 2^-100 (P5).
    pub const MIN: u32 = 0x0D80_0000;
    /// f32 bits of the largest norm, 2^122 (P5).
    pub const MAX: u32 = 0x7C80_0000;

    /// Whether a worker of a job of `workers` may send this value (P5, P19).
    #[must_use]
    pub const fn is_value(value: u32, workers: u16) -> bool {
        match Norm::non_finite_worker(value) {
            Some(worker) => worker.0 < workers,
            None => value == 0 || (value >= Norm::MIN && value <= Norm::MAX),
        }
    }

    /// Reads a payload.
    #[inline]
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Norm> {
        let p: &[u8; NORM_LEN] = payload.try_into().ok()?;
        Some(Norm {
            tag: u32_at(p, 0),
            value: u32_at(p, 4),
            length: u32_at(p, 8),
            call: u16_at(p, 12),
            table: TableId(p[14]),
            mode: p[15],
            key: u32_at(p, 16),
        })
    }

    /// The tag a payload carries.
    #[inline]
    #[must_use]
    pub fn tag_of(payload: &[u8; NORM_LEN]) -> u32 {
        u32::from_be_bytes(bytes(payload, 0))
    }

    /// The payload.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; NORM_LEN] {
        let mut out = [0; NORM_LEN];
        put(&mut out, 0, &self.tag.to_be_bytes());
        put(&mut out, 4, &self.value.to_be_bytes());
        put(&mut out, 8, &self.length.to_be_bytes());
        put(&mut out, 12, &self.call.to_be_bytes());
        out[14] = self.table.0;
        out[15] = self.mode;
        put(&mut out, 16, &self.key.to_be_bytes());
        out
    }
}

/// The finalizer of SplitMix64.
pub(crate) fn finalize(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
