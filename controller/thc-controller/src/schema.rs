//! From names to the numbers of a P4Info, and rows to entries.

use crate::error::ControllerError;
use p4runtime_proto::bytes::{decode, encode};
use p4runtime_proto::config::{DirectMeter, P4Info, Table};
use p4runtime_proto::p4info::P4InfoError;
use p4runtime_proto::v1::{
    Action, FieldMatch, MeterConfig, PacketMetadata, TableAction, TableEntry, action, field_match,
    table_action,
};
use thc_p4::rows::{LookupBytes, Row};

/// Tables in which this controller writes rows, whatever the program, beside lookup tables.
const WRITTEN: [&str; 14] = [
    "own_address",
    "own_arp",
    "stations",
    "control_plane",
    "control_ports",
    "passes",
    "source",
    "loopback_ports",
    "jobs",
    "members",
    "addresses",
    "job_tables",
    "racks",
    "roots",
];

/// The burst that a meter lets pass, as a share of what it lets pass in a second, and its least value.
const BURSTS_A_SECOND: u32 = 10;
const LEAST_BURST: u32 = 64;

/// A meter of one rate, in packets a second: what exceeds it is red.
fn meter(rate: u32) -> MeterConfig {
    let (rate, burst) = (i64::from(rate), i64::from((rate / BURSTS_A_SECOND).max(LEAST_BURST)));
    MeterConfig { cir: rate, cburst: burst, pir: rate, pburst: burst }
}

/// A P4Info with what the controller looks up in it.
#[derive(Clone, Debug)]
pub struct Schema {
    info: P4Info,
}

impl Schema {
    /// The schema of this program.
    pub fn new(info: P4Info) -> Schema {
        Schema { info }
    }

    /// The program's P4Info.
    pub fn info(&self) -> &P4Info {
        &self.info
    }

    /// Returns whether a switch's program has the same tables, actions and counters, by the same numbers.
    pub fn has_tables_of(&self, other: &P4Info) -> bool {
        fn plain(info: &P4Info) -> P4Info {
            let mut info = info.clone();
            let preambles = info.tables.iter_mut().map(|table| &mut table.preamble);
            let preambles = preambles.chain(info.actions.iter_mut().map(|action| &mut action.preamble));
            let preambles = preambles.chain(info.counters.iter_mut().map(|counter| &mut counter.preamble));
            // A switch describes itself in annotations.
            preambles.flatten().for_each(|preamble| preamble.annotations.clear());
            info
        }
        let (own, other) = (plain(&self.info), plain(other));
        (own.tables, own.actions, own.counters) == (other.tables, other.actions, other.counters)
    }

    /// The number of a table.
    pub fn table(&self, name: &str) -> Result<u32, P4InfoError> {
        Ok(self.info.table(name)?.id())
    }

    /// The tables into which lookup tables are written: `lookup`, or those of bytes of indices.
    pub fn lookups(&self) -> impl Iterator<Item = &Table> {
        let alias = |table: &Table| table.preamble.as_ref().is_some_and(|p| p.alias.starts_with("lookup"));
        self.info.tables.iter().filter(move |table| alias(table))
    }

    /// The tables that this controller writes. Other tables, such as constant ones, belong to nobody or to
    /// another program.
    pub fn written_tables(&self) -> impl Iterator<Item = u32> {
        WRITTEN.iter().filter_map(|name| self.table(name).ok()).chain(self.lookups().map(Table::id))
    }

    /// Returns whether each row of a table has a meter of its own.
    pub fn has_meters(&self, table: u32) -> bool {
        let of_table = |meter: &DirectMeter| meter.direct_table_id == table;
        self.info.direct_meters.iter().any(of_table)
    }

    /// The port that a packet for the control plane came by, where the program says.
    pub fn ingress_port(&self, metadata: &[PacketMetadata]) -> Option<u16> {
        let mut headers = self.info.controller_packet_metadata.iter();
        let header =
            headers.find(|header| header.preamble.as_ref().is_some_and(|p| p.name == "packet_in"))?;
        let id = header.metadata.iter().find(|field| field.name == "ingress_port")?.id;
        let field = metadata.iter().find(|field| field.metadata_id == id)?;
        Some(decode(&field.value, 16)? as u16)
    }

