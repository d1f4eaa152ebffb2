//! Rows with the names of a program, and how those that a target holds differ from those that were written.

use crate::error::ControllerError;
use crate::schema::Schema;
use crate::switch_rows::{Copies, SwitchRows};
use p4runtime_proto::bytes::decode;
use p4runtime_proto::v1::{TableEntry, field_match, table_action};
use thc_control_proto::v1;

/// What group rows are shown as.
const GROUPS: &str = "multicast group";

fn number(value: &[u8]) -> String {
    decode(value, 128).map_or_else(|| format!("{value:02x?}"), |value| value.to_string())
}

/// A row by its names; what the program has no name for by its number.
fn describe_row(entry: &TableEntry, schema: &Schema) -> v1::Row {
    let info = schema.info();
    let table = info.tables.iter().find(|table| table.id() == entry.table_id);
    let alias = table.and_then(|table| table.preamble.as_ref()).map(|preamble| preamble.alias.clone());
    let key = entry.r#match.iter().map(|field| {
        let known = table.and_then(|table| table.match_fields.iter().find(|f| f.id == field.field_id));
        let name = known.map_or_else(|| field.field_id.to_string(), |field| field.name.clone());
        match &field.field_match_type {
            Some(field_match::FieldMatchType::Exact(exact)) => format!("{name}={}", number(&exact.value)),
            _ => name,
        }
    });
    let key = key.collect::<Vec<_>>().join(" ");
    let action = match entry.action.as_ref().and_then(|action| action.r#type.as_ref()) {
        Some(table_action::Type::Action(action)) => {
            let known = info.actions.iter().find(|known| known.id() == action.action_id);
            let params = action.params.iter().map(|param| {
                let known = known.and_then(|known| known.params.iter().find(|p| p.id == param.param_id));
                let name = known.map_or_else(|| param.param_id.to_string(), |param| param.name.clone());
                // Whoever has the cookie can send in a member's name.
                let value = if name == "cookie" { "hidden".to_owned() } else { number(&param.value) };
                format!("{name}={value}")
            });
            let params = params.collect::<Vec<_>>().join(", ");
            let alias = known.and_then(|known| known.preamble.as_ref()).map(|p| p.alias.clone());
            format!("{}({params})", alias.unwrap_or_else(|| action.action_id.to_string()))
        }
        _ => String::new(),
    };
    v1::Row {
        table: alias.unwrap_or_else(|| entry.table_id.to_string()),
        key: if entry.is_default_action { "default".to_owned() } else { key },
        action,
    }
}

fn group_row(number: u32, group: &Copies) -> v1::Row {
    let copies = group.0.iter().map(|(port, instance)| format!("{port}/{instance}"));
    v1::Row {
        table: GROUPS.to_owned(),
        key: number.to_string(),
        action: format!("copies({})", copies.collect::<Vec<_>>().join(", ")),
    }
}

/// All rows and groups.
#[must_use]
pub fn rows(actual: &SwitchRows, schema: &Schema) -> Vec<v1::Row> {
    let rows = actual.all_entries().map(|entry| describe_row(entry, schema));
    rows.chain(actual.groups().map(|(number, group)| group_row(number, group))).collect()
}

/// How `actual` differs from what was `written`: rows that are missing, that another has added, and that
/// another has changed.
///
/// # Errors
/// [`ControllerError::P4Info`] if the program has no jobs.
pub fn differences(
    written: &SwitchRows,
    actual: &SwitchRows,
    schema: &Schema,
) -> Result<Vec<v1::Difference>, ControllerError> {
    let of = |kind: &str, row: v1::Row, desired: String| v1::Difference {
        kind: kind.to_owned(),
        row: Some(row),
        desired,
    };
    let mut found = Vec::new();
    for (mine, theirs) in written.different_entries(actual, schema)? {
        found.extend(match (mine, theirs) {
            (Some(mine), None) => Some(of("missing", describe_row(&mine, schema), String::new())),
            (None, Some(theirs)) => Some(of("foreign", describe_row(&theirs, schema), String::new())),
            (Some(mine), Some(theirs)) => {
                Some(of("changed", describe_row(&theirs, schema), describe_row(&mine, schema).action))
            }
            (None, None) => None,
        });
    }
    for (number, (mine, theirs)) in written.different_groups(actual, schema)? {
        found.extend(match (mine, theirs) {
            (Some(mine), None) => Some(of("missing", group_row(number, mine), String::new())),
            (None, Some(theirs)) => Some(of("foreign", group_row(number, theirs), String::new())),
            (Some(mine), Some(theirs)) => {
                Some(of("changed", group_row(number, theirs), group_row(number, mine).action))
            }
            (None, None) => None,
        });
    }
    Ok(found)
}

/// A difference in a line.
#[must_use]
pub fn line(difference: &v1::Difference) -> String {
    let row = difference.row.clone().unwrap_or_default();
    let desired = match difference.desired.as_str() {
        "" => String::new(),
        desired => format!(" instead of {desired}"),
    };
    format!("{} {} [{}] {}{desired}", difference.kind, row.table, row.key, row.action)
}
