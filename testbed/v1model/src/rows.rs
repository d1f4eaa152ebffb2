//! What a controller writes and reads: rows, default actions, multicast groups, counters.

use super::program::{Call, mask};
use super::switch::Switch;
use p4runtime_proto::config::{P4Info, Table};
use p4runtime_proto::v1::{
    CounterData, CounterEntry, FieldMatch, Index, MulticastGroupEntry, PacketReplicationEngineEntry,
    TableEntry, Update, entity::Entity, field_match, packet_replication_engine_entry, replica, table_action,
    update,
};
use tonic::Code;

/// Why an update or a read is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The code of the P4Runtime specification.
    pub code: Code,
    /// What is wrong, with its name.
    pub message: String,
}

fn refuse<T>(code: Code, message: impl Into<String>) -> Result<T, Refused> {
    Err(Refused { code, message: message.into() })
}

/// A number of at most so many bits.
fn number(what: &str, bytes: &[u8], bits: u32) -> Result<u128, Refused> {
    if bytes.is_empty() || bytes.len() > 16 {
        return refuse(
            Code::InvalidArgument,
            format!("{what}: a number has 1 to 16 bytes, not {}", bytes.len()),
        );
    }
    let number = bytes.iter().fold(0, |number, &byte| number << 8 | u128::from(byte));
    if number > mask(bits) {
        return refuse(Code::OutOfRange, format!("{what}: {number} has more than {bits} bits"));
    }
    Ok(number)
}

fn table_of(info: &P4Info, id: u32) -> Result<&Table, Refused> {
    let found = info.tables.iter().find(|table| table.id() == id);
    found.map_or_else(|| refuse(Code::NotFound, format!("no table {id}")), Ok)
}

fn key(table: &Table, given: &[FieldMatch]) -> Result<Vec<u128>, Refused> {
    let value = |field: &p4runtime_proto::config::MatchField| {
        let what = format!("{}.{}", table.name(), field.name);
        let found = given.iter().find(|given| given.field_id == field.id);
        match found.and_then(|given| given.field_match_type.as_ref()) {
            Some(field_match::FieldMatchType::Exact(exact)) => {
                number(&what, &exact.value, field.bitwidth as u32)
            }
            Some(_) => refuse(Code::InvalidArgument, format!("{what} is matched exactly")),
            None => refuse(Code::InvalidArgument, format!("{what} is missing")),
        }
    };
    if given.len() != table.match_fields.len() {
        return refuse(Code::InvalidArgument, format!("{}: other fields than its key", table.name()));
    }
    table.match_fields.iter().map(value).collect()
}

