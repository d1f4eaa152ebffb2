//! The rows that were written: tables, default actions and multicast groups, as numbers.

use std::collections::BTreeMap;

use super::entry::Entry;
use super::program::Program;

/// The values of a row's key, in the order of the table's fields.
pub type Key = Vec<u128>;

/// A multicast group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MulticastGroup {
    /// Its copies.
    pub replicas: Vec<Replica>,
    /// The controller's own, kept for it.
    pub metadata: Vec<u8>,
}

/// One copy of a group's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The port of a switch.
    pub port: u32,
    /// The port as it was written, if as a byte string.
    pub port_bytes: Option<Vec<u8>>,
    /// The instance; in a job's group the worker's number.
    pub instance: u32,
}

/// One change of the store. Making it returns the change that undoes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowChange {
    /// A row is as said, or is not there.
    Row(u32, Key, Option<Entry>),
    /// A table's default action is as said, or as the program has it.
    Default(u32, Option<Entry>),
    /// A group is as said, or is not there.
    Group(u32, Option<MulticastGroup>),
}

/// Everything that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    rows: BTreeMap<u32, BTreeMap<Key, Entry>>,
    defaults: BTreeMap<u32, Entry>,
    groups: BTreeMap<u32, MulticastGroup>,
}

impl Store {
    /// Makes a change and gives its inverse.
    pub fn exchange(&mut self, change: RowChange) -> RowChange {
        match change {
            RowChange::Row(table, key, entry) => {
                let rows = self.rows.entry(table).or_default();
                let before = match entry {
                    Some(entry) => rows.insert(key.clone(), entry),
                    None => rows.remove(&key),
                };
                RowChange::Row(table, key, before)
            }
            RowChange::Default(table, entry) => {
                let before = match entry {
                    Some(entry) => self.defaults.insert(table, entry),
                    None => self.defaults.remove(&table),
                };
                RowChange::Default(table, before)
            }
            RowChange::Group(number, group) => {
                let before = match group {
                    Some(group) => self.groups.insert(number, group),
                    None => self.groups.remove(&number),
                };
                RowChange::Group(number, before)
            }
        }
    }

    /// A row.
    #[must_use]
    pub fn row(&self, table: u32, key: &[u128]) -> Option<&Entry> {
        self.rows.get(&table)?.get(key)
    }

    /// All rows of a table, in the order of their keys.
    pub fn rows(&self, table: u32) -> impl Iterator<Item = (&Key, &Entry)> {
        self.rows.get(&table).into_iter().flatten()
    }

    /// Rows of a table whose key begins with `first`.
    pub fn rows_of(&self, table: u32, first: u128) -> impl Iterator<Item = (&Key, &Entry)> {
        let rows = self.rows.get(&table).into_iter();
        rows.flat_map(move |rows| rows.range(vec![first]..vec![first + 1]))
    }

    /// The number of rows in a table.
    #[must_use]
    pub fn len(&self, table: u32) -> usize {
        self.rows.get(&table).map_or(0, BTreeMap::len)
    }

    /// A table's default action.
    #[must_use]
    pub fn default_of<'a>(&'a self, program: &'a Program, table: u32) -> Option<&'a Entry> {
        self.defaults.get(&table).or_else(|| program.tables.get(&table).map(|table| &table.default))
    }

    /// A group.
    #[must_use]
    pub fn group(&self, number: u32) -> Option<&MulticastGroup> {
        self.groups.get(&number)
    }

    /// All groups.
    pub fn groups(&self) -> impl Iterator<Item = (u32, &MulticastGroup)> {
        self.groups.iter().map(|(&number, group)| (number, group))
    }

    /// The number of groups.
    #[must_use]
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_can_be_taken_back() {
        let mut store = Store::default();
        let entry = |action| Entry { action, ..Entry::default() };
        let group = |instance| MulticastGroup {
            replicas: vec![Replica { port: 1, port_bytes: None, instance }],
            ..MulticastGroup::default()
        };
        let changes = [
            RowChange::Row(5, vec![1, 2], Some(entry(1))),
            RowChange::Row(5, vec![1, 2], Some(entry(2))),
            RowChange::Row(5, vec![1, 3], Some(entry(3))),
            RowChange::Row(5, vec![1, 2], None),
            RowChange::Row(5, vec![1, 2], None),
            RowChange::Default(5, Some(entry(4))),
            RowChange::Default(5, None),
            RowChange::Group(9, Some(group(1))),
            RowChange::Group(9, Some(group(2))),
            RowChange::Group(9, None),
        ];
        for change in changes {
            let before = store.clone();
            let undo = store.exchange(change);
            let mut back = store.clone();
            back.exchange(undo);
            assert_eq!(back.row(5, &[1, 2]), before.row(5, &[1, 2]));
            assert_eq!((back.len(5), back.group(9)), (before.len(5), before.group(9)));
            assert_eq!(back.defaults, before.defaults);
        }
        assert_eq!(store.len(5), 1);
    }

    #[test]
    fn rows_are_found_by_the_beginning_of_their_key() {
        let mut store = Store::default();
        for key in [vec![1, 9], vec![2, 0], vec![2, 255], vec![3, 0]] {
            store.exchange(RowChange::Row(1, key, Some(Entry::default())));
        }
        let keys: Vec<_> = store.rows_of(1, 2).map(|(key, _)| key.clone()).collect();
        assert_eq!(keys, [[2, 0], [2, 255]]);
        assert_eq!(store.rows_of(7, 2).count(), 0);
    }
}
