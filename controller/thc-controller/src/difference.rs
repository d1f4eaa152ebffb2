//! Rows with the names of a program, and how those that a target holds differ from those that were written.

use crate::error::ControllerError;
use crate::schema::Schema;
use crate::switch_rows::{Copies, SwitchRows, differing};
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
pub fn rows(actual: &SwitchRows, schema: &Schema) -> Vec<v1::Row> {
    let entries = actual.entries.values().chain(actual.defaults.values());
    let rows = entries.map(|entry| describe_row(entry, schema));
    rows.chain(actual.groups.iter().map(|(&number, group)| group_row(number, group))).collect()
}

/// How `actual` differs from what was `written`: rows that are missing, that another has added, and that
/// another has changed.
pub fn differences(
    written: &SwitchRows,
    actual: &SwitchRows,
    schema: &Schema,
) -> Result<Vec<v1::Difference>, ControllerError> {
    let (mine, theirs) = written.entries_beside(actual, schema)?;
    let entries = differing(&mine, &theirs).map(|(_, mine, theirs)| (mine, theirs));
    let defaults = differing(&written.defaults, &actual.defaults).map(|(_, mine, theirs)| (mine, theirs));
    let describe = |entry: &TableEntry| describe_row(entry, schema);
    let rows = entries
        .chain(defaults.filter(|(mine, _)| mine.is_some()))
        .filter_map(|(mine, theirs)| difference(mine.map(describe), theirs.map(describe)));
    let groups = written.differing_groups(actual, schema)?.filter_map(|(&number, mine, theirs)| {
        let describe = |group: &Copies| group_row(number, group);
        difference(mine.map(describe), theirs.map(describe))
    });
    Ok(rows.chain(groups).collect())
}

fn difference(mine: Option<v1::Row>, theirs: Option<v1::Row>) -> Option<v1::Difference> {
    let (kind, row, desired) = match (mine, theirs) {
        (Some(mine), None) => ("missing", mine, String::new()),
        (None, Some(theirs)) => ("foreign", theirs, String::new()),
        (Some(mine), Some(theirs)) => ("changed", theirs, mine.action),
        (None, None) => return None,
    };
    Some(v1::Difference { kind: kind.to_owned(), row: Some(row), desired })
}

/// A difference in a line.
pub fn line(difference: &v1::Difference) -> String {
    let row = difference.row.clone().unwrap_or_default();
    let desired = match difference.desired.as_str() {
        "" => String::new(),
        desired => format!(" instead of {desired}"),
    };
    format!("{} {} [{}] {}{desired}", difference.kind, row.table, row.key, row.action)
}
