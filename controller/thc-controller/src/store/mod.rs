//! The jobs, their placements, their tables and their sessions. A file keeps them, so that a restarted controller goes
//! on where it was.

mod job;
mod tables;

pub use job::{ANSWERS, Counted, Given, Hidden, IN_SUMS, Job, JobCounted, Member, Placement, Session};

use crate::capacity::{Capacity, Forms};
use crate::rack::RackPlace;
use crate::spec::JobSpec;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};
use thc_config::job::credit::Room;
use thc_protocol::aggregator::JobConfig;
use thc_protocol::wire::Table as WireTable;
use tonic::Status;

/// Fewer packets under way than that are worth a warning.
const FEW: u32 = 16;

/// The store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Store {
    /// The jobs by name.
    pub jobs: BTreeMap<String, Job>,
    /// The numbers of the jobs' tables in programs that number lookup tables themselves, by their numbers on the wire, from 1.
    pub tables: BTreeMap<u8, u8>,
    /// By target, the numbers of removed jobs whose rows it may still hold.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    removed: BTreeMap<String, BTreeSet<u16>>,
    /// The epoch used last.
    epoch: u32,
    /// The serial number used last.
    serial: u64,
}

/// A job and all tables before a change.
#[derive(Debug)]
pub(crate) struct Undo {
    name: String,
    job: Option<Job>,
    tables: BTreeMap<u8, u8>,
}

