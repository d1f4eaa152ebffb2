//! The rows of a switch, desired or actual, and the changes from the actual ones to those desired.

use crate::error::ControllerError;
use crate::schema::Schema;
use p4runtime_proto::config::Table;
use p4runtime_proto::v1::{
    Entity, MulticastGroupEntry, PacketReplicationEngineEntry, Replica, TableEntry, Update, entity,
    field_match, packet_replication_engine_entry, replica, update,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use thc_p4::rows::{AddressRow, JobRow, JobTableRow, LookupBytes, MemberRow, RackRow, RootRow, Row};

/// The group of all ports; jobs' groups are below.
pub const FLOOD: u16 = 4096;

/// A multicast group: port and instance of each copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copies(pub Vec<(u16, u16)>);

/// Table and key of an entry.
type Key = (u32, Vec<(u32, Vec<u8>)>);

type Entries = BTreeMap<Key, TableEntry>;

/// The keys in which two maps differ, with both values.
fn differing<'a, K: Ord, V: PartialEq>(
    mine: &'a BTreeMap<K, V>,
    theirs: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (&'a K, Option<&'a V>, Option<&'a V>)> {
    let here = mine.iter().map(|(key, value)| (key, Some(value), theirs.get(key)));
    let there = theirs.iter().filter(|(key, _)| !mine.contains_key(*key));
    here.filter(|(_, mine, theirs)| mine != theirs).chain(there.map(|(key, value)| (key, None, Some(value))))
}

/// The changes from what a switch holds to what it should hold. Each part is made after those before it, so
/// that packets find either all of a session or nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SwitchChanges {
    /// Rows of `jobs` that go, or change.
    pub withdrawn: Vec<Update>,
    /// Everything else, but groups that go.
    pub others: Vec<Update>,
    /// Rows of `jobs` to add, or to add again, and groups to remove: until the other parts are done, a
    /// default may flood into a group.
    pub entered: Vec<Update>,
}

impl SwitchChanges {
    /// All updates in the order in which they are made.
    #[must_use]
    pub fn into_updates(self) -> Vec<Update> {
        [self.withdrawn, self.others, self.entered].concat()
    }
}

/// The owner of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The job of this number.
    Job(u16),
    /// The lookup table of this number, as the program's tables have it.
    Lookup(u8),
    /// The job of this group.
    Group(u32),
    /// The target itself: without it nothing works.
    Target,
}

/// Tables whose keys begin with a job's number.
const OF_JOBS: [&str; 6] =
    [JobRow::TABLE, JobTableRow::TABLE, MemberRow::TABLE, AddressRow::TABLE, RackRow::TABLE, RootRow::TABLE];

/// The owner of an update's entry.
#[must_use]
pub fn owner(update: &Update, schema: &Schema) -> Owner {
    match update.entity.as_ref().and_then(|entity| entity.entity.as_ref()) {
        Some(entity::Entity::TableEntry(entry)) => {
            let first = number(&key(entry), 0);
            let is = |name: &&str| schema.table(name).is_ok_and(|id| id == entry.table_id);
            match first {
                Some(job) if OF_JOBS.iter().any(is) => Owner::Job(job),
                Some(lookup) if schema.lookups().any(|table| table.id() == entry.table_id) => {
                    u8::try_from(lookup).map_or(Owner::Target, Owner::Lookup)
                }
                _ => Owner::Target,
            }
        }
        Some(entity::Entity::PacketReplicationEngineEntry(PacketReplicationEngineEntry {
            r#type: Some(packet_replication_engine_entry::Type::MulticastGroupEntry(group)),
        })) if group.multicast_group_id != u32::from(FLOOD) => Owner::Group(group.multicast_group_id),
        _ => Owner::Target,
    }
}

/// All rows and groups of a switch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SwitchRows {
    pub(crate) entries: Entries,
    /// Lookup tables that take a row for each byte of indices in each of many tables, by number. Their rows
    /// are computed only if the other side does not have the same lookup table: there may be tens of
    /// thousands, and creating or removing a job changes none.
    lookups: BTreeMap<u8, LookupBytes>,
    pub(crate) defaults: BTreeMap<u32, TableEntry>,
    pub(crate) groups: BTreeMap<u32, Copies>,
}

