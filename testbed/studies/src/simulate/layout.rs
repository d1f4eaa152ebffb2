//! Who adds up in a simulation, and what is at the switch's place.

use clap::ValueEnum;
use serde::Serialize;

/// Who adds up, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// THC with the aggregator at the switch's place
    Switch,
    /// THC with a share of the server beside every worker
    Colocated,
    /// THC with one server on a link like the workers'
    Server,
    /// THC with an aggregator in each rack at its switch's place, and a root above them
    Racks,
    /// A ring of f32, as gloo's and NCCL's
    RingFp32,
    /// A ring of int8, which adds up and quantizes again on every hop
    RingInt8,
}

impl Layout {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Colocated => "colocated",
            Self::Server => "server",
            Self::Racks => "racks",
            Self::RingFp32 => "ring-fp32",
            Self::RingInt8 => "ring-int8",
        }
    }

    /// Whether it has room for so many workers, of which `rack` are in a rack at most.
    pub fn takes(self, workers: u16, rack: u16) -> bool {
        match self {
            Self::RingFp32 | Self::RingInt8 => true,
            Self::Racks => (rack + 1..=64 * rack).contains(&workers),
            _ => workers <= 64,
        }
    }

    /// Whether it is a schedule of messages, without THC.
    pub fn is_ring(self) -> bool {
        matches!(self, Self::RingFp32 | Self::RingInt8)
    }
}
