//! What the controller remembers: jobs, where they lie, their tables and their sessions. Kept in a file, so
//! that a controller that starts again goes on where it was.

use crate::book_file::{BookFile, Content};
use crate::capacity::{Capacity, Forms};
use crate::error::ControllerError;
use crate::live::JobCounted;
use crate::rack::Rack;
use crate::refusal::Refusal;
use crate::spec::{Hidden, Spec, fraction_text};
use crate::tables::Mac;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use thc_control_proto::v1;
use thc_options::credit::{Room, Taken, fills};
use thc_protocol::wire::{Form, Table as Told};

/// A member of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where it sends from.
    pub at: SocketAddrV4,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The port that it is behind; 0 is any.
    pub port: u16,
    /// Its incarnation's number.
    pub nonce: u64,
    /// Its number in the job, where members come and go and this is another one than in the session (P42).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<u8>,
}

/// A session that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its cookie.
    pub cookie: Hidden<u32>,
    /// Cells of another epoch are empty.
    pub epoch: u32,
    /// By number.
    pub members: BTreeMap<u8, Member>,
    /// Of a rack, the UDP ports of its root (P21).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub root_ports: u8,
    /// Packets in sums that the target had counted of each member before. None: not looked yet, so none of its rows is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<BTreeMap<u8, u64>>,
    /// What its workers were told that they may have outstanding (P41), 0 for no bound.
    #[serde(default)]
    pub credit: u32,
    /// Which of a job's sessions it is, modulo 2^16, where members come and go (P42).
    #[serde(default)]
    pub count: u16,
}

impl Session {
    /// n: that of the job, unless members come and go.
    #[must_use]
    pub fn workers(&self, job: &Job) -> u8 {
        if job.spec.members.is_some() { self.members.len() as u8 } else { job.spec.workers }
    }

    /// The numbers in the job of its workers, in the order of their numbers in the session.
    pub fn seats(&self) -> impl Iterator<Item = u8> {
        self.members.iter().map(|(&number, member)| member.seat.unwrap_or(number))
    }
}

fn is_zero(ports: &u8) -> bool {
    *ports == 0
}

/// Where a job lies on a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Selects its counters.
    pub index: u8,
    /// Its first data slot.
    pub data_base: u32,
    /// Its first norm slot.
    pub norm_base: u32,
    /// Its multicast group.
    pub group: u16,
    /// What the target had counted at its index when the job came: of jobs that are gone. None: not looked yet.
    #[serde(default)]
    pub earlier: Option<JobCounted>,
    /// Sessions begun.
    pub sessions: u32,
    /// The one that runs.
    pub session: Option<Session>,
    /// What each worker of the next one may have outstanding here (P41), once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credit: Option<u32>,
}

/// A number that was given to a worker which had none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Who has it.
    pub token: u64,
    /// When it asked last, in seconds since 1970.
    pub asked: u64,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What it is.
    pub spec: Spec,
    /// Tells jobs of one name or number apart that follow each other.
    pub serial: u64,
    /// Its first lookup table.
    pub table: u8,
    /// Those beside it, in the order of the spec's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<u8>,
    /// Where members come and go, the first table of sessions of each size, from the fewest workers on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<u8>,
    /// What it becomes when its next session begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Box<Next>>,
    /// Goes up with each change of what it is.
    #[serde(default)]
    pub version: u64,
    /// Its targets, the first preferred.
    pub targets: Vec<String>,
    /// By target.
    pub places: BTreeMap<String, Placement>,
    /// Numbers given to workers, by number.
    pub given: BTreeMap<u8, Given>,
    /// The target that workers were sent to last.
    pub active: Option<String>,
    /// Seconds since 1970.
    pub created: u64,
}

/// What a job becomes when its next session begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Next {
    /// What it is then.
    pub spec: Spec,
    tables: TableIds,
    targets: Vec<String>,
    /// The target whose session says when that is.
    pub by: String,
}