impl SwitchRows {
    /// Adds a row; a later one of the same key replaces an earlier.
    ///
    /// # Errors
    /// As [`Schema::entry`].
    pub fn row<R: Row>(&mut self, schema: &Schema, row: &R) -> Result<(), ControllerError> {
        self.entry(schema.entry(row)?);
        Ok(())
    }

    /// Adds a lookup table of rows of bytes; a later one of the same number replaces an earlier.
    pub fn lookup(&mut self, lookup: LookupBytes) {
        self.lookups.insert(lookup.number, lookup);
    }

    /// Adds a group.
    pub fn group(&mut self, number: u16, group: Copies) {
        self.groups.insert(number.into(), group);
    }

    /// Returns whether there are rows of this table.
    #[must_use]
    pub(crate) fn has_rows_of(&self, table: u32) -> bool {
        self.entries.keys().any(|(of, _)| *of == table)
    }

    /// Numbers of the jobs that have a session's row.
    ///
    /// # Errors
    /// [`ControllerError::P4Info`] if the program has no jobs.
    pub fn sessions(&self, schema: &Schema) -> Result<BTreeSet<u16>, ControllerError> {
        let jobs = schema.table(JobRow::TABLE)?;
        Ok(rows(&self.entries, jobs).filter_map(|(key, _)| number(key, 0)).collect())
    }

    /// Numbers of the jobs whose lookup table has other values in `actual`, or none: their slots may hold such
    /// values (P6).
    ///
    /// # Errors
    /// [`ControllerError::P4Info`] if the program has no such tables.
    pub(crate) fn disturbed_jobs(
        &self,
        actual: &SwitchRows,
        schema: &Schema,
    ) -> Result<BTreeSet<u16>, ControllerError> {
        let (mine, theirs) = self.entries_beside(actual, schema)?;
        disturbed_jobs(&mine, &theirs, schema)
    }

