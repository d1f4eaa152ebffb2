//! Rows and groups between P4Runtime's messages and the store.

use p4runtime_proto::bytes::{decode, encode};
use p4runtime_proto::v1::{
    Action, Entity, FieldMatch, MulticastGroupEntry, PacketReplicationEngineEntry, TableAction, TableEntry,
    action, entity, field_match, packet_replication_engine_entry, replica, table_action, update,
};
use tonic::Code;

use super::refusal::{Refusal, refuse};
use crate::kinds::kind_bit;
use crate::rows::{
    Entry, Key, MatchTable, MulticastGroup, Program, ProgramField, Replica, RowChange, Store, lookup,
};

/// Metadata that a controller may leave with an entry.
const MAX_METADATA: usize = 256;
/// Multicast groups at a time, and copies of one.
const MAX_GROUPS: usize = 1024;
const MAX_REPLICAS: usize = 1024;
/// Group numbers and instances have 16 bits in the program.
const MAX_GROUP: u32 = 0xFFFF;
const MAX_INSTANCE: u32 = 0xFFFF;
/// Workers have numbers below this.
const WORKERS: u128 = thc_protocol::MAX_WORKERS as u128;

/// The table of this number.
pub fn table_of(program: &Program, id: u32) -> Result<&MatchTable, Refusal> {
    match program.tables.get(&id) {
        Some(table) => Ok(table),
        None => refuse(Code::InvalidArgument, format!("there is no table {id}: take ids from the P4Info")),
    }
}

/// The change that a write of a table entry makes.
pub fn table_change(
    program: &Program,
    store: &Store,
    kind: update::Type,
    entry: &TableEntry,
) -> Result<RowChange, Refusal> {
    let id = entry.table_id;
    let table = table_of(program, id)?;
    let name = &table.name;
    if entry.is_const {
        return refuse(
            Code::InvalidArgument,
            format!("{name}: is_const is the program's to say: leave it out"),
        );
    }
    if entry.priority != 0 {
        return refuse(Code::InvalidArgument, format!("{name} matches exactly: leave priority out"));
    }
    if entry.is_default_action {
        return default_change(program, table, kind, entry);
    }
    let key = key_of(table, &entry.r#match)?;
    let held = store.row(id, &key);
    match kind {
        update::Type::Insert if held.is_some() => {
            return refuse(Code::AlreadyExists, format!("{name} has this row already: use MODIFY"));
        }
        update::Type::Insert if store.len(id) >= table.size => {
            return refuse(Code::ResourceExhausted, format!("{name} is full: it has {} rows", table.size));
        }
        update::Type::Modify | update::Type::Delete if held.is_none() => {
            return refuse(Code::NotFound, format!("{name} has no such row"));
        }
        update::Type::Insert | update::Type::Modify => {}
        update::Type::Delete => return Ok(RowChange::Row(id, key, None)),
        update::Type::Unspecified => return refuse_unspecified(),
    }
    check_key(program, id, &key)?;
    let row = entry_of(program, table, entry, false)?;
    if id == program.known.lookup {
        let wrong = match lookup(program, &row) {
            Some(table) => table.check().err().map(|wrong| wrong.to_string()),
            None => Some(
                "indices have 1 to 4 bits with lanes of 4 to 16, or 8 bits with lanes of 9 to 16".to_owned(),
            ),
        };
        if let Some(wrong) = wrong {
            return refuse(Code::InvalidArgument, format!("{name}: table {}: {wrong}", key[0]));
        }
    }
    Ok(RowChange::Row(id, key, Some(row)))
}

fn refuse_unspecified<T>() -> Result<T, Refusal> {
    refuse(Code::InvalidArgument, "the update has no type: use INSERT, MODIFY or DELETE")
}

fn default_change(
    program: &Program,
    table: &MatchTable,
    kind: update::Type,
    entry: &TableEntry,
) -> Result<RowChange, Refusal> {
    let name = &table.name;
    if !entry.r#match.is_empty() {
        return refuse(Code::InvalidArgument, format!("{name}: the default entry has no key"));
    }
    if kind != update::Type::Modify {
        return refuse(
            Code::InvalidArgument,
            format!("{name}: the default entry is always there: use MODIFY"),
        );
    }
    if table.const_default {
        return refuse(Code::PermissionDenied, format!("{name}: the program fixes the default action"));
    }
    let held = match &entry.action {
        None => None,
        Some(_) => Some(entry_of(program, table, entry, true)?),
    };
    Ok(RowChange::Default(entry.table_id, held))
}

/// Keys that no packet can have, or that this server does nothing for.
fn check_key(program: &Program, table: u32, key: &[u128]) -> Result<(), Refusal> {
    let known = program.known;
    if table == known.control_plane && kind_bit(key[0] as u8) == 0 {
        return refuse(
            Code::Unimplemented,
            format!(
                "control_plane: packets of kind {:#04x} can't be sent there, JOIN (0x21) and LEAVE (0x22) can",
                key[0]
            ),
        );
    }
    if (table == known.members || table == known.addresses) && key[1] >= WORKERS {
        return refuse(Code::InvalidArgument, format!("worker {}: workers are 0 to {}", key[1], WORKERS - 1));
    }
    Ok(())
}