fn as_group(group: &MulticastGroupEntry) -> Entity {
    let r#type = Some(packet_replication_engine_entry::Type::MulticastGroupEntry(group.clone()));
    Entity::PacketReplicationEngineEntry(PacketReplicationEngineEntry { r#type })
}

impl Switch {
    /// Takes one of a controller's updates.
    ///
    /// # Errors
    /// If the program has nothing of the kind, or no room.
    pub fn update(&mut self, update: Update) -> Result<(), Refused> {
        let kind = update.r#type();
        match update.entity.and_then(|entity| entity.entity) {
            _ if kind == update::Type::Unspecified => {
                refuse(Code::InvalidArgument, "an update without a type")
            }
            Some(Entity::TableEntry(entry)) => self.write_entry(kind, entry),
            Some(Entity::PacketReplicationEngineEntry(PacketReplicationEngineEntry {
                r#type: Some(packet_replication_engine_entry::Type::MulticastGroupEntry(group)),
            })) => self.write_group(kind, group),
            other => refuse(Code::Unimplemented, format!("{other:?}")),
        }
    }

    fn write_group(&mut self, kind: update::Type, group: MulticastGroupEntry) -> Result<(), Refused> {
        let number = u128::from(group.multicast_group_id);
        exists(kind, self.state.groups.contains_key(&number), || format!("group {number}"))?;
        if kind == update::Type::Delete {
            self.state.groups.remove(&number);
            return Ok(());
        }
        let copy = |replica: &p4runtime_proto::v1::Replica| match replica.port_kind {
            Some(replica::PortKind::EgressPort(port)) => Ok((port as u16, replica.instance as u16)),
            ref other => {
                refuse(Code::InvalidArgument, format!("group {number}: {other:?} is no port's number"))
            }
        };
        let copies = group.replicas.iter().map(copy).collect::<Result<_, Refused>>()?;
        self.state.groups.insert(number, (copies, group));
        Ok(())
    }

    fn write_entry(&mut self, kind: update::Type, entry: TableEntry) -> Result<(), Refused> {
        let info = table_of(&self.info, entry.table_id)?;
        let (at, name) = (self.table_at(info)?, info.name());
        if entry.is_default_action {
            if kind != update::Type::Modify || info.const_default_action_id != 0 {
                return refuse(
                    Code::PermissionDenied,
                    format!("{name}: its default action cannot be written"),
                );
            }
            self.state.defaults[at] = (self.call(at, name, &entry)?, Some(entry));
            return Ok(());
        }
        let key = key(info, &entry.r#match)?;
        exists(kind, self.state.rows[at].contains_key(&key), || format!("{name}: {key:x?}"))?;
        if kind == update::Type::Delete {
            self.state.rows[at].remove(&key);
            return Ok(());
        }
        let size = self.program.tables[at].size;
        if kind == update::Type::Insert && self.state.rows[at].len() >= size {
            return refuse(Code::ResourceExhausted, format!("{name} has its {size} rows"));
        }
        let call = self.call(at, name, &entry)?;
        self.state.rows[at].insert(key, (call, entry));
        Ok(())
    }

    /// The program's table of the name in the P4Info.
    fn table_at(&self, info: &Table) -> Result<usize, Refused> {
        let at = self.program.tables.iter().position(|table| table.name == info.name());
        at.map_or_else(|| refuse(Code::Internal, format!("the program has no table {}", info.name())), Ok)
    }

    fn call(&self, at: usize, table: &str, entry: &TableEntry) -> Result<Call, Refused> {
        let action = entry.action.as_ref().and_then(|action| action.r#type.as_ref());
        let Some(table_action::Type::Action(action)) = action else {
            return refuse(Code::InvalidArgument, format!("{table}: no action"));
        };
        let Some(known) = self.info.actions.iter().find(|known| known.id() == action.action_id) else {
            return refuse(Code::NotFound, format!("no action {}", action.action_id));
        };
        let name = known.name();
        let mut of_table = self.program.tables[at].actions.iter().copied();
        let Some(called) = of_table.find(|&one| self.program.actions[one].name == name) else {
            return refuse(Code::InvalidArgument, format!("{table} has no action {name}"));
        };
        let argument = |(parameter, bits): &(String, u32)| {
            let id = known.params.iter().find(|known| known.name == *parameter).map(|known| known.id);
            match action.params.iter().find(|given| Some(given.param_id) == id) {
                Some(given) => number(&format!("{name}.{parameter}"), &given.value, *bits),
                None => refuse(Code::InvalidArgument, format!("{name}: no {parameter}")),
            }
        };
        let arguments = self.program.actions[called].parameters.iter().map(argument);
        Ok((called, arguments.collect::<Result<_, Refused>>()?))
    }

    /// What the switch has of what is asked for.
    ///
    /// # Errors
    /// If the program has nothing of the kind.
    pub fn read(&self, asked: Entity) -> Result<Vec<Entity>, Refused> {
        Ok(match asked {
            Entity::TableEntry(asked) => {
                if asked.table_id != 0 {
                    table_of(&self.info, asked.table_id)?;
                }
                let wanted = |entry: &&TableEntry| asked.table_id == 0 || entry.table_id == asked.table_id;
                let rows = self.state.rows.iter().flat_map(|rows| rows.values().map(|(_, entry)| entry));
                let defaults = self.state.defaults.iter().filter_map(|(_, entry)| entry.as_ref());
                let entries: Vec<&TableEntry> =
                    if asked.is_default_action { defaults.collect() } else { rows.collect() };
                entries.into_iter().filter(wanted).cloned().map(Entity::TableEntry).collect()
            }
            Entity::PacketReplicationEngineEntry(_) => {
                self.state.groups.values().map(|(_, group)| as_group(group)).collect()
            }
            Entity::CounterEntry(asked) => {
                let Some(known) = self.info.counters.iter().find(|known| known.id() == asked.counter_id)
                else {
                    return refuse(Code::NotFound, format!("no counter {}", asked.counter_id));
                };
                let range = match asked.index {
                    None => 0..known.size,
                    Some(Index { index }) if (0..known.size).contains(&index) => index..index + 1,
                    Some(Index { index }) => {
                        return refuse(Code::OutOfRange, format!("{} has no cell {index}", known.name()));
                    }
                };
                let cell = |index: i64| {
                    let (packets, bytes) = self.counter(known.name(), index as usize);
                    let data = CounterData { packet_count: packets as i64, byte_count: bytes as i64 };
                    let index = Some(Index { index });
                    Entity::CounterEntry(CounterEntry {
                        counter_id: asked.counter_id,
                        index,
                        data: Some(data),
                    })
                };
                range.map(cell).collect()
            }
            other => return refuse(Code::Unimplemented, format!("{other:?}")),
        })
    }
}

/// Refuses an update of what there is, or is not.
fn exists(kind: update::Type, is_there: bool, name: impl Fn() -> String) -> Result<(), Refused> {
    match (kind, is_there) {
        (update::Type::Insert, true) => refuse(Code::AlreadyExists, name()),
        (update::Type::Modify | update::Type::Delete, false) => refuse(Code::NotFound, name()),
        _ => Ok(()),
    }
}