    /// The rows of both, but those of lookup tables of bytes that both have.
    fn entries_beside<'a>(
        &'a self,
        actual: &'a SwitchRows,
        schema: &Schema,
    ) -> Result<(Cow<'a, Entries>, Cow<'a, Entries>), ControllerError> {
        Ok((self.without_shared_lookups(actual, schema)?, actual.without_shared_lookups(self, schema)?))
    }

    fn without_shared_lookups(
        &self,
        other: &SwitchRows,
        schema: &Schema,
    ) -> Result<Cow<'_, Entries>, ControllerError> {
        let mut entries = Cow::Borrowed(&self.entries);
        for (number, lookup) in &self.lookups {
            if other.lookups.get(number) != Some(lookup) {
                let made = schema.lookup_entries(lookup)?;
                entries.to_mut().extend(made.into_iter().map(|entry| (key(&entry), entry)));
            }
        }
        Ok(entries)
    }

    fn entry(&mut self, entry: TableEntry) {
        if entry.is_default_action {
            self.defaults.insert(entry.table_id, entry);
        } else {
            self.entries.insert(key(&entry), entry);
        }
    }

    /// The rows of a switch's answer to a read of everything.
    #[must_use]
    pub fn read(entities: Vec<Entity>) -> SwitchRows {
        let mut actual = SwitchRows::default();
        for entity in entities {
            match entity.entity {
                Some(entity::Entity::TableEntry(entry)) => actual.entry(plain(entry)),
                Some(entity::Entity::PacketReplicationEngineEntry(PacketReplicationEngineEntry {
                    r#type: Some(packet_replication_engine_entry::Type::MulticastGroupEntry(group)),
                })) => {
                    let mut copies: Vec<(u16, u16)> = group.replicas.iter().map(copy).collect();
                    copies.sort_unstable();
                    actual.groups.insert(group.multicast_group_id, Copies(copies));
                }
                _ => {}
            }
        }
        actual
    }

    /// The groups that differ in `actual`, except those of other programs.
    fn differing_groups<'a>(
        &'a self,
        actual: &'a SwitchRows,
        schema: &Schema,
    ) -> Result<impl Iterator<Item = (&'a u32, Option<&'a Copies>, Option<&'a Copies>)>, ControllerError>
    {
        // Jobs' groups are one more than a job's index.
        let ours = 1..=u32::try_from(schema.info().table(JobRow::TABLE)?.size).unwrap_or(0);
        let differing = differing(&self.groups, &actual.groups);
        Ok(differing.filter(move |(number, mine, _)| mine.is_some() || ours.contains(*number)))
    }

    /// The changes that turn `actual` into this. A job's row is removed before anything else of the job
    /// changes, its lookup table included, and added again afterwards.
    ///
    /// # Errors
    /// [`ControllerError::P4Info`] if the program has no jobs.
    pub fn changes(&self, actual: &SwitchRows, schema: &Schema) -> Result<SwitchChanges, ControllerError> {
        use update::Type::{Delete, Insert, Modify};
        let jobs = schema.table(JobRow::TABLE)?;
        let (mine, theirs) = self.entries_beside(actual, schema)?;
        let disturbed = disturbed_jobs(&mine, &theirs, schema)?;
        let goes = |key: &Key| number(key, 0).is_some_and(|job| disturbed.contains(&job));
        let mut changes = SwitchChanges::default();
        let SwitchChanges { withdrawn, others, entered } = &mut changes;
        let removed = differing(&mine, &theirs).filter(|(_, mine, _)| mine.is_none());
        let removed = removed.filter_map(|((of, _), _, entry)| Some((*of, entry?)));
        others.extend(removed.filter(|(of, _)| *of != jobs).map(|(_, entry)| table(Delete, entry)));
        // A default may still flood into a group that goes; so groups go last.
        let mut last = Vec::new();
        for (&number, mine, theirs) in self.differing_groups(actual, schema)? {
            match (mine, theirs) {
                (Some(mine), None) => others.push(group(Insert, number, mine)),
                (Some(mine), Some(_)) => others.push(group(Modify, number, mine)),
                (None, theirs) => last.extend(theirs.map(|theirs| group(Delete, number, theirs))),
            }
        }
        for (key, mine, theirs) in differing(&mine, &theirs) {
            match (mine, theirs) {
                (mine, theirs) if key.0 == jobs => {
                    withdrawn.extend(theirs.map(|entry| table(Delete, entry)));
                    entered.extend(mine.map(|entry| table(Insert, entry)));
                }
                (Some(entry), Some(_)) => others.push(table(Modify, entry)),
                (Some(entry), None) => others.push(table(Insert, entry)),
                (None, _) => {}
            }
        }
        let same = |(key, entry): &(&Key, &TableEntry)| theirs.get(*key) == Some(*entry);
        for (_, entry) in rows(&mine, jobs).filter(same).filter(|(key, _)| goes(key)) {
            withdrawn.push(table(Delete, entry));
            entered.push(table(Insert, entry));
        }
        let defaults = differing(&self.defaults, &actual.defaults).filter_map(|(_, mine, _)| mine);
        others.extend(defaults.map(|entry| table(Modify, entry)));
        entered.append(&mut last);
        Ok(changes)
    }
}

/// Only what is compared: a switch may add statistics.
fn plain(entry: TableEntry) -> TableEntry {
    TableEntry {
        table_id: entry.table_id,
        r#match: entry.r#match,
        action: entry.action,
        is_default_action: entry.is_default_action,
        meter_config: entry.meter_config,
        ..TableEntry::default()
    }
}

/// See [`SwitchRows::disturbed_jobs`].
fn disturbed_jobs(
    mine: &Entries,
    theirs: &Entries,
    schema: &Schema,
) -> Result<BTreeSet<u16>, ControllerError> {
    let may = schema.table(JobTableRow::TABLE)?;
    // By the first field of their keys, which says whose values they are.
    let mut changed: BTreeSet<&[u8]> = BTreeSet::new();
    for lookup in schema.lookups().map(Table::id) {
        let lost = rows(mine, lookup).filter(|(key, entry)| theirs.get(*key) != Some(*entry));
        let others = rows(theirs, lookup).filter(|(key, _)| !mine.contains_key(*key));
        changed.extend(lost.chain(others).filter_map(|(key, _)| Some(key.1.first()?.1.as_slice())));
    }
    let mut disturbed = BTreeSet::new();
    for (key, entry) in rows(theirs, may) {
        let (Some(desired), Some(job), Some(id)) = (mine.get(key), number(key, 0), key.1.get(1)) else {
            continue;
        };
        // The row has the chip's number of the lookup table, where the program has such numbers.
        let whose = schema.param(desired, "lookup").unwrap_or(&id.1);
        if changed.contains(whose) || desired != entry {
            disturbed.insert(job);
        }
    }
    Ok(disturbed)
}

