//! The state before a change, so that the change can be taken back while other changes are made.

use super::Book;
use super::job::Job;
use super::tables::BookTable;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a change has changed, as it was.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// The jobs as they were; `None` for a job that was not there.
    jobs: BTreeMap<String, Option<Job>>,
    /// Lookup tables that these jobs had, and those that are gone.
    tables: BTreeMap<u8, BookTable>,
    /// Tables that have stayed since then without a job.
    installed: BTreeSet<u8>,
}

impl Before {
    /// What is another in `now` than it was in `then`.
    fn new(then: &Book, now: &Book) -> Before {
        let mut before = Before::default();
        for name in then.jobs.keys().chain(now.jobs.keys()) {
            let was = then.jobs.get(name);
            if was != now.jobs.get(name) {
                before.jobs.insert(name.clone(), was.cloned());
            }
        }
        let used: BTreeSet<u8> = before.jobs.values().flatten().flat_map(Job::tables).collect();
        let kept = then.tables.iter().filter(|(id, _)| used.contains(*id) || !now.tables.contains_key(*id));
        before.tables = kept.map(|(&id, table)| (id, table.clone())).collect();
        let installed = |book: &Book, id: &u8| book.tables.get(id).is_some_and(|table| table.installed);
        let new = now.tables.keys().filter(|id| installed(now, id) && !installed(then, id));
        before.installed = new.copied().collect();
        before
    }
}

impl Book {
    /// This book with a change, and the state before it, which keeps its room until [`Book::release`].
    ///
    /// # Errors
    /// Those of the change.
    pub(crate) fn try_change<T, E>(
        &self,
        change: impl FnOnce(&mut Book) -> Result<T, E>,
    ) -> Result<(Book, T, Arc<Before>), E> {
        let mut next = self.clone();
        // No table takes the number of one that may come back.
        next.numbers = self.tables.keys().copied().collect();
        let done = change(&mut next)?;
        next.numbers.clear();
        let before = Arc::new(Before::new(self, &next));
        next.reserved.push(Arc::clone(&before));
        Ok((next, done, before))
    }

    /// What a change has changed is not needed any more.
    pub fn release(&mut self, before: &Arc<Before>) {
        self.reserved.retain(|reserved| !Arc::ptr_eq(reserved, before));
    }

    /// Undoes a change that cannot be kept. Sessions that have begun or ended meanwhile stay so, and other
    /// changes remain.
    pub(crate) fn take_back(&mut self, before: &Before) {
        for (&id, table) in &before.tables {
            if !self.tables.contains_key(&id) {
                self.insert(id, table.clone());
            }
        }
        for id in &before.installed {
            if let Some(table) = self.tables.get_mut(id) {
                table.installed = false;
            }
        }
        for (name, was) in &before.jobs {
            let Some(was) = was else {
                self.jobs.remove(name);
                continue;
            };
            match self.jobs.get_mut(name).filter(|job| job.serial == was.serial) {
                None => {
                    self.jobs.insert(name.clone(), was.clone());
                }
                Some(job) if (&job.spec, &job.targets) != (&was.spec, &was.targets) => {
                    (job.spec, job.targets) = (was.spec.clone(), was.targets.clone());
                    (job.table, job.more) = (was.table, was.more.clone());
                    job.places.retain(|target, _| was.places.contains_key(target));
                    for (target, place) in &was.places {
                        job.places.entry(target.clone()).or_insert_with(|| place.clone());
                    }
                }
                Some(_) => {}
            }
        }
        self.drop_unused_tables();
    }

    /// All jobs but those of this name, and what they were before changes that may be taken back.
    pub(super) fn other_jobs<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Job> {
        let were = self.reserved.iter().flat_map(|before| before.jobs.values().flatten());
        self.jobs.values().chain(were).filter(move |job| job.spec.name != name)
    }

    /// Numbers of tables that changes may bring back, and that are not there.
    pub(super) fn reserved_tables(&self) -> BTreeSet<u8> {
        let tables = self.reserved.iter().flat_map(|before| before.tables.keys());
        tables.copied().filter(|id| !self.tables.contains_key(id)).collect()
    }
}