/// Seconds since 1970.
#[must_use]
pub fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Store {
    /// The lowest number on the wire that no job has, from 1.
    #[must_use]
    pub(crate) fn free_number(&self) -> u16 {
        let taken: BTreeSet<u16> = self.jobs.values().map(|job| job.spec.number()).collect();
        (1..=u16::MAX).find(|number| !taken.contains(number)).unwrap_or(0)
    }

    /// Adds a job, with a placement on each of its targets.
    ///
    /// # Errors
    /// A job with the name or number exists, or there is no room.
    pub fn add(&mut self, spec: JobSpec, rooms: &[(String, Capacity)]) -> Result<(), Status> {
        let name = spec.name().to_owned();
        if self.jobs.contains_key(&name) {
            let text = format!("there is a job {name:?} already: delete it, or take another name");
            return Err(Status::already_exists(text));
        }
        if let Some(other) = self.jobs.values().find(|job| job.spec.number() == spec.number()) {
            let text = format!(
                "number {} is job {:?}'s: leave the number out, or take another",
                spec.number(),
                other.spec.name()
            );
            return Err(Status::already_exists(text));
        }
        let mut places = BTreeMap::new();
        for (target, capacity) in rooms {
            places.insert(target.clone(), self.place(target, capacity, &spec)?);
        }
        let tables = self.tables_for(&spec, rooms)?;
        self.serial += 1;
        let job = Job {
            spec,
            serial: self.serial,
            tables,
            places,
            given: BTreeMap::new(),
            active: None,
            created: seconds(),
        };
        self.jobs.insert(name, job);
        Ok(())
    }

    /// A target that has come back may hold another number of packets: running sessions keep their credit,
    /// others get a new one.
    pub(crate) fn forget_credit(&mut self, target: &str) {
        let places = self.jobs.values_mut().filter_map(|job| job.places.get_mut(target));
        places.filter(|place| place.session.is_none()).for_each(|place| place.credit = None);
    }

    /// P41: gives jobs on a target that have none yet their credit, in the order in which they were made. Whether there was one.
    pub fn give_credit(&mut self, target: &str, room: Room, shards: u8) -> bool {
        let without = |job: &&Job| job.places.get(target).is_some_and(|place| place.credit.is_none());
        let mut new: Vec<(u64, String)> =
            self.jobs.values().filter(without).map(|job| (job.serial, job.spec.name().to_owned())).collect();
        new.sort_unstable();
        for (_, name) in &new {
            let others = self.jobs.values().filter(|job| job.spec.name() != *name);
            let there = others.filter_map(|job| job.taken_room(target, shards));
            let Some(job) = self.jobs.get(name) else { continue };
            let (spec, config) = (&job.spec, job.spec.config());
            let most = config.data_slots / 2;
            let credit = room.credit(there, spec.senders(config.workers), most, spec.ports(shards));
            if credit < FEW.min(most) {
                tracing::warn!(
                    "job {name}: target {target} holds {} packets for all jobs, so each of its workers may have {credit} under way, \
                     which is few: raise recv_buffer (net.core.rmem_max) of a thc-ps, or delete jobs",
                    room.packets
                );
            }
            if let Some(place) = self.place_mut(name, target) {
                place.credit = Some(credit);
            }
        }
        !new.is_empty()
    }

    /// Takes a job away, and its table if nobody else wants it.
    pub fn remove(&mut self, name: &str) -> Option<Job> {
        let job = self.jobs.remove(name)?;
        for target in job.places.keys() {
            self.removed.entry(target.clone()).or_default().insert(job.spec.number());
        }
        self.drop_unused_tables();
        Some(job)
    }

    /// Makes a job another one of its name and number: nobody is in it.
    ///
    /// # Errors
    /// There is no such job, or no room.
    pub(crate) fn replace(&mut self, spec: JobSpec, rooms: &[(String, Capacity)]) -> Result<(), Status> {
        let name = spec.name().to_owned();
        let created = self.remove(&name).map(|job| job.created);
        self.add(spec, rooms)?;
        if let (Some(job), Some(created)) = (self.jobs.get_mut(&name), created) {
            job.created = created;
        }
        Ok(())
    }

    /// Changes one job, or tables. Returns what undoes that while no other such change is made; a change
    /// that fails is undone.
    ///
    /// # Errors
    /// Those of the change.
    pub(crate) fn change<T, E>(
        &mut self,
        job: &str,
        change: impl FnOnce(&mut Store) -> Result<T, E>,
    ) -> Result<(T, Undo), E> {
        let undo =
            Undo { name: job.to_owned(), job: self.jobs.get(job).cloned(), tables: self.tables.clone() };
        match change(self) {
            Ok(done) => Ok((done, undo)),
            Err(error) => {
                self.undo(undo);
                Err(error)
            }
        }
    }

    /// Undoes a change.
    pub(crate) fn undo(&mut self, undo: Undo) {
        let Undo { name, job, tables } = undo;
        match job {
            Some(job) => self.jobs.insert(name, job),
            None => self.jobs.remove(&name),
        };
        self.tables = tables;
    }

    /// Returns whether a job of this number is here, or was removed while its rows may be on this target.
    #[must_use]
    pub(crate) fn knows(&self, target: &str, number: u16) -> bool {
        self.jobs.values().any(|job| job.spec.number() == number)
            || self.removed.get(target).is_some_and(|removed| removed.contains(&number))
    }

    /// This target holds no rows of removed jobs any more.
    pub(crate) fn forget_removed(&mut self, target: &str) {
        self.removed.remove(target);
    }

    /// Returns whether a target's tables have rows for a job beside all others.
    fn check_rows(&self, target: &str, capacity: &Capacity, spec: &JobSpec) -> Result<(), Status> {
        let others = self.jobs.values().filter(|job| job.places.contains_key(target));
        let others: Vec<_> = others.map(|job| job.spec.rows().counts_by_name()).collect();
        for (place, ((table, needed), (_, all))) in
            spec.rows().counts_by_name().into_iter().zip(capacity.rows.counts_by_name()).enumerate()
        {
            let taken: u32 = others.iter().map(|rows| rows[place].1).sum();
            if taken + needed > all {
                let free = all.saturating_sub(taken);
                return Err(Status::resource_exhausted(format!(
                    "target {target} has {free} of the {all} rows of its table {table} free, and job {} needs {needed}: ask for fewer workers, or delete a job",
                    spec.name()
                )));
            }
        }
        Ok(())
    }

    /// A place for a job among the others of a target.
    fn place(&self, target: &str, capacity: &Capacity, spec: &JobSpec) -> Result<Placement, Status> {
        let others = self.jobs.values().filter_map(|job| Some((job.spec.config(), job.places.get(target)?)));
        let others: Vec<(&JobConfig, &Placement)> = others.collect();
        let indices: BTreeSet<u8> = others.iter().map(|(_, place)| place.index).collect();
        let index = (0..=u8::MAX).take(capacity.jobs as usize).find(|index| !indices.contains(index));
        let index = index.ok_or_else(|| {
            Status::resource_exhausted(format!("target {target} has its {} jobs: delete one", capacity.jobs))
        })?;
        let data = others.iter().map(|(config, place)| (place.data_base, config.data_slots)).collect();
        let norm = others.iter().map(|(config, place)| (place.norm_base, config.norm_slots)).collect();
        self.check_rows(target, capacity, spec)?;
        let room = |kind: &str, taken, needed, all| {
            gap(taken, needed, all).ok_or_else(|| {
                Status::resource_exhausted(format!(
                    "target {target} has no {needed} {kind} slots in a row free of its {all}: ask for fewer, or delete a job"
                ))
            })
        };
        let config = spec.config();
        Ok(Placement {
            index,
            data_base: room("data", data, config.data_slots, capacity.data_slots)?,
            norm_base: room("norm", norm, config.norm_slots, capacity.norm_slots)?,
            group: u16::from(index) + 1,
            earlier: None,
            sessions: 0,
            session: None,
            credit: None,
        })
    }

    /// Begins a session.
    pub fn begin(
        &mut self,
        job: &str,
        target: &str,
        cookie: u32,
        members: BTreeMap<u8, Member>,
        root_ports: u8,
    ) {
        // Cells of a forgotten store's epochs may still be full: time makes them differ.
        self.epoch = self.epoch.wrapping_add(1).max(seconds() as u32);
        let epoch = self.epoch;
        let credit = self.jobs.get(job).map_or(0, Job::credit);
        if let Some(place) = self.jobs.get_mut(job).and_then(|job| job.places.get_mut(target)) {
            place.sessions = place.sessions.wrapping_add(1);
            place.session =
                Some(Session { cookie: Hidden(cookie), epoch, members, root_ports, before: None, credit });
        }
    }

    /// A job's place on a target.
    pub(crate) fn place_mut(&mut self, job: &str, target: &str) -> Option<&mut Placement> {
        self.jobs.get_mut(job)?.places.get_mut(target)
    }
}