fn rows(entries: &Entries, table: u32) -> impl Iterator<Item = (&Key, &TableEntry)> {
    entries.range((table, Vec::new())..(table + 1, Vec::new()))
}

fn key(entry: &TableEntry) -> Key {
    let mut fields: Vec<(u32, Vec<u8>)> = entry
        .r#match
        .iter()
        .map(|field| match &field.field_match_type {
            Some(field_match::FieldMatchType::Exact(exact)) => (field.field_id, exact.value.clone()),
            _ => (field.field_id, Vec::new()),
        })
        .collect();
    fields.sort_unstable();
    (entry.table_id, fields)
}

/// A number in a key: its fields are in the order of the program's, and the job's number comes first.
fn number(key: &Key, field: usize) -> Option<u16> {
    let (_, value) = key.1.get(field)?;
    p4runtime_proto::bytes::decode(value, 16).map(|value| value as u16)
}

fn copy(replica: &Replica) -> (u16, u16) {
    let port = match &replica.port_kind {
        Some(replica::PortKind::EgressPort(port)) => u16::try_from(*port).unwrap_or(u16::MAX),
        Some(replica::PortKind::Port(bytes)) => {
            p4runtime_proto::bytes::decode(bytes, 16).map_or(u16::MAX, |port| port as u16)
        }
        None => u16::MAX,
    };
    (port, replica.instance as u16)
}