impl Next {
    /// Whether it has a place on this target.
    #[must_use]
    pub fn is_on(&self, target: &str) -> bool {
        self.targets.iter().any(|name| name == target)
    }

    /// Its lookup tables, for so many workers.
    pub fn tables_of(&self, workers: u8) -> impl Iterator<Item = u8> {
        self.tables.of(&self.spec, workers)
    }
}

/// Numbers of a job's lookup tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct TableIds {
    first: u8,
    more: Vec<u8>,
    sizes: Vec<u8>,
}

impl TableIds {
    fn all(&self) -> impl Iterator<Item = u8> {
        [self.first].into_iter().chain(self.more.iter().copied()).chain(self.sizes.iter().copied())
    }

    fn of(&self, spec: &Spec, workers: u8) -> impl Iterator<Item = u8> {
        of_size(spec, self.first, &self.more, &self.sizes, workers)
    }
}

fn of_size<'a>(
    spec: &Spec,
    first: u8,
    more: &'a [u8],
    sizes: &[u8],
    workers: u8,
) -> impl Iterator<Item = u8> + use<'a> {
    let least = spec.members.map_or(0, |members| members.least);
    let first = sizes.get(usize::from(workers.saturating_sub(least))).copied().unwrap_or(first);
    [first].into_iter().chain(more.iter().copied())
}

/// Fewer packets under way than that are worth a warning.
const FEW: u32 = 16;

/// Who sends to a target: workers, and of a rack its root.
fn senders(spec: &Spec, workers: u8) -> u32 {
    u32::from(workers) + u32::from(spec.rack.is_some())
}

/// Among how many ports the packets of slots in a row are.
fn ports(spec: &Spec, shards: u8) -> usize {
    usize::from(shards) * spec.servers.len().max(1)
}

/// A lookup table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// b.
    pub bits: u8,
    /// g.
    pub granularity: u16,
    /// p.
    pub fraction: f64,
    /// T[0] to T[15].
    pub values: [u8; 16],
    /// Stays without a job.
    pub installed: bool,
    /// Bits of an index on the wire, and of a sum.
    #[serde(default = "usual_form")]
    form: (u8, u8),
    /// Its number where a program has numbers of its own for lookup tables. Books from before these could be have none.
    #[serde(default)]
    number: Option<u8>,
}

/// What books from before tables could say it mean.
fn usual_form() -> (u8, u8) {
    written(Form::USUAL)
}

fn written(form: Form) -> (u8, u8) {
    (form.width(), form.sums())
}

impl Table {
    fn of(told: &Told, number: u8) -> Table {
        let &Told { bits, granularity, fraction, values, form, .. } = told;
        let (form, number) = (written(form), Some(number));
        Table { bits, granularity, fraction, values, installed: false, form, number }
    }

    fn is(&self, told: &Told) -> bool {
        (self.bits, self.values, self.fraction, self.form())
            == (told.bits, told.values, told.fraction, told.form)
    }

    /// Of packets that name it.
    #[must_use]
    pub fn form(&self) -> Form {
        let (width, lane) = self.form;
        Form::with_sums(width, lane).unwrap_or_default()
    }
}

impl Job {
    /// All its lookup tables, the first first.
    pub fn tables(&self) -> impl Iterator<Item = u8> {
        let next = self.next.iter().flat_map(|next| next.tables.all());
        [self.table]
            .into_iter()
            .chain(self.more.iter().copied())
            .chain(self.sizes.iter().copied())
            .chain(next)
    }

    /// Those of a session of so many workers: the job's where sizes do not differ.
    pub fn tables_of(&self, workers: u8) -> impl Iterator<Item = u8> {
        of_size(&self.spec, self.table, &self.more, &self.sizes, workers)
    }

    /// What each worker of its next session may have outstanding, as its target with the least room has it; 0 for no bound.
    #[must_use]
    pub fn credit(&self) -> u32 {
        self.places.values().filter_map(|place| place.credit).min().unwrap_or(0)
    }

