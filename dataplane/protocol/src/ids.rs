//! Newtypes of the numbers that packets carry.

use std::fmt;

/// Most workers a job can have: one bit each in a slot's `seen` (P8 slots and rounds).
pub const MAX_WORKERS: usize = 64;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A job's number.
    JobId(u16)
);
id!(
    /// A slot's number within its job and class.
    SlotId(u16)
);
id!(
    /// A worker's number within its job, below [`MAX_WORKERS`].
    WorkerId(u8)
);
id!(
    /// A lookup table's number.
    TableId(u8)
);

impl WorkerId {
    /// The number in downstream packets that name no worker (P1 header).
    pub const NONE: WorkerId = WorkerId(255);

    /// This worker's bit in `seen`; 0 for numbers that no job has.
    pub const fn bit(self) -> u64 {
        if (self.0 as usize) < MAX_WORKERS { 1 << self.0 } else { 0 }
    }
}

id!(
    /// A worker's number among all workers of its job, over all racks (P34 levels); without racks its number in the job.
    Rank(u16)
);

impl From<WorkerId> for Rank {
    fn from(worker: WorkerId) -> Rank {
        Rank(worker.0.into())
    }
}

/// The number of times that a slot has been reused, modulo 2^32 (P8 slots and rounds).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Round(pub u32);

impl Round {
    /// Returns whether `self` is newer than `other` by serial-number arithmetic (P9).
    pub const fn newer_than(self, other: Round) -> bool {
        let ahead = self.0.wrapping_sub(other.0);
        ahead != 0 && ahead < 1 << 31
    }

    /// The round after this.
    pub const fn next(self) -> Round {
        Round(self.0.wrapping_add(1))
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A job's or session's secret. It prints as dots, so that no log shows it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Cookie(pub u32);

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie(…)")
    }
}

/// Width of one summed coordinate downstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lane {
    /// 4 bits: n·g ≤ 15.
    Bits4,
    /// 8 bits: n·g ≤ 255.
    #[default]
    Bits8,
    /// 16 bits: n·g ≤ 65535.
    Bits16,
}

impl Lane {
    /// 4, 8 or 16.
    pub const fn bits(self) -> u8 {
        match self {
            Lane::Bits4 => 4,
            Lane::Bits8 => 8,
            Lane::Bits16 => 16,
        }
    }

    /// The narrowest lane that holds sums of this number of bits, 4 to 16.
    pub const fn narrowest(bits: u8) -> Option<Lane> {
        match bits {
            4 => Some(Lane::Bits4),
            5..=8 => Some(Lane::Bits8),
            9..=16 => Some(Lane::Bits16),
            _ => None,
        }
    }

    /// The largest sum that fits.
    pub const fn max_sum(self) -> u32 {
        (1 << self.bits()) - 1
    }
}

/// The policy of a worker for coordinates that do not come back (P48 loss policies).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Send again until the RESULT comes.
    #[default]
    Reliable,
    /// Send once; after the deadline they count as zero.
    BestEffort,
}
