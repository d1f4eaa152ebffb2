//! From names to the numbers of a P4Info, and rows to entries.

use crate::error::ControllerError;
use crate::tables::Row;
use p4runtime_proto::bytes::encode;
use p4runtime_proto::config::P4Info;
use p4runtime_proto::p4info::P4InfoError;
use p4runtime_proto::v1::{Action, FieldMatch, TableAction, TableEntry, action, field_match, table_action};

/// A P4Info with what the controller looks up in it.
#[derive(Clone, Debug)]
pub struct Schema {
    info: P4Info,
}

impl Schema {
    /// Of this program.
    #[must_use]
    pub fn new(info: P4Info) -> Schema {
        Schema { info }
    }

    /// The program's P4Info.
    #[must_use]
    pub fn info(&self) -> &P4Info {
        &self.info
    }

    /// The number of a table.
    ///
    /// # Errors
    /// [`P4InfoError::Missing`].
    pub fn table(&self, name: &str) -> Result<u32, P4InfoError> {
        Ok(self.info.table(name)?.id())
    }

    /// A row as an entry. One without a key is the table's default.
    ///
    /// # Errors
    /// [`ControllerError::P4Info`] if the program has no such table, field, action or parameter.
    pub fn entry<R: Row>(&self, row: &R) -> Result<TableEntry, ControllerError> {
        let table = self.info.table(R::TABLE)?;
        let missing = |kind, name: &str| P4InfoError::Missing { kind, name: format!("{}.{name}", R::TABLE) };
        let key = row.key();
        let is_default_action = key.is_empty();
        let mut fields = Vec::with_capacity(key.len());
        for (name, value) in key {
            let field = table.match_fields.iter().find(|field| field.name == name);
            let field_id = field.ok_or_else(|| missing("field", name))?.id;
            let exact = field_match::Exact { value: encode(value) };
            fields.push(FieldMatch {
                field_id,
                field_match_type: Some(field_match::FieldMatchType::Exact(exact)),
            });
        }
        let (name, values) = row.action();
        let found = self.info.action(name)?;
        let mut params = Vec::with_capacity(values.len());
        for (name, value) in values {
            let param = found.params.iter().find(|param| param.name == name);
            let param_id = param.ok_or_else(|| missing("parameter", name))?.id;
            params.push(action::Param { param_id, value: encode(value) });
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::tables::{Job, JobTable, Lookup, Station, StationAction};
    use p4runtime_proto::p4info;
    use thc_protocol::wire::Form;

    fn schema() -> Schema {
        Schema::new(p4info::parse(include_bytes!("../../../p4/build/thc.p4info.txtpb")).unwrap())
    }

    #[test]
    fn rows_become_entries_with_the_programs_numbers() {
        let schema = schema();
        let entry = schema.entry(&JobTable { job: 258, table: 0 }).unwrap();
        assert_eq!(entry.table_id >> 24, 2);
        let values: Vec<_> =
            entry.r#match.iter().map(|field| field.field_match_type.clone().unwrap()).collect();
        let exact =
            |value: &[u8]| field_match::FieldMatchType::Exact(field_match::Exact { value: value.to_vec() });
        assert_eq!(values, [exact(&[1, 2]), exact(&[0])]);
        assert!(!entry.is_default_action);

        let entry = schema.entry(&Station { mac: None, action: StationAction::Flood(100) }).unwrap();
        assert!(entry.is_default_action && entry.r#match.is_empty());
    }

    #[test]
    fn every_parameter_of_an_action_is_given() {
        let schema = schema();
        let job = Job {
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

        let entry = schema.entry(&Lookup { table: 1, values: [0; 16], form: Form::USUAL }).unwrap();
        let Some(table_action::Type::Action(action)) = entry.action.unwrap().r#type else {
            panic!("no action");
        };
        assert_eq!(action.params[0].value, [0]);
    }

    #[test]
    fn a_program_without_the_table_is_named() {
        let error = Schema::new(P4Info::default()).entry(&JobTable { job: 1, table: 0 }).unwrap_err();
        assert!(error.to_string().contains("job_tables"), "{error}");
    }
}