    /// What it takes of a target's room: what its session has, or what the next one will, whichever is more.
    fn taken(&self, target: &str, shards: u8) -> Option<Taken> {
        let place = self.places.get(target)?;
        let taken = |spec: &Spec, workers: u8, credit: u32| {
            let credit = if credit == 0 { spec.data_slots / 2 } else { credit };
            Taken { senders: senders(spec, workers), each: fills(credit, ports(spec, shards)) }
        };
        let next = self.next.as_ref().map_or(&self.spec, |next| &next.spec);
        let to_come = place.credit.map(|credit| taken(next, next.workers, credit));
        let session = place.session.as_ref();
        let runs = session.map(|session| taken(&self.spec, session.members.len() as u8, session.credit));
        to_come.into_iter().chain(runs).max_by_key(|taken| taken.senders as usize * taken.each)
    }

    /// The session that runs, and on which target: where it began, of several.
    #[must_use]
    pub fn running(&self) -> Option<(&str, &Session)> {
        let mut running = self.targets.iter().map(|target| (target.as_str(), self.places.get(target)));
        running.find_map(|(target, place)| Some((target, place?.session.as_ref()?)))
    }
}

/// All of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Book {
    /// By name.
    pub jobs: BTreeMap<String, Job>,
    /// By number on the wire, from 1.
    pub tables: BTreeMap<u8, Table>,
    /// The epoch used last.
    epoch: u32,
    /// The serial number used last.
    serial: u64,
    /// Where it is kept.
    #[serde(skip)]
    store: Arc<BookFile>,
}

