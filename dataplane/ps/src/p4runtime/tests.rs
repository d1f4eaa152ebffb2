//! Every table and every code, without a network.
#![allow(clippy::unwrap_used)]

use p4runtime_proto::bytes::encode;
use p4runtime_proto::v1::{
    Action, CloneSessionEntry, FieldMatch, MulticastGroupEntry, PacketReplicationEngineEntry, Replica,
    TableAction, TableEntry, action, field_match, packet_replication_engine_entry, replica, table_action,
    update,
};
use tonic::Code;

use super::entries::{group_change, row_entity, table_change};
use crate::rows::{Program, RowChange, Store, View};

use update::Type::{Delete, Insert, Modify, Unspecified};

fn program() -> &'static Program {
    Program::get()
}

fn table_id(name: &str) -> u32 {
    *program().tables.iter().find(|(_, table)| table.name == name).unwrap().0
}

fn exact(field_id: u32, value: &[u8]) -> FieldMatch {
    let exact = field_match::Exact { value: value.to_vec() };
    FieldMatch { field_id, field_match_type: Some(field_match::FieldMatchType::Exact(exact)) }
}

/// A row of a table whose key and parameters are `number`, as far as they have room for it; a lookup table's values
/// are 0 and that (P6).
fn row(table: u32, number: u128) -> TableEntry {
    let known = &program().tables[&table];
    let cut = |bits: u32| number & ((1u128 << bits.min(127)) - 1);
    let fields = known.fields.iter().map(|field| exact(field.id, &encode(cut(field.bits))));
    let used = known.actions.iter().find(|used| used.in_rows).unwrap();
    let params = program().actions[&used.id].params.iter();
    let value = |name: &str, bits: u32| match name {
        "values" => (number & 0xFF).max(1) << (14 * 8),
        "width" => 4,
        "lane" => 8,
        _ => cut(bits),
    };
    let params = params.map(|p| action::Param { param_id: p.id, value: encode(value(&p.name, p.bits)) });
    let action = Action { action_id: used.id, params: params.collect() };
    TableEntry {
        table_id: table,
        r#match: fields.collect(),
        action: Some(TableAction { r#type: Some(table_action::Type::Action(action)) }),
        ..TableEntry::default()
    }
}

fn action_mut(entry: &mut TableEntry) -> &mut Action {
    match entry.action.as_mut().unwrap().r#type.as_mut().unwrap() {
        table_action::Type::Action(action) => action,
        other => panic!("{other:?}"),
    }
}

fn code(store: &Store, kind: update::Type, entry: &TableEntry) -> Code {
    match table_change(program(), store, kind, entry) {
        Ok(_) => Code::Ok,
        Err(refusal) => refusal.code,
    }
}

fn write(store: &mut Store, kind: update::Type, entry: &TableEntry) {
    let change = table_change(program(), store, kind, entry).unwrap();
    store.exchange(change);
}

/// A number that every table takes in its key.
fn number_of(table: u32) -> u128 {
    if table == program().known.control_plane { 0x21 } else { 5 }
}

#[test]
fn every_table_is_written_read_and_emptied() {
    for (&id, table) in &program().tables {
        let name = &table.name;
        let mut store = Store::default();
        let mut entry = row(id, number_of(id));
        entry.metadata = b"mine".to_vec();
        entry.controller_metadata = 9;
        assert_eq!(code(&store, Modify, &entry), Code::NotFound, "{name}");
        assert_eq!(code(&store, Delete, &entry), Code::NotFound, "{name}");
        assert_eq!(code(&store, Unspecified, &entry), Code::InvalidArgument, "{name}");
        write(&mut store, Insert, &entry);
        assert_eq!(code(&store, Insert, &entry), Code::AlreadyExists, "{name}");
        let (key, held) = store.rows(id).next().unwrap();
        let read = row_entity(program(), id, key, held);
        let written = p4runtime_proto::v1::entity::Entity::TableEntry(entry.clone());
        assert_eq!(read.entity, Some(written), "{name}: what is read is what was written");
        entry.metadata.clear();
        write(&mut store, Modify, &entry);
        assert_eq!(store.rows(id).next().unwrap().1.metadata, b"");
        // For a deletion the key alone counts.
        let key = TableEntry { action: None, metadata: vec![0; 9999], ..entry };
        write(&mut store, Delete, &key);
        assert_eq!(store.len(id), 0, "{name}");
    }
}

#[test]
fn a_full_table_takes_no_more() {
    let id = table_id("jobs");
    let mut store = Store::default();
    let size = program().tables[&id].size as u128;
    for job in 0..size {
        write(&mut store, Insert, &row(id, job));
    }
    assert_eq!(code(&store, Insert, &row(id, size)), Code::ResourceExhausted);
    assert_eq!(code(&store, Insert, &row(id, size - 1)), Code::AlreadyExists);
    assert_eq!(code(&store, Modify, &row(id, size - 1)), Code::Ok);
    write(&mut store, Delete, &row(id, 3));
    assert_eq!(code(&store, Insert, &row(id, size)), Code::Ok);
}

#[test]
fn numbers_may_be_padded_but_must_fit() {
    let id = table_id("job_tables");
    let mut store = Store::default();
    let key =
        |job: &[u8], table: &[u8]| TableEntry { r#match: vec![exact(1, job), exact(2, table)], ..row(id, 0) };
    write(&mut store, Insert, &key(&[0, 0, 1, 2], &[0, 3]));
    assert_eq!(code(&store, Insert, &key(&[1, 2], &[3])), Code::AlreadyExists);
    for (job, table) in [(&[1, 0, 0][..], &[1][..]), (&[1], &[1, 0]), (&[], &[1]), (&[1; 40], &[1])] {
        assert_eq!(code(&store, Insert, &key(job, table)), Code::OutOfRange, "{job:?} {table:?}");
    }
}

#[test]
fn ill_formed_rows_are_refused() {
    let id = table_id("members");
    let store = Store::default();
    let good = row(id, 5);
    assert_eq!(code(&store, Insert, &good), Code::Ok);
    let wrong = |what: &str, change: &dyn Fn(&mut TableEntry)| {
        let mut entry = good.clone();
        change(&mut entry);
        assert_eq!(code(&store, Insert, &entry), Code::InvalidArgument, "{what}");
    };
    wrong("no such table", &|entry| entry.table_id = 1);
    wrong("priority", &|entry| entry.priority = 1);
    wrong("is_const", &|entry| entry.is_const = true);
    wrong("no key", &|entry| entry.r#match.clear());
    wrong("half a key", &|entry| drop(entry.r#match.pop()));
    wrong("a field twice", &|entry| entry.r#match[1] = entry.r#match[0].clone());
    wrong("another field", &|entry| entry.r#match[1].field_id = 9);
    wrong("not exact", &|entry| {
        let ternary = field_match::Ternary { value: vec![1], mask: vec![1] };
        entry.r#match[0].field_match_type = Some(field_match::FieldMatchType::Ternary(ternary));
    });
    wrong("no action", &|entry| entry.action = None);
    wrong("an empty action", &|entry| entry.action = Some(TableAction { r#type: None }));
    wrong("a profile's member", &|entry| {
        entry.action = Some(TableAction { r#type: Some(table_action::Type::ActionProfileMemberId(1)) });
    });
    wrong("another table's action", &|entry| {
        action_mut(entry).action_id = program().action("set_job").unwrap().0;
    });
    wrong("a parameter too few", &|entry| drop(action_mut(entry).params.pop()));
    wrong("a parameter twice", &|entry| {
        let params = &mut action_mut(entry).params;
        params.push(params[0].clone());
    });
    wrong("another parameter", &|entry| action_mut(entry).params[0].param_id = 77);
    wrong("a parameter too wide", &|entry| action_mut(entry).params[0].value = vec![1, 0, 0]);
    wrong("an empty parameter", &|entry| action_mut(entry).params[0].value.clear());
    wrong("an idle timeout", &|entry| entry.idle_timeout_ns = 1);
    wrong("a counter", &|entry| entry.counter_data = Some(Default::default()));
    wrong("worker 64", &|entry| entry.r#match[1] = exact(2, &[64]));
    let mut entry = good.clone();
    entry.metadata = vec![0; 257];
    assert_eq!(code(&store, Insert, &entry), Code::ResourceExhausted);
    let mut entry = good.clone();
    let no_action = Action { action_id: program().action("NoAction").unwrap().0, params: Vec::new() };
    *action_mut(&mut entry) = no_action;
    assert_eq!(code(&store, Insert, &entry), Code::PermissionDenied, "an action of the default alone");
    assert_eq!(code(&store, Insert, &row(table_id("control_plane"), 2)), Code::Unimplemented);
}

#[test]
fn no_refusal_shows_a_cookie() {
    let mut entry = row(table_id("jobs"), 1);
    let place =
        program().action("set_job").unwrap().1.params.iter().position(|p| p.name == "cookie").unwrap();
    action_mut(&mut entry).params[place].value = vec![0x5e, 0xed, 0x5e, 0xed, 0x5e];
    let refusal = table_change(program(), &Store::default(), Insert, &entry).unwrap_err();
    assert!(refusal.message.contains("cookie"), "{refusal:?}");
    let shown = refusal.message.to_lowercase();
    assert!(
        !shown.contains("5eed") && !shown.contains(&0x5e_ed5e_ed5e_u64.to_string()) && !shown.contains("94")
    );
}

#[test]
fn default_actions_change_where_the_program_allows_it() {
    let store = Store::default();
    let default = |table: &str, action: &str, params: &[u128]| {
        let (id, action) = program().action(action).unwrap();
        let params = action.params.iter().zip(params);
        let params =
            params.map(|(p, &value)| action::Param { param_id: p.id, value: encode(value) }).collect();
        let action = Action { action_id: id, params };
        TableEntry {
            table_id: table_id(table),
            action: Some(TableAction { r#type: Some(table_action::Type::Action(action)) }),
            is_default_action: true,
            ..TableEntry::default()
        }
    };
    let flood = default("stations", "flood", &[100]);
    assert_eq!(code(&store, Modify, &flood), Code::Ok);
    for kind in [Insert, Delete] {
        assert_eq!(code(&store, kind, &flood), Code::InvalidArgument);
    }
    let keyed = TableEntry { r#match: vec![exact(1, &[1])], ..flood.clone() };
    assert_eq!(code(&store, Modify, &keyed), Code::InvalidArgument);
    assert_eq!(code(&store, Modify, &default("jobs", "NoAction", &[])), Code::PermissionDenied);
    assert_eq!(code(&store, Modify, &default("passes", "drop", &[])), Code::InvalidArgument);
    // Without an action it is as the program has it.
    let mut changed = store.clone();
    write(&mut changed, Modify, &flood);
    let held = |store: &Store| store.default_of(program(), table_id("stations")).unwrap().action;
    assert_eq!(held(&changed), program().action("flood").unwrap().0);
    write(&mut changed, Modify, &TableEntry { action: None, ..flood });
    assert_eq!(held(&changed), program().action("drop").unwrap().0);
}

#[test]
fn groups() {
    let mut store = Store::default();
    let entry = |number: u32, replicas: &[(u32, u32)]| {
        let replica = |&(port, instance): &(u32, u32)| Replica {
            port_kind: Some(replica::PortKind::EgressPort(port)),
            instance,
        };
        let group = MulticastGroupEntry {
            multicast_group_id: number,
            replicas: replicas.iter().map(replica).collect(),
            metadata: Vec::new(),
        };
        PacketReplicationEngineEntry {
            r#type: Some(packet_replication_engine_entry::Type::MulticastGroupEntry(group)),
        }
    };
    let code =
        |store: &Store, kind, entry: &PacketReplicationEngineEntry| match group_change(store, kind, entry) {
            Ok(_) => Code::Ok,
            Err(refusal) => refusal.code,
        };
    let good = entry(1, &[(1, 0), (1, 1), (2, 0)]);
    assert_eq!(code(&store, Modify, &good), Code::NotFound);
    assert_eq!(code(&store, Delete, &good), Code::NotFound);
    assert_eq!(code(&store, Unspecified, &good), Code::InvalidArgument);
    let change = group_change(&store, Insert, &good).unwrap();
    assert!(matches!(change, RowChange::Group(1, Some(_))));
    store.exchange(change);
    assert_eq!(code(&store, Insert, &good), Code::AlreadyExists);
    assert_eq!(code(&store, Modify, &entry(1, &[])), Code::Ok);
    assert_eq!(code(&store, Delete, &entry(1, &[])), Code::Ok);
    for wrong in [entry(0, &[]), entry(65536, &[]), entry(2, &[(1, 1), (1, 1)]), entry(2, &[(1, 65536)])] {
        assert_eq!(code(&store, Insert, &wrong), Code::InvalidArgument, "{wrong:?}");
    }
    let many: Vec<_> = (0..1025).map(|instance| (1, instance)).collect();
    assert_eq!(code(&store, Insert, &entry(2, &many)), Code::ResourceExhausted);
    assert_eq!(code(&store, Insert, &entry(2, &many[1..])), Code::Ok);
    for number in 2..=1024 {
        store.exchange(group_change(&store, Insert, &entry(number, &[])).unwrap());
    }
    assert_eq!(code(&store, Insert, &entry(1025, &[])), Code::ResourceExhausted);
    let clone = CloneSessionEntry::default();
    let clone = packet_replication_engine_entry::Type::CloneSessionEntry(clone);
    let clone = PacketReplicationEngineEntry { r#type: Some(clone) };
    assert_eq!(code(&store, Insert, &clone), Code::Unimplemented);
    let nothing = PacketReplicationEngineEntry { r#type: None };
    assert_eq!(code(&store, Insert, &nothing), Code::InvalidArgument);
}

/// Whatever comes, nothing panics, tables keep to their sizes, and what is held can be read and means something.
#[test]
fn nonsense_is_refused() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let ids: Vec<u32> = program().tables.keys().copied().collect();
    let mut store = Store::default();
    let mut taken = 0;
    for _ in 0..20_000 {
        let mut entry = row(ids[random.usize(..ids.len())], u128::from(random.u8(..)));
        entry.is_default_action = random.u8(..) < 16;
        for _ in 0..random.usize(..3) {
            let bytes: Vec<u8> = (0..random.usize(..20)).map(|_| random.u8(..)).collect();
            match random.u8(..7) {
                0 => entry.table_id = random.u32(..),
                1 => entry.r#match.truncate(random.usize(..2)),
                2 => entry.r#match.push(exact(random.u32(..3), &bytes)),
                3 => entry.r#match.iter_mut().for_each(|field| field.field_match_type = None),
                4 => action_mut(&mut entry).action_id = *random.choice(program().actions.keys()).unwrap(),
                5 => action_mut(&mut entry)
                    .params
                    .push(action::Param { param_id: random.u32(..9), value: bytes }),
                _ => {
                    for param in &mut action_mut(&mut entry).params {
                        param.value.clone_from(&bytes);
                    }
                }
            }
        }
        let kind = [Insert, Insert, Modify, Delete, Unspecified][random.usize(..5)];
        if let Ok(change) = table_change(program(), &store, kind, &entry) {
            store.exchange(change);
            taken += 1;
        }
    }
    assert!(taken > 1000, "{taken}");
    for (&id, table) in &program().tables {
        assert!(store.len(id) <= table.size, "{}", table.name);
        for (key, held) in store.rows(id) {
            let Some(p4runtime_proto::v1::entity::Entity::TableEntry(read)) =
                row_entity(program(), id, key, held).entity
            else {
                panic!("no row")
            };
            assert_eq!(code(&store, Modify, &read), Code::Ok, "{}", table.name);
        }
    }
    let view = View::new(program(), &store, &Default::default());
    assert_eq!(view.jobs.len(), store.len(table_id("jobs")));
}
