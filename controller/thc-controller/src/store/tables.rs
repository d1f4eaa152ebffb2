//! Lookup tables, which jobs share.

use super::{Store, fits};
use crate::capacity::Capacity;
use crate::spec::JobSpec;
use std::collections::BTreeSet;
use thc_protocol::wire::Table;
use tonic::Status;

impl Store {
    /// The lookup table of this number on the wire, as a job that has it specifies it.
    pub(crate) fn table(&self, id: u8) -> Option<&Table> {
        self.jobs.values().find_map(|job| {
            let at = job.tables.iter().position(|&table| table == id)?;
            job.spec.setup.welcome.tables.get(at)
        })
    }

    /// The numbers on the wire of a new job's tables, in the order of its specification: those of equal tables, or free
    /// ones.
    pub(super) fn tables_for(
        &mut self,
        spec: &JobSpec,
        rooms: &[(String, Capacity)],
    ) -> Result<Vec<u8>, Status> {
        let (name, tables) = (spec.name(), &spec.setup.welcome.tables);
        let room = rooms.iter().map(|(_, capacity)| capacity.tables).min().unwrap_or(255);
        let mut ids: Vec<u8> = Vec::new();
        for wire in tables.iter() {
            for (target, capacity) in rooms {
                fits(name, target, capacity.forms, wire, spec.rack.as_ref())?;
            }
            let is_equal = |table: &Table| Table { id: wire.id, ..*table } == *wire;
            if tables[..ids.len()].iter().any(is_equal) {
                return Err(Status::invalid_argument(format!(
                    "job {name}: two of its tables are the same, of {} bits in {}: leave one out",
                    wire.bits, wire.form
                )));
            }
            let equal = || self.tables.keys().copied().find(|&id| self.table(id).is_some_and(is_equal));
            let free = || (1..=u8::MAX).find(|id| !self.tables.contains_key(id));
            // The root has its tables under the numbers that they have.
            let id = if spec.rack.is_some() { Some(wire.id.0) } else { equal().or_else(free) };
            let id = id.ok_or_else(|| full(room))?;
            if self.table(id).is_some_and(|table| !is_equal(table)) {
                return Err(Status::already_exists(format!(
                    "job {name}: lookup table {id} is another one already: give the job another number, here and at its root"
                )));
            }
            if !self.tables.contains_key(&id) {
                if self.tables.len() >= room as usize {
                    return Err(full(room));
                }
                let taken: BTreeSet<u8> = self.tables.values().copied().collect();
                let number = (0..=u8::MAX).find(|number| !taken.contains(number)).unwrap_or(u8::MAX);
                self.tables.insert(id, number);
            }
            ids.push(id);
        }
        Ok(ids)
    }

    /// A table's number in programs that number lookup tables themselves: the least that was free, so that no
    /// more numbers are used than there are tables.
    pub(crate) fn number_of_table(&self, id: u8) -> u8 {
        self.tables.get(&id).copied().unwrap_or(id.wrapping_sub(1))
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