fn table(kind: update::Type, entry: &TableEntry) -> Update {
    let mut entry = entry.clone();
    // A deletion names the key alone.
    if kind == update::Type::Delete {
        (entry.action, entry.meter_config) = (None, None);
    }
    let entity = entity::Entity::TableEntry(entry);
    Update { r#type: kind.into(), entity: Some(Entity { entity: Some(entity) }) }
}

fn group(kind: update::Type, number: u32, group: &Copies) -> Update {
    let replicas = group
        .0
        .iter()
        .map(|&(port, instance)| Replica {
            port_kind: Some(replica::PortKind::EgressPort(port.into())),
            instance: instance.into(),
        })
        .collect();
    let entry = MulticastGroupEntry { multicast_group_id: number, replicas, metadata: Vec::new() };
    let entry = PacketReplicationEngineEntry {
        r#type: Some(packet_replication_engine_entry::Type::MulticastGroupEntry(entry)),
    };
    let entity = entity::Entity::PacketReplicationEngineEntry(entry);
    Update { r#type: kind.into(), entity: Some(Entity { entity: Some(entity) }) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use p4runtime_proto::p4info;
    use thc_p4::rows::LookupRow;
    use thc_protocol::wire::Form;

    fn rows(schema: &Schema, values: Option<[u8; 16]>, epoch: u32) -> SwitchRows {
        let mut rows = SwitchRows::default();
        for job in [258, 3] {
            let row = JobRow {
                job,
                index: 0,
                cookie: 1,
                epoch,
                workers: 2,
                quorum: 2,
                skip: false,
                data_base: 0,
                data_slots: 8,
                norm_base: 0,
                norm_slots: 8,
                group: 1,
            };
            rows.row(schema, &row).unwrap();
            rows.row(schema, &JobTableRow { job, table: if job == 258 { 7 } else { 8 }, on_chip: None })
                .unwrap();
        }
        rows.row(schema, &LookupRow { table: 8, values: [8; 16], form: Form::USUAL }).unwrap();
        if let Some(values) = values {
            rows.row(schema, &LookupRow { table: 7, values, form: Form::USUAL }).unwrap();
        }
        rows
    }

    /// P6: a job does not run while its lookup table gets other values.
    #[test]
    fn a_job_goes_while_its_table_changes() {
        let info = p4info::parse(include_bytes!("../../../p4/build/thc.p4info.txtpb")).unwrap();
        let schema = Schema::new(info);
        let desired = rows(&schema, Some([1; 16]), 5);
        assert!(desired.changes(&desired, &schema).unwrap().into_updates().is_empty());
        assert_eq!(desired.disturbed_jobs(&desired, &schema).unwrap(), BTreeSet::new());
        for (values, write) in [(Some([2; 16]), update::Type::Modify), (None, update::Type::Insert)] {
            let actual = rows(&schema, values, 5);
            assert_eq!(desired.disturbed_jobs(&actual, &schema).unwrap(), BTreeSet::from([258]));
            let changes = desired.changes(&actual, &schema).unwrap();
            let kinds = |updates: &[Update]| updates.iter().map(Update::r#type).collect::<Vec<_>>();
            assert_eq!(kinds(&changes.withdrawn), [update::Type::Delete]);
            assert_eq!(kinds(&changes.others), [write]);
            assert_eq!(kinds(&changes.entered), [update::Type::Insert]);
        }
    }

    #[test]
    fn each_entry_is_somebodys() {
        let info = p4info::parse(include_bytes!("../../../p4/build/thc.p4info.txtpb")).unwrap();
        let schema = Schema::new(info);
        let mut all = rows(&schema, Some([1; 16]), 5);
        all.group(3, Copies::default());
        all.group(FLOOD, Copies::default());
        let changes = all.changes(&SwitchRows::default(), &schema).unwrap();
        let owners = |updates: &[Update]| updates.iter().map(|u| owner(u, &schema)).collect::<Vec<_>>();
        assert_eq!(owners(&changes.entered), [Owner::Job(258), Owner::Job(3)]);
        let others = owners(&changes.others);
        for one in [Owner::Job(3), Owner::Lookup(7), Owner::Lookup(8), Owner::Group(3), Owner::Target] {
            assert!(others.contains(&one), "{one:?} of {others:?}");
        }
        assert_eq!(all.sessions(&schema).unwrap(), BTreeSet::from([3, 258]));
    }

    /// A job that comes makes no row of lookup tables anew, and sends none.
    #[test]
    fn rows_of_bytes_are_made_once() {
        let info = p4info::parse(include_bytes!("../../../p4/build/tofino/tofino2.p4info.txtpb")).unwrap();
        let schema = Schema::new(info);
        let holds = |jobs: &[u16], values: u8| {
            let mut rows = SwitchRows::default();
            for &job in jobs {
                let on_chip = Some((u8::from(job > 2), false));
                rows.row(&schema, &JobTableRow { job, table: 7, on_chip }).unwrap();
            }
            for number in [0, 1] {
                let values = [number * values; 16];
                rows.lookup(LookupBytes { number, values, form: Form::USUAL });
            }
            rows
        };
        let (one, two) = (holds(&[1], 1), holds(&[1, 3], 1));
        let all = one.changes(&SwitchRows::default(), &schema).unwrap().others;
        // 64 tables of 256 rows for each, and the job's.
        assert_eq!(all.len(), 2 * 64 * 256 + 1);
        assert!(
            matches!(two.without_shared_lookups(&one, &schema).unwrap(), Cow::Borrowed(rows) if rows.len() == 2)
        );
        assert!(
            matches!(one.without_shared_lookups(&two, &schema).unwrap(), Cow::Borrowed(rows) if rows.len() == 1)
        );
        assert_eq!(two.changes(&one, &schema).unwrap().into_updates().len(), 1);
        // Rows that were read from a switch are compared with all of them.
        let read = SwitchRows::read(all.into_iter().filter_map(|update| update.entity).collect());
        assert!(one.changes(&read, &schema).unwrap().into_updates().is_empty());
        // Other values of one of them.
        let other = holds(&[1, 3], 2);
        assert_eq!(other.disturbed_jobs(&two, &schema).unwrap(), BTreeSet::from([3]));
        let updates = other.changes(&two, &schema).unwrap().others;
        assert_eq!(updates.len(), 64 * 256);
        assert!(updates.iter().all(|update| update.r#type() == update::Type::Modify));
    }
}
