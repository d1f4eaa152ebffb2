//! Lookup tables of thousands of rows: a target gets them part by part, and other requests are served in
//! between.

use super::Agent;
use super::installations::Installation;
use crate::error::ControllerError;
use crate::program::Lookups;
use crate::schema::Schema;
use crate::target::{Target, Written};
use crate::wanted::{Wanted, insertions};
use std::collections::BTreeSet;
use thc_p4::rows::LookupBytes;
use thc_protocol::JobId;

/// Rows of a part: whoever comes meanwhile waits for one.
const PART: usize = 256;

impl Agent {
    /// Takes up the tables of which the target has no row yet, and that no session uses. False if it has rows of one that is not wanted
    /// any more.
    pub(super) fn plan_installations(
        &mut self,
        held: &Wanted,
        schema: &Schema,
    ) -> Result<bool, ControllerError> {
        if !matches!(self.config.program.lookups, Lookups::Bytes { .. }) {
            return Ok(true);
        }
        let wanted = self.plan_rows(BTreeSet::new())?;
        let before = self.installations.tables.len();
        self.installations.tables.retain(|one| wanted.has_lookup(&one.lookup));
        if self.installations.tables.len() < before {
            return Ok(false);
        }
        let new: Vec<LookupBytes> = {
            let has = |lookup: &&LookupBytes| {
                self.installations.has(lookup.number) || held.has_rows_of_lookup(lookup.number, schema)
            };
            wanted.lookups().filter(|lookup| !has(lookup)).cloned().collect()
        };
        for lookup in new {
            let Some(table) = self.table_without_session(lookup.number) else { continue };
            let rest = insertions(&lookup, schema)?;
            self.installations.tables.push_back(Installation { table, lookup, rest });
        }
        Ok(true)
    }

    /// The number on the wire of the table that has this one on the chip, unless a session here uses it.
    fn table_without_session(&self, number: u8) -> Option<u8> {
        let book = self.shared.book();
        let id = book.tables.keys().copied().find(|&id| book.number_of_table(id) == number)?;
        let used = book.jobs.values().any(|job| {
            let session = job.places.get(&self.config.name).and_then(|place| place.session.as_ref());
            session.is_some() && job.tables().any(|table| table == id)
        });
        (!used).then_some(id)
    }

    /// Whether tables of a job are still to come: until they are there none of its sessions begins.
    pub(super) fn awaits_tables(&self, job: JobId) -> bool {
        if self.installations.is_empty() {
            return false;
        }
        let coming = self.installations.tables();
        let book = self.shared.book();
        let job = book.jobs.values().find(|known| known.spec.number == job.0);
        job.is_some_and(|job| job.tables().any(|table| coming.contains(&table)))
    }

    /// Writes all parts.
    pub(super) async fn install_all(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        while !self.installations.is_empty() {
            self.install_part(target).await?;
        }
        Ok(())
    }

    /// Writes the next part. When a table is complete, the jobs that have waited for it get their rows.
    pub(super) async fn install_part(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let Some(one) = self.installations.tables.front_mut() else { return Ok(()) };
        let (table, most) = (one.table, one.rest.len().min(PART));
        let part = one.rest.drain(..most).collect();
        match target.write(part, false).await {
            Ok(Written::All) => {
                if self.installations.tables.front().is_some_and(|one| !one.rest.is_empty()) {
                    return Ok(());
                }
                let done = self.installations.tables.pop_front();
                if let (Some(held), Some(done)) = (&mut self.held, done) {
                    held.lookup(done.lookup);
                }
            }
            // What is there of it is found again: it goes, or, where the target does not say what it refuses, comes at once.
            Ok(refused) => {
                self.installations.forget();
                self.held = None;
                if let Written::But(refused) = refused {
                    let why = refused.into_iter().next().map(|first| first.why).unwrap_or_default();
                    self.exclude_table(table, &why);
                }
            }
            Err(error) => {
                self.installations.forget();
                self.held = None;
                return Err(error);
            }
        }
        self.sync(target).await
    }
}