/// The key that these fields are.
pub fn key_of(table: &MatchTable, fields: &[FieldMatch]) -> Result<Key, Refusal> {
    let mut key: Vec<Option<u128>> = vec![None; table.fields.len()];
    for field in fields {
        let Some(place) = table.fields.iter().position(|known| known.id == field.field_id) else {
            return refuse(Code::InvalidArgument, format!("{} has no field {}", table.name, field.field_id));
        };
        let ProgramField { name, bits, .. } = &table.fields[place];
        let Some(field_match::FieldMatchType::Exact(exact)) = &field.field_match_type else {
            return refuse(
                Code::InvalidArgument,
                format!("{}.{name} matches exactly: use exact", table.name),
            );
        };
        let Some(value) = decode(&exact.value, *bits) else {
            let wrong = if exact.value.is_empty() { "is empty" } else { "does not fit" };
            return refuse(Code::OutOfRange, format!("{}.{name} {wrong}: it has {bits} bits", table.name));
        };
        if key[place].replace(value).is_some() {
            return refuse(Code::InvalidArgument, format!("{}.{name} is given twice", table.name));
        }
    }
    let given = key.iter().zip(&table.fields).map(|(value, field)| match value {
        Some(value) => Ok(*value),
        None => refuse(Code::InvalidArgument, format!("{}.{} is missing", table.name, field.name)),
    });
    given.collect()
}

fn entry_of(
    program: &Program,
    table: &MatchTable,
    entry: &TableEntry,
    is_default: bool,
) -> Result<Entry, Refusal> {
    let name = &table.name;
    if entry.idle_timeout_ns != 0 || entry.meter_config.is_some() || entry.counter_data.is_some() {
        return refuse(
            Code::InvalidArgument,
            format!("{name} has no idle timeouts, meters or counters of its own"),
        );
    }
    if entry.metadata.len() > MAX_METADATA {
        return refuse(Code::ResourceExhausted, format!("{name}: metadata may have {MAX_METADATA} bytes"));
    }
    let given = match entry.action.as_ref().and_then(|action| action.r#type.as_ref()) {
        Some(table_action::Type::Action(action)) => action,
        Some(_) => return refuse(Code::InvalidArgument, format!("{name} has no action profile")),
        None => return refuse(Code::InvalidArgument, format!("{name}: the action is missing")),
    };
    let used = table.actions.iter().find(|used| used.id == given.action_id);
    let (Some(used), Some(action)) = (used, program.actions.get(&given.action_id)) else {
        return refuse(Code::InvalidArgument, format!("{name} has no action {}", given.action_id));
    };
    if !(if is_default { used.as_default } else { used.in_rows }) {
        let place = if is_default { "as the default" } else { "in a row" };
        return refuse(Code::PermissionDenied, format!("{name}: {} can't be used {place}", action.name));
    }
    Ok(Entry {
        action: given.action_id,
        params: params_of(&action.name, &action.params, &given.params)?,
        metadata: entry.metadata.clone(),
        controller_metadata: entry.controller_metadata,
    })
}

/// Values are not shown: one of them is a job's cookie.
fn params_of(action: &str, known: &[ProgramField], given: &[action::Param]) -> Result<Vec<u128>, Refusal> {
    let wrong = |what: String| refuse(Code::InvalidArgument, format!("{action}: {what}"));
    if let Some(extra) = given.iter().find(|given| !known.iter().any(|known| known.id == given.param_id)) {
        return wrong(format!("there is no parameter {}", extra.param_id));
    }
    let mut values = Vec::with_capacity(known.len());
    for ProgramField { id, name, bits } in known {
        let mut found = given.iter().filter(|given| given.param_id == *id);
        match (found.next(), found.next()) {
            (Some(param), None) => match decode(&param.value, *bits) {
                Some(value) => values.push(value),
                None => return wrong(format!("{name} is empty or does not fit {bits} bits")),
            },
            (None, _) => return wrong(format!("{name} is missing")),
            (Some(_), Some(_)) => return wrong(format!("{name} is given twice")),
        }
    }
    Ok(values)
}