    /// The parameter of this name in an entry's action.
    pub fn param<'a>(&self, entry: &'a TableEntry, name: &str) -> Option<&'a [u8]> {
        let Some(table_action::Type::Action(action)) = &entry.action.as_ref()?.r#type else { return None };
        let known = self.info.actions.iter().find(|known| known.id() == action.action_id)?;
        let id = known.params.iter().find(|param| param.name == name)?.id;
        action.params.iter().find(|param| param.param_id == id).map(|param| param.value.as_slice())
    }

    /// A row as an entry. One without a key is the table's default.
    pub fn entry<R: Row>(&self, row: &R) -> Result<TableEntry, ControllerError> {
        let entry = self.entry_of(R::TABLE, &row.key(), row.action())?;
        Ok(TableEntry { meter_config: row.rate().map(meter), ..entry })
    }

    /// [`Self::entry`] for a table whose name depends on the program.
    pub fn entry_of(
        &self,
        name: &str,
        key: &[(&'static str, u128)],
        (action, values): (&str, Vec<(&'static str, u128)>),
    ) -> Result<TableEntry, ControllerError> {
        let table = self.info.table(name)?;
        let missing = |kind, field: &str| P4InfoError::Missing { kind, name: format!("{name}.{field}") };
        let unknown = |field: &str| P4InfoError::Unknown { table: name.to_owned(), field: field.to_owned() };
        let fits = |field: &str, value: u128, bits: i32| {
            // A width of 0 is none: the program's type has no bits of its own.
            let wide = u32::try_from(bits).is_ok_and(|bits| bits > 0 && bits < 128 && value >> bits != 0);
            let narrow =
                || P4InfoError::Narrow { table: name.to_owned(), field: field.to_owned(), value, bits };
            if wide { Err(narrow()) } else { Ok(encode(value)) }
        };
        let is_default_action = key.is_empty();
        let mut fields = Vec::with_capacity(key.len());
        for &(name, value) in key {
            let field = table.match_fields.iter().find(|field| field.name == name);
            let field = field.ok_or_else(|| missing("field", name))?;
            let exact = field_match::Exact { value: fits(name, value, field.bitwidth)? };
            fields.push(FieldMatch {
                field_id: field.id,
                field_match_type: Some(field_match::FieldMatchType::Exact(exact)),
            });
        }
        let more = table.match_fields.iter().find(|field| !key.iter().any(|(name, _)| *name == field.name));
        if let Some(field) = more.filter(|_| !is_default_action) {
            return Err(unknown(&field.name).into());
        }
        let found = self.info.action(action)?;
        if let Some(param) = found.params.iter().find(|p| !values.iter().any(|(name, _)| *name == p.name)) {
            return Err(unknown(&param.name).into());
        }
        let mut params = Vec::with_capacity(values.len());
        for (name, value) in values {
            let param = found.params.iter().find(|param| param.name == name);
            let param = param.ok_or_else(|| missing("parameter", name))?;
            params.push(action::Param { param_id: param.id, value: fits(name, value, param.bitwidth)? });
        }
        let action = Action { action_id: found.id(), params };
        Ok(TableEntry {
            table_id: table.id(),
            r#match: fields,
            action: Some(TableAction { r#type: Some(table_action::Type::Action(action)) }),
            is_default_action,
            ..TableEntry::default()
        })
    }
}

impl Schema {
    /// The rows of a lookup table, an entry for each byte in each of the tables: tens of thousands.
    pub fn lookup_entries(&self, lookup: &LookupBytes) -> Result<Vec<TableEntry>, ControllerError> {
        let mut entries = Vec::new();
        for table in self.lookups() {
            let name = table.preamble.as_ref().map_or("", |preamble| &preamble.alias);
            entries.append(&mut self.lookup_entries_of(name, lookup)?);
        }
        Ok(entries)
    }

    fn lookup_entries_of(
        &self,
        table: &str,
        lookup: &LookupBytes,
    ) -> Result<Vec<TableEntry>, ControllerError> {
        let action = table.replacen("lookup", "set", 1);
        let key = [("lookup", lookup.number.into()), ("indices", u8::MAX.into())];
        // Names are looked up for one of them.
        let last = self.entry_of(table, &key, (&action, vec![("values", lookup.lanes(u8::MAX))]))?;
        let row = |byte: u8| {
            let mut entry = last.clone();
            if let Some(field_match::FieldMatchType::Exact(exact)) =
                entry.r#match.last_mut().and_then(|field| field.field_match_type.as_mut())
            {
                exact.value = encode(byte.into());
            }
            if let Some(table_action::Type::Action(action)) =
                entry.action.as_mut().and_then(|action| action.r#type.as_mut())
            {
                action.params.iter_mut().for_each(|param| param.value = encode(lookup.lanes(byte)));
            }
            entry
        };
        Ok((0..=u8::MAX).map(row).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use p4runtime_proto::p4info;
    use thc_p4::rows::{JobRow, JobTableRow, LookupRow, StationAction, StationRow};
    use thc_protocol::wire::Form;

    fn schema() -> Schema {
        Schema::new(p4info::parse(include_bytes!("../../../p4/build/thc.p4info.txtpb")).unwrap())
    }

    #[test]
    fn rows_become_entries_with_the_programs_numbers() {
        let schema = schema();
        let entry = schema.entry(&JobTableRow { job: 258, table: 0, on_chip: None }).unwrap();
        assert_eq!(entry.table_id >> 24, 2);
        let values: Vec<_> =
            entry.r#match.iter().map(|field| field.field_match_type.clone().unwrap()).collect();
        let exact =
            |value: &[u8]| field_match::FieldMatchType::Exact(field_match::Exact { value: value.to_vec() });
        assert_eq!(values, [exact(&[1, 2]), exact(&[0])]);
        assert!(!entry.is_default_action);

        let entry = schema.entry(&StationRow { mac: None, action: StationAction::Flood(100) }).unwrap();
        assert!(entry.is_default_action && entry.r#match.is_empty());
    }

    #[test]
    fn every_parameter_of_an_action_is_given() {
        let schema = schema();
        let job = JobRow {
            job: 1,
            index: 2,
            cookie: 3,
            epoch: 4,
            workers: 5,
            quorum: 6,
            skip: true,
            data_base: 7,
            data_slots: 8,
            norm_base: 9,
            norm_slots: 10,
            group: 11,
        };
        let entry = schema.entry(&job).unwrap();
        let Some(table_action::Type::Action(action)) = entry.action.unwrap().r#type else {
            panic!("no action");
        };
        let wanted = &schema.info().action("set_job").unwrap().params;
        assert!(action.params.iter().map(|p| p.param_id).eq(wanted.iter().map(|p| p.id)));

        let entry = schema.entry(&LookupRow { table: 1, values: [0; 16], form: Form::USUAL }).unwrap();
        let Some(table_action::Type::Action(action)) = entry.action.unwrap().r#type else {
            panic!("no action");
        };
        assert_eq!(action.params[0].value, [0]);
    }

    #[test]
    fn a_program_without_the_table_is_named() {
        let error = Schema::new(P4Info::default())
            .entry(&JobTableRow { job: 1, table: 0, on_chip: None })
            .unwrap_err();
        assert!(error.to_string().contains("job_tables"), "{error}");
    }
}
