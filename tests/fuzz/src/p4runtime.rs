//! P4Runtime's writes: whatever a controller writes, rows that are accepted can be followed by every shard, and a
//! batch that is rolled back changes nothing.

use arbitrary::{Arbitrary, Unstructured};
use p4runtime_proto::bytes::encode;
use p4runtime_proto::config::{self, P4Info};
use p4runtime_proto::v1::{
    Action, CounterEntry, Entity, FieldMatch, MulticastGroupEntry, PacketReplicationEngineEntry, Replica,
    TableAction, TableEntry, Update, WriteRequest, action, entity, field_match,
    packet_replication_engine_entry, replica, table_action, update, write_request,
};
use prost::Message;
use std::sync::OnceLock;
use thc_protocol::aggregator::JobConfig;
use thc_ps::fuzz::Rows;
use tonic::{Code, Status};

/// Bytes that jobs may take: some small ones, or none.
const MEMORY: usize = 4 << 20;

pub fn run(data: &[u8]) {
    let _ = session(&mut Unstructured::new(data));
}

fn program() -> &'static P4Info {
    static PROGRAM: OnceLock<P4Info> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        p4runtime_proto::p4info::parse(include_bytes!("../../../p4/build/thc.p4info.txtpb")).unwrap()
    })
}

fn session(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let rows = Rows::new(if input.ratio(1, 8)? { 0 } else { MEMORY });
    let mut before: Vec<JobConfig> = Vec::new();
    while !input.is_empty() {
        let request = request(input)?;
        let answer = rows.write(&request);
        let code = answer.as_ref().err().map(Status::code);
        assert_ne!(code, Some(Code::Unavailable), "a shard follows all rows that were accepted");
        let shard = rows.aggregator();
        let after: Vec<JobConfig> = shard.jobs().cloned().collect();
        assert!(after.iter().map(|job| job.memory_of_all(1)).sum::<usize>() <= MEMORY);
        for job in &after {
            job.check().unwrap();
            for &table in &job.tables {
                let values = shard.table(table).expect("a job's tables are installed");
                job.check_sum(values).unwrap();
            }
        }
        let rolled_back = request.atomicity() == write_request::Atomicity::RollbackOnError;
        if answer.is_err() && rolled_back {
            assert_eq!(before, after, "a batch that is rolled back changes nothing");
        }
        before = after;
    }
    Ok(())
}

fn request(input: &mut Unstructured<'_>) -> arbitrary::Result<WriteRequest> {
    if input.ratio(1, 10)? {
        // As from the network.
        let bytes = input.bytes(input.len().min(200))?;
        return Ok(WriteRequest::decode(bytes).unwrap_or_default());
    }
    let mut updates = Vec::new();
    for _ in 0..input.int_in_range(0..=12)? {
        let mut update = Update { entity: Some(entity(input)?), ..Update::default() };
        update.set_type(match input.int_in_range(0..=9u8)? {
            0 => update::Type::Unspecified,
            1 | 2 => update::Type::Modify,
            3 => update::Type::Delete,
            _ => update::Type::Insert,
        });
        updates.push(update);
    }
    let mut request = WriteRequest { updates, ..WriteRequest::default() };
    request.set_atomicity(match input.int_in_range(0..=7u8)? {
        0 => write_request::Atomicity::DataplaneAtomic,
        1..=3 => write_request::Atomicity::RollbackOnError,
        _ => write_request::Atomicity::ContinueOnError,
    });
    Ok(request)
}