/// The change that a write of a group makes.
pub fn group_change(
    store: &Store,
    kind: update::Type,
    entry: &PacketReplicationEngineEntry,
) -> Result<RowChange, Refusal> {
    use packet_replication_engine_entry::Type;
    let group = match &entry.r#type {
        Some(Type::MulticastGroupEntry(group)) => group,
        Some(Type::CloneSessionEntry(_)) => return no_clones(),
        None => return refuse(Code::InvalidArgument, "the entry is neither a group nor a clone session"),
    };
    let number = group.multicast_group_id;
    if number == 0 || number > MAX_GROUP {
        return refuse(Code::InvalidArgument, format!("group {number}: groups are 1 to {MAX_GROUP}"));
    }
    let held = store.group(number).is_some();
    match kind {
        update::Type::Insert if held => {
            return refuse(Code::AlreadyExists, format!("group {number} is there already: use MODIFY"));
        }
        update::Type::Insert if store.group_count() >= MAX_GROUPS => {
            return refuse(Code::ResourceExhausted, format!("there are {MAX_GROUPS} groups already"));
        }
        update::Type::Modify | update::Type::Delete if !held => {
            return refuse(Code::NotFound, format!("there is no group {number}"));
        }
        update::Type::Insert | update::Type::Modify => {}
        update::Type::Delete => return Ok(RowChange::Group(number, None)),
        update::Type::Unspecified => return refuse_unspecified(),
    }
    Ok(RowChange::Group(number, Some(group_of(number, group)?)))
}

/// The refusal of clone sessions.
pub fn no_clones<T>() -> Result<T, Refusal> {
    refuse(Code::Unimplemented, "the program clones no packets: there are no clone sessions")
}

fn group_of(number: u32, group: &MulticastGroupEntry) -> Result<MulticastGroup, Refusal> {
    if group.replicas.len() > MAX_REPLICAS || group.metadata.len() > MAX_METADATA {
        return refuse(
            Code::ResourceExhausted,
            format!(
                "group {number}: at most {MAX_REPLICAS} replicas and {MAX_METADATA} bytes of metadata fit"
            ),
        );
    }
    let wrong = |what: String| refuse(Code::InvalidArgument, format!("group {number}: {what}"));
    let mut replicas: Vec<Replica> = Vec::with_capacity(group.replicas.len());
    let mut known = std::collections::BTreeSet::new();
    for replica in &group.replicas {
        let (port, port_bytes) = match &replica.port_kind {
            Some(replica::PortKind::EgressPort(port)) => (*port, None),
            Some(replica::PortKind::Port(bytes)) => match decode(bytes, 32) {
                Some(port) => (port as u32, Some(encode(port))),
                None => return wrong("a port is empty or does not fit 32 bits".to_owned()),
            },
            None => return wrong("a replica has no port".to_owned()),
        };
        let instance = replica.instance;
        if instance > MAX_INSTANCE {
            return wrong(format!("instance {instance} does not fit 16 bits"));
        }
        if !known.insert((port, instance)) {
            return wrong(format!("port {port} has instance {instance} twice"));
        }
        replicas.push(Replica { port, port_bytes, instance });
    }
    Ok(MulticastGroup { replicas, metadata: group.metadata.clone() })
}

/// A row as it is read.
pub fn row_entity(program: &Program, id: u32, key: &Key, entry: &Entry) -> Entity {
    let fields = program.tables.get(&id).map_or(&[][..], |table| &table.fields);
    let matches = fields.iter().zip(key).map(|(field, &value)| FieldMatch {
        field_id: field.id,
        field_match_type: Some(field_match::FieldMatchType::Exact(field_match::Exact {
            value: encode(value),
        })),
    });
    table_entity(program, id, matches.collect(), entry, false)
}

/// A default action as it is read.
pub fn default_entity(program: &Program, id: u32, entry: &Entry) -> Entity {
    table_entity(program, id, Vec::new(), entry, true)
}

fn table_entity(
    program: &Program,
    table_id: u32,
    r#match: Vec<FieldMatch>,
    entry: &Entry,
    is_default_action: bool,
) -> Entity {
    let params = program.actions.get(&entry.action).map_or(&[][..], |action| &action.params);
    let params = params.iter().zip(&entry.params);
    let params = params.map(|(param, &value)| action::Param { param_id: param.id, value: encode(value) });
    let action = Action { action_id: entry.action, params: params.collect() };
    let entry = TableEntry {
        table_id,
        r#match,
        action: Some(TableAction { r#type: Some(table_action::Type::Action(action)) }),
        is_default_action,
        metadata: entry.metadata.clone(),
        controller_metadata: entry.controller_metadata,
        ..TableEntry::default()
    };
    Entity { entity: Some(entity::Entity::TableEntry(entry)) }
}

/// A group as it is read.
pub fn group_entity(number: u32, group: &MulticastGroup) -> Entity {
    let replicas = group.replicas.iter().map(|replica| p4runtime_proto::v1::Replica {
        port_kind: Some(match &replica.port_bytes {
            Some(bytes) => replica::PortKind::Port(bytes.clone()),
            None => replica::PortKind::EgressPort(replica.port),
        }),
        instance: replica.instance,
    });
    let entry = MulticastGroupEntry {
        multicast_group_id: number,
        replicas: replicas.collect(),
        metadata: group.metadata.clone(),
    };
    let entry = PacketReplicationEngineEntry {
        r#type: Some(packet_replication_engine_entry::Type::MulticastGroupEntry(entry)),
    };
    Entity { entity: Some(entity::Entity::PacketReplicationEngineEntry(entry)) }
}
