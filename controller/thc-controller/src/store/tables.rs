//! Lookup tables, which jobs share.

use super::{Store, fits};
use crate::capacity::Capacity;
use crate::spec::JobSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thc_protocol::wire::{Form, Table as WireTable};
use tonic::Status;

/// A lookup table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredTable {
    /// b.
    pub bits: u8,
    /// g.
    pub granularity: u16,
    /// p.
    pub fraction: f64,
    /// T[0] to T[15].
    pub values: [u8; 16],
    /// Bits of an index on the wire, and of a sum.
    pub(super) form: (u8, u8),
    /// Its number in programs that number lookup tables themselves.
    pub(super) number: u8,
}

impl StoredTable {
    pub(super) fn matches(&self, wire: &WireTable) -> bool {
        (self.bits, self.values, self.fraction, self.form())
            == (wire.bits, wire.values, wire.fraction, wire.form)
    }

    /// The form of packets that name it.
    pub fn form(&self) -> Form {
        let (width, lane) = self.form;
        Form::with_sums(width, lane).unwrap_or_default()
    }
}

impl Store {
    /// The numbers on the wire of a new job's tables, in the order of its specification: those of equal tables, or free
    /// ones.
    pub(super) fn tables_for(
        &mut self,
        spec: &JobSpec,
        rooms: &[(String, Capacity)],
    ) -> Result<Vec<u8>, Status> {
        let name = spec.name();
        let room = rooms.iter().map(|(_, capacity)| capacity.tables).min().unwrap_or(255);
        let mut ids: Vec<u8> = Vec::new();
        for wire in spec.setup.welcome.tables.iter() {
            for (target, capacity) in rooms {
                fits(name, target, capacity.forms, wire, spec.rack.as_ref())?;
            }
            let equal = || self.tables.iter().find(|(_, table)| table.matches(wire)).map(|(&id, _)| id);
            let free = || (1..=u8::MAX).find(|id| !self.tables.contains_key(id));
            // The root has its tables under the numbers that they have.
            let id = if spec.rack.is_some() { Some(wire.id.0) } else { equal().or_else(free) };
            let id = id.ok_or_else(|| full(room))?;
            match self.tables.get(&id) {
                Some(table) if !table.matches(wire) => {
                    return Err(Status::already_exists(format!(
                        "job {name}: lookup table {id} is another one already: give the job another number, here and at its root"
                    )));
                }
                Some(_) => {}
                None if self.tables.len() >= room as usize => return Err(full(room)),
                None => {
                    let taken: BTreeSet<u8> = self.tables.values().map(|table| table.number).collect();
                    let number = (0..=u8::MAX).find(|number| !taken.contains(number)).unwrap_or(u8::MAX);
                    let &WireTable { bits, granularity, fraction, values, form, .. } = wire;
                    let form = (form.width(), form.sums());
                    let table = StoredTable { bits, granularity, fraction, values, form, number };
                    self.tables.insert(id, table);
                }
            }
            if ids.contains(&id) {
                return Err(Status::invalid_argument(format!(
                    "job {name}: two of its tables are the same, of {} bits in {}: leave one out",
                    wire.bits, wire.form
                )));
            }
            ids.push(id);
        }
        Ok(ids)
    }

    /// A table's number in programs that number lookup tables themselves: the least that was free, so that no
    /// more numbers are used than there are tables.
    pub(crate) fn number_of_table(&self, id: u8) -> u8 {
        self.tables.get(&id).map_or(id.wrapping_sub(1), |table| table.number)
    }

    /// Forgets tables that no job uses.
    pub(crate) fn drop_unused_tables(&mut self) {
        let used: BTreeSet<u8> = self.jobs.values().flat_map(|job| &job.tables).copied().collect();
        self.tables.retain(|id, _| used.contains(id));
    }
}

fn full(room: u32) -> Status {
    Status::resource_exhausted(format!(
        "there is room for {room} lookup tables: give the job one that another has, or delete a job"
    ))
}