fn entity(input: &mut Unstructured<'_>) -> arbitrary::Result<Entity> {
    let entity = match input.int_in_range(0..=19u8)? {
        0 => {
            let bytes = input.bytes(input.len().min(40))?;
            return Ok(Entity::decode(bytes).unwrap_or_default());
        }
        1 => {
            let counter = input.choose(&program().counters)?;
            entity::Entity::CounterEntry(CounterEntry { counter_id: counter.id(), ..CounterEntry::default() })
        }
        2..=4 => {
            let mut replicas = Vec::new();
            for _ in 0..input.int_in_range(0..=4)? {
                let port_kind = Some(replica::PortKind::EgressPort(input.int_in_range(0..=3)?));
                replicas.push(Replica { port_kind, instance: small(input)? as u32 });
            }
            let group = MulticastGroupEntry {
                multicast_group_id: input.int_in_range(0..=3)?,
                replicas,
                ..MulticastGroupEntry::default()
            };
            let kind = packet_replication_engine_entry::Type::MulticastGroupEntry(group);
            entity::Entity::PacketReplicationEngineEntry(PacketReplicationEngineEntry { r#type: Some(kind) })
        }
        _ => entity::Entity::TableEntry(row(input)?),
    };
    Ok(Entity { entity: Some(entity) })
}

/// A row of some table, mostly one that makes sense.
fn row(input: &mut Unstructured<'_>) -> arbitrary::Result<TableEntry> {
    // Those that jobs are made of, mostly.
    let known = &program().tables;
    let table = match input.int_in_range(0..=9u8)? {
        0 => input.choose(known)?,
        number => &known[usize::from(number) % 4],
    };
    let mut fields = Vec::new();
    for field in &table.match_fields {
        let exact = field_match::Exact { value: number(input, field.bitwidth, field_value)? };
        fields.push(FieldMatch {
            field_id: field.id,
            field_match_type: Some(field_match::FieldMatchType::Exact(exact)),
        });
    }
    let reference = input.choose(&table.action_refs)?;
    let reference = if input.ratio(1, 20)? { reference } else { &table.action_refs[0] };
    let known = program().actions.iter().find(|action| action.id() == reference.id);
    let mut params = Vec::new();
    for param in known.map_or(&[][..], |action: &config::Action| &action.params) {
        let value = |input: &mut Unstructured<'_>| param_value(input, &param.name);
        params.push(action::Param { param_id: param.id, value: number(input, param.bitwidth, value)? });
    }
    let action = Action { action_id: reference.id, params };
    Ok(TableEntry {
        table_id: table.id(),
        r#match: fields,
        action: Some(TableAction { r#type: Some(table_action::Type::Action(action)) }),
        is_default_action: input.ratio(1, 50)?,
        priority: i32::from(input.ratio(1, 50)?),
        ..TableEntry::default()
    })
}

/// A number as P4Runtime writes it, mostly one that fits.
fn number(
    input: &mut Unstructured<'_>,
    bits: i32,
    value: impl Fn(&mut Unstructured<'_>) -> arbitrary::Result<u128>,
) -> arbitrary::Result<Vec<u8>> {
    let value = value(input)?;
    if input.ratio(1, 40)? {
        return Ok(input.bytes(input.len().min(3))?.to_vec());
    }
    Ok(encode(if bits >= 128 { value } else { value & ((1 << bits) - 1) }))
}

fn small(input: &mut Unstructured<'_>) -> arbitrary::Result<u128> {
    if input.ratio(1, 16)? { u128::arbitrary(input) } else { input.int_in_range(0..=3u128) }
}

fn field_value(input: &mut Unstructured<'_>) -> arbitrary::Result<u128> {
    if input.ratio(1, 16)? { Ok(0x21) } else { small(input) }
}

fn param_value(input: &mut Unstructured<'_>, name: &str) -> arbitrary::Result<u128> {
    if input.ratio(1, 16)? {
        return u128::arbitrary(input);
    }
    Ok(match name {
        "workers" => input.int_in_range(1..=4)?,
        "quorum" => input.int_in_range(1..=3)?,
        "data_slots" | "norm_slots" => 2 << input.int_in_range(0..=4u128)?,
        "values" => {
            // Steps between values, often none that break P6.
            let mut value = 0u8;
            let mut values = [0; 16];
            let count = 1 << input.int_in_range(1..=4u8)?;
            for place in values.iter_mut().take(count).skip(1) {
                value = value.wrapping_add(input.int_in_range(0..=9)?);
                *place = value;
            }
            if input.ratio(1, 8)? {
                values[0] = 1;
            }
            u128::from_be_bytes(values)
        }
        "width" => *input.choose(&[4, 4, 1, 2, 3, 8, 5])?,
        "lane" => *input.choose(&[8, 8, 4, 16, 2])?,
        _ => small(input)?,
    })
}