/// Seconds since 1970.
#[must_use]
pub fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Book {
    /// Reads the file, if there is one.
    ///
    /// # Errors
    /// As `BookFile::read`.
    pub fn open(path: Option<&Path>) -> Result<Book, ControllerError> {
        let store = Arc::new(BookFile::new(path));
        let read: Book = store.read()?;
        Ok(Book { store, ..read })
    }

    /// The file that it is kept in.
    #[must_use]
    pub fn file(&self) -> &Arc<BookFile> {
        &self.store
    }

    /// What was read from its file takes the place of what is here.
    pub fn replace(&mut self, read: Book) {
        *self = Book { store: Arc::clone(&self.store), ..read };
    }

    /// Why nothing may be changed here, if so.
    ///
    /// # Errors
    /// [`ControllerError::StandsBy`].
    pub fn may_change(&self) -> Result<(), ControllerError> {
        self.store.may_write()
    }

    /// What is to be written to its file.
    ///
    /// # Errors
    /// As `BookFile::content`.
    pub fn content(&self) -> Result<Content, ControllerError> {
        self.store.content(self)
    }

    /// Undoes a change that cannot be kept: jobs and tables are again what they were in `before`. Sessions that have begun or
    /// ended meanwhile stay so.
    pub fn take_back(&mut self, before: &Book) {
        self.jobs.retain(|name, _| before.jobs.contains_key(name));
        self.tables.clone_from(&before.tables);
        for (name, was) in &before.jobs {
            match self.jobs.get_mut(name).filter(|job| job.serial == was.serial) {
                None => {
                    self.jobs.insert(name.clone(), was.clone());
                }
                Some(job) if (&job.spec, &job.next, &job.targets) != (&was.spec, &was.next, &was.targets) => {
                    job.version = job.version.max(was.version) + 1;
                    (job.spec, job.next, job.targets) =
                        (was.spec.clone(), was.next.clone(), was.targets.clone());
                    (job.table, job.more, job.sizes) = (was.table, was.more.clone(), was.sizes.clone());
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

    /// The lowest number on the wire that no job has, from 1.
    #[must_use]
    pub fn free_number(&self) -> u16 {
        let taken: BTreeSet<u16> = self.jobs.values().map(|job| job.spec.number).collect();
        (1..=u16::MAX).find(|number| !taken.contains(number)).unwrap_or(0)
    }

    /// Puts a job down, with a place on each of its targets.
    ///
    /// # Errors
    /// A job of the name or number is there, or there is no room.
    pub fn add(&mut self, spec: Spec, rooms: &[(String, Capacity)]) -> Result<(), Refusal> {
        let name = spec.name.clone();
        if self.jobs.contains_key(&name) {
            return Err(Refusal::exists(format!(
                "there is a job {name:?} already: delete it, or take another name"
            )));
        }
        if let Some(other) = self.jobs.values().find(|job| job.spec.number == spec.number) {
            let text = format!(
                "number {} is job {:?}'s: leave the number out, or take another",
                spec.number, other.spec.name
            );
            return Err(Refusal::exists(text));
        }
        let mut places = BTreeMap::new();
        for (target, capacity) in rooms {
            places.insert(target.clone(), self.place(target, capacity, &spec)?);
        }
        let TableIds { first: table, more, sizes } = self.tables_for(&spec, rooms)?;
        self.serial += 1;
        let job = Job {
            spec,
            serial: self.serial,
            table,
            more,
            sizes,
            next: None,
            version: 0,
            targets: rooms.iter().map(|(target, _)| target.clone()).collect(),
            places,
            given: BTreeMap::new(),
            active: None,
            created: seconds(),
        };
        self.jobs.insert(name, job);
        Ok(())
    }

    /// A job whose members come and go becomes this one when its next session begins.
    ///
    /// # Errors
    /// There is no room for its tables, or on a target that it has not been on.
    pub fn change(&mut self, name: &str, spec: Spec, rooms: &[(String, Capacity)]) -> Result<(), Refusal> {
        let tables = self.tables_for(&spec, rooms)?;
        let mut new = BTreeMap::new();
        for (target, capacity) in rooms {
            if self.jobs.get(name).is_some_and(|job| job.places.contains_key(target)) {
                self.check_rows(target, capacity, &spec)?;
            } else {
                new.insert(target.clone(), self.place(target, capacity, &spec)?);
            }
        }
        let Some(job) = self.jobs.get_mut(name) else { return Ok(()) };
        job.places.append(&mut new);
        let by = job.running().map(|(target, _)| target).or(job.targets.first().map(String::as_str));
        let by = by.unwrap_or_default().to_owned();
        let targets: Vec<String> = rooms.iter().map(|(target, _)| target.clone()).collect();
        job.version += 1;
        // It may have other workers.
        job.places.values_mut().for_each(|place| place.credit = None);
        // What another change put there before this one.
        job.places.retain(|target, _| job.targets.contains(target) || targets.contains(target));
        job.next = Some(Box::new(Next { spec, tables, targets, by }));
        self.drop_unused_tables();
        Ok(())
    }

    /// A target that is there again may hold another number of packets: who goes on keeps its credit, and others get one anew.
    pub fn forget_credit(&mut self, target: &str) {
        let places = self.jobs.values_mut().filter_map(|job| job.places.get_mut(target));
        places.filter(|place| place.session.is_none()).for_each(|place| place.credit = None);
    }

    /// P41: gives jobs on a target that have none yet their credit, in the order in which they were made. Whether there was one.
    pub fn give_credit(&mut self, target: &str, room: Room, shards: u8) -> bool {
        let without = |job: &&Job| job.places.get(target).is_some_and(|place| place.credit.is_none());
        let mut new: Vec<(u64, String)> =
            self.jobs.values().filter(without).map(|job| (job.serial, job.spec.name.clone())).collect();
        new.sort_unstable();
        for (_, name) in &new {
            let others = self.jobs.values().filter(|job| job.spec.name != *name);
            let there = others.filter_map(|job| job.taken(target, shards));
            let Some(job) = self.jobs.get(name) else { continue };
            let spec = job.next.as_ref().map_or(&job.spec, |next| &next.spec);
            let credit =
                room.credit(there, senders(spec, spec.workers), spec.data_slots / 2, ports(spec, shards));
            if credit < FEW.min(spec.data_slots / 2) {
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

    /// A job has become what it was to become.
    pub fn settle(&mut self, name: &str) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        let Some(next) = job.next.take() else { return };
        let Next { spec, tables, targets, .. } = *next;
        job.places.retain(|target, _| targets.contains(target));
        (job.spec, job.targets) = (spec, targets);
        (job.table, job.more, job.sizes) = (tables.first, tables.more, tables.sizes);
        job.version += 1;
        self.drop_unused_tables();
    }

    fn tables_for(&mut self, spec: &Spec, rooms: &[(String, Capacity)]) -> Result<TableIds, Refusal> {
        let name = &spec.name;
        let setup = spec.setup(None).map_err(|error| Refusal::invalid(error.to_string()))?;
        let room = rooms.iter().map(|(_, capacity)| capacity.tables).min().unwrap_or(255);
        let mut more: Vec<u8> = Vec::new();
        for told in setup.welcome.tables.iter() {
            for (target, capacity) in rooms {
                fits(name, target, capacity.forms, told, spec.rack.as_ref())?;
            }
            // The root has its tables under these numbers.
            let id =
                if spec.rack.is_some() { self.numbered(name, told, room)? } else { self.table(told, room)? };
            if more.contains(&id) {
                let text = format!(
                    "job {name}: two of its tables are the same, of {} bits in {}: leave one out",
                    told.bits, told.form
                );
                return Err(Refusal::invalid(text));
            }
            more.push(id);
        }
        let first = more.remove(0);
        let mut sizes = Vec::new();
        for (_, welcome) in setup.sizes.iter().flat_map(|sizes| &sizes.shapes) {
            // Where there is no room for one, sessions of fewer have the table of the most, whose sums fit as well.
            sizes.push(self.table(welcome.tables.first(), room).unwrap_or(first));
        }
        Ok(TableIds { first, more, sizes })
    }

    /// Takes a job away, and its table if nobody else wants it.
    pub fn remove(&mut self, name: &str) -> Option<Job> {
        let job = self.jobs.remove(name)?;
        self.drop_unused_tables();
        Some(job)
    }

    /// The number of this table, new or known.
    ///
    /// # Errors
    /// No number is free.
    pub fn table(&mut self, told: &Told, room: u32) -> Result<u8, Refusal> {
        if let Some((&id, _)) = self.tables.iter().find(|(_, table)| table.is(told)) {
            return Ok(id);
        }
        let free = (1..=u8::MAX).find(|id| !self.tables.contains_key(id));
        let id = free.filter(|_| self.tables.len() < room as usize).ok_or_else(|| full(room))?;
        self.insert(id, told);
        Ok(id)
    }

    /// A table's number where a program has numbers of its own: the least that was free, so that there are never more
    /// of them than tables.
    #[must_use]
    pub fn number_of_table(&self, id: u8) -> u8 {
        self.tables.get(&id).and_then(|table| table.number).unwrap_or(id.wrapping_sub(1))
    }

    fn insert(&mut self, id: u8, told: &Told) {
        let taken: BTreeSet<u8> = self.tables.keys().map(|&id| self.number_of_table(id)).collect();
        let number = (0..=u8::MAX).find(|number| !taken.contains(number)).unwrap_or(u8::MAX);
        self.tables.insert(id, Table::of(told, number));
    }

    /// This table under the number that it has.
    fn numbered(&mut self, job: &str, told: &Told, room: u32) -> Result<u8, Refusal> {
        let id = told.id.0;
        match self.tables.get(&id) {
            Some(table) if !table.is(told) => {
                let text = format!(
                    "job {job}: lookup table {id} is another one already: give the job another number, here and at its root"
                );
                Err(Refusal::exists(text))
            }
            Some(_) => Ok(id),
            None if self.tables.len() >= room as usize => Err(full(room)),
            None => {
                self.insert(id, told);
                Ok(id)
            }
        }
    }

    /// Forgets tables that are neither used nor installed.
    pub fn drop_unused_tables(&mut self) {
        let used: BTreeSet<u8> = self.jobs.values().flat_map(Job::tables).collect();
        self.tables.retain(|id, table| table.installed || used.contains(id));
    }

    /// Whether a target's tables have rows for a job beside all others, whatever those are to become.
    fn check_rows(&self, target: &str, capacity: &Capacity, spec: &Spec) -> Result<(), Refusal> {
        let others = self.jobs.values().filter(|job| job.spec.name != spec.name);
        let others = others.filter(|job| job.places.contains_key(target)).map(|job| {
            let (is, next) = (job.spec.rows(), job.next.as_ref().map_or(&job.spec, |next| &next.spec).rows());
            is.named().into_iter().zip(next.named()).map(|((_, is), (_, next))| is.max(next)).collect()
        });
        let others: Vec<Vec<u32>> = others.collect();
        for (place, ((table, wanted), (_, all))) in
            spec.rows().named().into_iter().zip(capacity.rows.named()).enumerate()
        {
            let taken: u32 = others.iter().map(|rows| rows[place]).sum();
            if taken + wanted > all {
                let free = all.saturating_sub(taken);
                return Err(Refusal::full(format!(
                    "target {target} has {free} of the {all} rows of its table {table} free, and job {} has {wanted}: ask for fewer workers, or delete a job",
                    spec.name
                )));
            }
        }
        Ok(())
    }

    /// A place for a job among the others of a target.
    fn place(&self, target: &str, capacity: &Capacity, spec: &Spec) -> Result<Placement, Refusal> {
        let others: Vec<(&Spec, &Placement)> =
            self.jobs.values().filter_map(|job| Some((&job.spec, job.places.get(target)?))).collect();
        let indices: BTreeSet<u8> = others.iter().map(|(_, place)| place.index).collect();
        let index = (0..=u8::MAX).take(capacity.jobs as usize).find(|index| !indices.contains(index));
        let index = index.ok_or_else(|| {
            Refusal::full(format!("target {target} has its {} jobs: delete one", capacity.jobs))
        })?;
        let data = others.iter().map(|(spec, place)| (place.data_base, spec.data_slots)).collect();
        let norm = others.iter().map(|(spec, place)| (place.norm_base, spec.norm_slots)).collect();
        self.check_rows(target, capacity, spec)?;
        let room = |kind: &str, taken, wanted, all| {
            gap(taken, wanted, all).ok_or_else(|| {
                Refusal::full(format!(
                    "target {target} has no {wanted} {kind} slots in a row free of its {all}: ask for fewer, or delete a job"
                ))
            })
        };
        Ok(Placement {
            index,
            data_base: room("data", data, spec.data_slots, capacity.data_slots)?,
            norm_base: room("norm", norm, spec.norm_slots, capacity.norm_slots)?,
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
        (root_ports, count): (u8, u16),
    ) {
        // Cells of a forgotten book's epochs may still be full: time makes them differ.
        self.epoch = self.epoch.wrapping_add(1).max(seconds() as u32);
        let epoch = self.epoch;
        let credit = self.jobs.get(job).map_or(0, Job::credit);
        if let Some(place) = self.jobs.get_mut(job).and_then(|job| job.places.get_mut(target)) {
            place.sessions = place.sessions.wrapping_add(1);
            place.session = Some(Session {
                cookie: Hidden(cookie),
                epoch,
                members,
                root_ports,
                before: None,
                credit,
                count,
            });
        }
    }

    /// A job's place on a target.
    pub fn place_mut(&mut self, job: &str, target: &str) -> Option<&mut Placement> {
        self.jobs.get_mut(job)?.places.get_mut(target)
    }

    /// A table as it is shown.
    #[must_use]
    pub fn shown_table(&self, id: u8) -> Option<v1::Table> {
        let table = self.tables.get(&id)?;
        let jobs = self
            .jobs
            .values()
            .filter(|job| job.tables().any(|table| table == id))
            .map(|job| job.spec.name.clone());
        Some(v1::Table {
            id: id.into(),
            bits: table.bits.into(),
            granularity: table.granularity.into(),
            fraction: fraction_text(table.fraction),
            // With 8 bits each index is its own value.
            values: table.values.get(..1 << table.bits).unwrap_or_default().to_vec(),
            jobs: jobs.collect(),
            installed: table.installed,
            width: table.form.0.into(),
            lane: table.form.1.into(),
        })
    }
}

fn full(room: u32) -> Refusal {
    Refusal::full(format!("there is room for {room} lookup tables: delete one that no job uses"))
}

/// Whether a target does packets of this form, as far as is known.
///
/// # Errors
/// It does not.
pub fn fits(
    job: &str,
    target: &str,
    forms: Option<Forms>,
    table: &Told,
    rack: Option<&Rack>,
) -> Result<(), Refusal> {
    // Of a table that racks cannot have, thc-ps's checks have said so.
    let form = rack.and_then(|rack| rack.form(table)).unwrap_or(table.form);
    match forms {
        Some(forms) if !forms.contains(form) => Err(Refusal::invalid(format!(
            "job {job}: target {target} has no packets of the form {form}, bits of an index and of a sum, but {forms}: give the table another lane or other bits, or the job another target"
        ))),
        _ => Ok(()),
    }
}

/// The first place for `wanted` slots between the taken (base, length) ranges of `all`.
fn gap(mut taken: Vec<(u32, u32)>, wanted: u32, all: u32) -> Option<u32> {
    taken.sort_unstable();
    let mut base = 0u32;
    for (start, length) in taken {
        if start.saturating_sub(base) >= wanted {
            break;
        }
        base = base.max(start.saturating_add(length));
    }
    (base.checked_add(wanted)? <= all).then_some(base)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::program::Rows;

    const ROWS: Rows = Rows { members: 1024, addresses: 1024, job_tables: 1024, roots: 256 };
    const ROOM: Capacity = Capacity {
        data_slots: 1024,
        norm_slots: 256,
        jobs: 16,
        tables: 255,
        rows: ROWS,
        forms: None,
        room: None,
    };

    fn spec(name: &str, book: &Book, slots: u32) -> Spec {
        let asked = v1::JobSpec {
            name: name.to_owned(),
            workers: 4,
            data_slots: Some(slots),
            norm_slots: Some(16),
            ..v1::JobSpec::default()
        };
        Spec::of(&asked, book.free_number(), None).unwrap()
    }

    fn add(book: &mut Book, name: &str, slots: u32) -> Result<(), Refusal> {
        let spec = spec(name, book, slots);
        book.add(spec, &[("s1".to_owned(), ROOM)])
    }

    #[test]
    fn jobs_do_not_overlap_and_gaps_are_filled() {
        let mut book = Book::default();
        for name in ["a", "b", "c"] {
            add(&mut book, name, 256).unwrap();
        }
        let base = |book: &Book, name: &str| book.jobs[name].places["s1"].data_base;
        assert_eq!((base(&book, "a"), base(&book, "b"), base(&book, "c")), (0, 256, 512));
        book.remove("b").unwrap();
        add(&mut book, "d", 300).unwrap_err();
        add(&mut book, "d", 128).unwrap();
        add(&mut book, "e", 128).unwrap();
        assert_eq!((base(&book, "d"), base(&book, "e")), (256, 384));
        assert_eq!(book.jobs["d"].spec.number, 2);
        assert_eq!(book.jobs["e"].places["s1"].index, 3);
        assert_eq!(add(&mut book, "a", 16).unwrap_err().code, tonic::Code::AlreadyExists);
    }

    /// All of a target's jobs have their rows, whatever they are.
    #[test]
    fn there_are_rows_for_all() {
        let mut book = Book::default();
        let rooms = [("s1".to_owned(), Capacity { rows: Rows { members: 12, ..ROWS }, ..ROOM })];
        for name in ["a", "b", "c"] {
            book.add(spec(name, &book, 16), &rooms).unwrap();
        }
        let refused = book.add(spec("d", &book, 16), &rooms).unwrap_err();
        assert_eq!(refused.code, tonic::Code::ResourceExhausted);
        assert!(refused.message.contains("has 0 of the 12 rows of its table members free"), "{refused:?}");
        book.remove("a").unwrap();
        // One that grows has what it had before.
        let asked = |workers| v1::JobSpec {
            workers,
            quorum: None,
            granularity: None,
            fraction: None,
            ..book.jobs["b"].spec.shown(Vec::new())
        };
        let grown = |workers| Spec::of(&asked(workers), 2, None).unwrap();
        let (fits, more) = (grown(8), grown(9));
        assert!(book.change("b", more, &rooms).is_err());
        book.change("b", fits, &rooms).unwrap();
        // And what it is to become counts as well.
        assert!(book.add(spec("d", &book, 16), &rooms).is_err());
    }

    /// A change that could not be written is undone, and takes nothing else with it.
    #[test]
    fn what_cannot_be_kept_is_taken_back() {
        let mut book = Book::default();
        for name in ["a", "b"] {
            add(&mut book, name, 16).unwrap();
        }
        let before = book.clone();
        add(&mut book, "c", 16).unwrap();
        book.remove("a").unwrap();
        let asked = spec("b", &book, 16).shown(Vec::new());
        let asked = v1::JobSpec { workers: 9, quorum: None, granularity: None, fraction: None, ..asked };
        let other = Spec::of(&v1::JobSpec { number: Some(2), ..asked }, 2, None).unwrap();
        book.change("b", other, &[("s1".to_owned(), ROOM), ("s2".to_owned(), ROOM)]).unwrap();
        book.begin("b", "s1", 7, BTreeMap::new(), (0, 0));
        book.take_back(&before);
        assert_eq!(book.jobs.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((&book.jobs["a"], &book.tables), (&before.jobs["a"], &before.tables));
        let (is, was) = (&book.jobs["b"], &before.jobs["b"]);
        assert_eq!((&is.spec, &is.next, &is.targets), (&was.spec, &was.next, &was.targets));
        assert_eq!(is.places.keys().collect::<Vec<_>>(), ["s1"]);
        assert!(is.places["s1"].session.is_some() && is.version > was.version);
    }

    #[test]
    fn equal_tables_are_one_and_go_with_their_last_job() {
        let mut book = Book::default();
        add(&mut book, "a", 16).unwrap();
        add(&mut book, "b", 16).unwrap();
        assert_eq!(book.tables.len(), 1);
        book.remove("a").unwrap();
        assert_eq!(book.tables.len(), 1);
        book.remove("b").unwrap();
        assert!(book.tables.is_empty());
    }

    #[test]
    fn a_file_keeps_everything() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let mut book = Book::open(Some(&path)).unwrap();
        book.may_change().unwrap_err();
        assert!(book.file().take().unwrap());
        add(&mut book, "a", 16).unwrap();
        let member =
            Member { at: "10.0.0.1:7".parse().unwrap(), mac: [2; 6], port: 3, nonce: u64::MAX, seat: None };
        book.begin("a", "s1", 77, BTreeMap::from([(0, member)]), (0, 0));
        book.place_mut("a", "s1").unwrap().session.as_mut().unwrap().before = Some(BTreeMap::from([(0, 5)]));
        book.file().write(book.content().unwrap()).unwrap();
        let again = Book::open(Some(&path)).unwrap();
        assert_eq!((&again.jobs, &again.tables), (&book.jobs, &book.tables));
        let before = again.jobs["a"].places["s1"].session.clone().unwrap().epoch;
        let mut again = again;
        again.begin("a", "s1", 78, BTreeMap::new(), (0, 0));
        assert!(again.jobs["a"].places["s1"].session.clone().unwrap().epoch > before);
    }
}
