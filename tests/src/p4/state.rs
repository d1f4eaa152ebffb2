//! What a controller writes, by the numbers of a P4Info.

use super::program::{Call, Program};
use p4runtime_proto::config::P4Info;
use p4runtime_proto::v1::{
    FieldMatch, PacketReplicationEngineEntry, TableEntry, Update, entity, field_match,
    packet_replication_engine_entry, replica, table_action, update,
};
use std::collections::{BTreeMap, HashMap};

/// Rows, defaults and groups.
#[derive(Clone, Debug)]
pub struct Tables {
    /// By table: the key, and what is done.
    pub rows: Vec<HashMap<Vec<u64>, Call>>,
    pub defaults: Vec<Call>,
    /// By table and key: how many packets a row's meter lets pass. No time passes, so that it lets pass no more.
    pub meters: BTreeMap<(usize, Vec<u64>), u64>,
    /// Port and number of each copy.
    pub groups: BTreeMap<u64, Vec<(u16, u16)>>,
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn exact(field: &FieldMatch) -> u64 {
    match &field.field_match_type {
        Some(field_match::FieldMatchType::Exact(exact)) => number(&exact.value),
        other => panic!("not an exact match: {other:?}"),
    }
}

/// A name of the P4Info as the program has it.
fn without_pipe(name: &str) -> &str {
    name.strip_prefix("pipe.").unwrap_or(name)
}

impl Tables {
    /// Of a program that nobody has written to.
    #[must_use]
    pub fn new(program: &Program) -> Tables {
        Tables {
            rows: vec![HashMap::new(); program.tables.len()],
            defaults: program.tables.iter().map(|table| table.default.clone()).collect(),
            meters: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// Takes a controller's update.
    ///
    /// # Panics
    /// If there is nothing of the sort, or no room.
    pub fn update(&mut self, program: &Program, info: &P4Info, update: Update) {
        let kind = update.r#type();
        match update.entity.and_then(|entity| entity.entity) {
            Some(entity::Entity::TableEntry(entry)) => self.entry(program, info, kind, &entry),
            Some(entity::Entity::PacketReplicationEngineEntry(PacketReplicationEngineEntry {
                r#type: Some(packet_replication_engine_entry::Type::MulticastGroupEntry(group)),
            })) => {
                let number = group.multicast_group_id.into();
                if kind == update::Type::Delete {
                    self.groups.remove(&number);
                    return;
                }
                let copy = |replica: &p4runtime_proto::v1::Replica| match replica.port_kind {
                    Some(replica::PortKind::EgressPort(port)) => (port as u16, replica.instance as u16),
                    ref other => panic!("no port: {other:?}"),
                };
                self.groups.insert(number, group.replicas.iter().map(copy).collect());
            }
            other => panic!("a controller writes no {other:?}"),
        }
    }

    fn entry(&mut self, program: &Program, info: &P4Info, kind: update::Type, entry: &TableEntry) {
        let known = info.tables.iter().find(|table| table.id() == entry.table_id).expect("no such table");
        let name = without_pipe(known.name());
        let at = program.tables.iter().position(|table| table.name == name);
        let at = at.unwrap_or_else(|| panic!("no table {name}"));
        let table = &program.tables[at];
        assert!(!table.constant, "{name} is constant");
        let key: Vec<u64> = table
            .key
            .iter()
            .filter(|_| !entry.is_default_action)
            .map(|(field, _, bits, ternary)| {
                assert!(!ternary, "{name} is ternary");
                let id = known.match_fields.iter().find(|known| known.name == *field).map(|known| known.id);
                let given = entry.r#match.iter().find(|given| Some(given.field_id) == id);
                let value = exact(given.unwrap_or_else(|| panic!("{name}: no {field}")));
                assert!(value <= super::program::mask(*bits), "{name}.{field} has {bits} bits: {value}");
                value
            })
            .collect();
        if kind == update::Type::Delete {
            assert!(self.rows[at].remove(&key).is_some(), "{name} has no {key:?}");
            self.meters.remove(&(at, key));
            return;
        }
        let Some(table_action::Type::Action(action)) =
            entry.action.as_ref().and_then(|action| action.r#type.as_ref())
        else {
            panic!("{name}: no action")
        };
        let of_info =
            info.actions.iter().find(|known| known.id() == action.action_id).expect("no such action");
        let action_name = without_pipe(of_info.name());
        // One of the table's own: the front end has copies of an action that several tables have.
        let found = table.actions.iter().copied().find(|&one| program.actions[one].name == action_name);
        let found = found.unwrap_or_else(|| panic!("{name} has no action {action_name}"));
        let arguments = program.actions[found]
            .parameters
            .iter()
            .map(|(parameter, _)| {
                let id = of_info.params.iter().find(|param| param.name == *parameter).map(|param| param.id);
                let given = action.params.iter().find(|given| Some(given.param_id) == id);
                number(&given.unwrap_or_else(|| panic!("{action_name}: no {parameter}")).value)
            })
            .collect();
        if entry.is_default_action {
            self.defaults[at] = (found, arguments);
            return;
        }
        if let Some(meter) = &entry.meter_config {
            self.meters.insert((at, key.clone()), meter.pburst as u64);
        }
        let before = self.rows[at].insert(key, (found, arguments));
        assert_eq!(before.is_some(), kind == update::Type::Modify, "{name}: {kind:?}");
        assert!(self.rows[at].len() as u64 <= table.size, "{name} has room for {}", table.size);
    }
}