/// Checks whether a target supports packets of this form, as far as is known.
///
/// # Errors
/// It does not.
pub fn fits(
    job: &str,
    target: &str,
    forms: Option<Forms>,
    table: &WireTable,
    rack: Option<&RackPlace>,
) -> Result<(), Status> {
    // thc-ps's checks have refused tables that racks cannot have.
    let form = rack.and_then(|rack| rack.form(table)).unwrap_or(table.form);
    match forms {
        Some(forms) if !forms.contains(form) => Err(Status::invalid_argument(format!(
            "job {job}: target {target} has no packets of the form {form}, bits of an index and of a sum, but {forms}: give the table another lane or other bits, or the job another target"
        ))),
        _ => Ok(()),
    }
}

/// The first place for `needed` slots between the taken (base, length) ranges of `all`.
fn gap(mut taken: Vec<(u32, u32)>, needed: u32, all: u32) -> Option<u32> {
    taken.sort_unstable();
    let mut base = 0u32;
    for (start, length) in taken {
        if start.saturating_sub(base) >= needed {
            break;
        }
        base = base.max(start.saturating_add(length));
    }
    (base.checked_add(needed)? <= all).then_some(base)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::capacity::RowCounts;
    use crate::section::JobSection;
    use crate::state_file::StateFile;

    const ROWS: RowCounts = RowCounts { members: 1024, addresses: 1024, job_tables: 1024, roots: 256 };
    const ROOM: Capacity =
        Capacity { data_slots: 1024, norm_slots: 256, jobs: 16, tables: 255, rows: ROWS, forms: None };

    fn spec(name: &str, store: &Store, slots: u32) -> JobSpec {
        let asked = JobSection::parse(&format!(
            "name = {name:?}\nworkers = 4\ndata_slots = {slots}\nnorm_slots = 16"
        ));
        let asked = asked.unwrap();
        JobSpec::from_request(&asked, store.free_number(), None).unwrap()
    }

    fn add(store: &mut Store, name: &str, slots: u32) -> Result<(), Status> {
        let spec = spec(name, store, slots);
        store.add(spec, &[("s1".to_owned(), ROOM)])
    }

    #[test]
    fn jobs_do_not_overlap_and_gaps_are_filled() {
        let mut store = Store::default();
        for name in ["a", "b", "c"] {
            add(&mut store, name, 256).unwrap();
        }
        let base = |store: &Store, name: &str| store.jobs[name].places["s1"].data_base;
        assert_eq!((base(&store, "a"), base(&store, "b"), base(&store, "c")), (0, 256, 512));
        store.remove("b").unwrap();
        add(&mut store, "d", 300).unwrap_err();
        add(&mut store, "d", 128).unwrap();
        add(&mut store, "e", 128).unwrap();
        assert_eq!((base(&store, "d"), base(&store, "e")), (256, 384));
        assert_eq!(store.jobs["d"].spec.number(), 2);
        assert_eq!(store.jobs["e"].places["s1"].index, 3);
        assert_eq!(add(&mut store, "a", 16).unwrap_err().code(), tonic::Code::AlreadyExists);
    }

    /// Whatever a target has too little of for one job more, that job is refused by its name, and those that are there stay.
    #[test]
    fn each_kind_of_room_is_checked() {
        for (says, room) in [
            ("has no 16 data slots in a row free of its 31", Capacity { data_slots: 31, ..ROOM }),
            ("has no 16 norm slots in a row free of its 31", Capacity { norm_slots: 31, ..ROOM }),
            ("has its 1 jobs", Capacity { jobs: 1, ..ROOM }),
            ("rows of its table members free", Capacity { rows: RowCounts { members: 7, ..ROWS }, ..ROOM }),
            (
                "rows of its table addresses free",
                Capacity { rows: RowCounts { addresses: 7, ..ROWS }, ..ROOM },
            ),
            (
                "rows of its table job_tables free",
                Capacity { rows: RowCounts { job_tables: 1, ..ROWS }, ..ROOM },
            ),
        ] {
            let (mut store, rooms) = (Store::default(), [("s1".to_owned(), room)]);
            store.add(spec("a", &store, 16), &rooms).unwrap();
            let before = store.clone();
            let refused = store.add(spec("b", &store, 16), &rooms).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{says}");
            assert!(refused.message().contains(says) && refused.message().contains("delete"), "{refused:?}");
            assert_eq!(store.jobs, before.jobs, "{says}");
        }
    }

    /// A change that could not be kept is undone: the job, its tables, and what it took.
    #[test]
    fn a_change_is_undone() {
        let rooms = [("s1".to_owned(), Capacity { data_slots: 512, tables: 2, ..ROOM })];
        let of = |name: &str, number, workers| {
            let text = format!("name = {name:?}\nworkers = {workers}\ndata_slots = 256\nnorm_slots = 16");
            JobSpec::from_request(&JobSection::parse(&text).unwrap(), number, None).unwrap()
        };
        let mut store = Store::default();
        store.add(of("a", 1, 4), &rooms).unwrap();
        let before = store.clone();
        let same = |store: &Store| assert_eq!((&store.jobs, &store.tables), (&before.jobs, &before.tables));
        let (_, made) = store.change("b", |store| store.add(of("b", 2, 9), &rooms)).unwrap();
        store.undo(made);
        same(&store);
        let (_, changed) = store.change("a", |store| store.replace(of("a", 1, 9), &rooms)).unwrap();
        assert_ne!(store.table(1), before.table(1));
        store.undo(changed);
        same(&store);
        let (_, deleted) = store.change("a", |store| store.remove("a").ok_or(())).unwrap();
        store.undo(deleted);
        same(&store);
        // One that fails in the middle is undone at once.
        let wide = [rooms[0].clone(), ("s2".to_owned(), Capacity { data_slots: 16, ..ROOM })];
        store.change("a", |store| store.replace(of("a", 1, 9), &wide)).unwrap_err();
        same(&store);
        store.add(of("b", 2, 4), &rooms).unwrap();
    }

    #[test]
    fn equal_tables_are_one_and_go_with_their_last_job() {
        let mut store = Store::default();
        add(&mut store, "a", 16).unwrap();
        add(&mut store, "b", 16).unwrap();
        assert_eq!(store.tables.len(), 1);
        store.remove("a").unwrap();
        assert_eq!(store.tables.len(), 1);
        store.remove("b").unwrap();
        assert!(store.tables.is_empty());
    }

    #[test]
    fn a_file_keeps_everything() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let file = StateFile::new(Some(&path));
        let mut store = Store::default();
        add(&mut store, "a", 16).unwrap();
        let member = Member { at: "10.0.0.1:7".parse().unwrap(), mac: [2; 6], port: 3, nonce: u64::MAX };
        store.begin("a", "s1", 77, BTreeMap::from([(0, member)]), 0);
        store.place_mut("a", "s1").unwrap().session.as_mut().unwrap().before = Some(BTreeMap::from([(0, 5)]));
        file.write(file.content(&store).unwrap()).unwrap();
        let again: Store = file.read().unwrap();
        assert_eq!((&again.jobs, &again.tables), (&store.jobs, &store.tables));
        let before = again.jobs["a"].places["s1"].session.clone().unwrap().epoch;
        let mut again = again;
        again.begin("a", "s1", 78, BTreeMap::new(), 0);
        assert!(again.jobs["a"].places["s1"].session.clone().unwrap().epoch > before);
    }
}
