//! The level of an aggregator: alone, a rack below a root, or the root of racks (P34 to P37).

use super::Lookup;
use super::endpoint::Endpoint;
use super::error::JobConfigError;
use super::shard::Shard;
use crate::{JobId, Lane, MAX_WORKERS, SlotId, WorkerId};
use std::net::SocketAddr;

/// The racks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Racks {
    /// The number of racks, 1 to 64: the root's workers.
    pub count: u8,
    /// Workers of the largest, 1 to 64.
    pub largest: u8,
    /// Workers of all together.
    pub total: u16,
}

/// The level of an aggregator in a job (P34 levels).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// The only one: its sums are results.
    #[default]
    Only,
    /// A rack: its sums go up to the root.
    Rack {
        /// All racks.
        racks: Racks,
        /// Its number among them, as which the root knows it.
        rack: WorkerId,
        /// The address of the root's first port.
        root: Endpoint,
        /// UDP ports over which the root's slots are spread.
        ports: u8,
    },
    /// The root: its members are racks.
    Root(Racks),
}

impl Level {
    /// The racks, if there are any.
    pub const fn racks(&self) -> Option<&Racks> {
        match self {
            Level::Only => None,
            Level::Rack { racks, .. } | Level::Root(racks) => Some(racks),
        }
    }

    /// Returns how DATA of a table travels to this aggregator; `None` if racks cannot have the table.
    pub fn lookup(&self, table: &Lookup) -> Option<Lookup> {
        let Some(racks) = self.racks() else { return Some(*table) };
        let (below, above) = table.form.in_racks(racks.sums(table))?;
        let form = if matches!(self, Level::Root(_)) { above } else { below };
        Some(Lookup { form, ..*table })
    }

    pub(super) fn check(&self, job: JobId, workers: u8) -> Result<(), JobConfigError> {
        let most = MAX_WORKERS as u8;
        let Some(&Racks { count, largest, total }) = self.racks() else { return Ok(()) };
        let fits = (1..=most).contains(&count)
            && (1..=most).contains(&largest)
            && (u16::from(largest)..=u16::from(largest) * u16::from(count)).contains(&total)
            && match *self {
                Level::Rack { rack, .. } => rack.0 < count && workers <= largest,
                _ => workers == count,
            };
        if fits { Ok(()) } else { Err(JobConfigError::Racks { job, racks: count, largest, total }) }
    }
}

impl Racks {
    /// Lanes of a rack's sums of a table (P34 levels).
    pub fn sums(&self, table: &Lookup) -> Lane {
        let sum = u32::from(self.largest) * u32::from(table.granularity());
        if sum <= Lane::Bits8.max_sum() && !table.form.is_identity() { Lane::Bits8 } else { Lane::Bits16 }
    }
}

/// Returns where a slot's packets go at the root.
pub(super) fn port_of(root: Endpoint, ports: u8, slot: SlotId) -> Endpoint {
    let port = root.addr.port().wrapping_add(Shard::index_of(slot, ports).into());
    Endpoint { ingress: root.ingress, addr: SocketAddr::from((root.addr.ip(), port)) }
}
