//! How the rows that a target holds differ from those that were written, as text.

use crate::error::ControllerError;
use crate::schema::Schema;
use crate::switch_rows::{Copies, SwitchRows, differing};
use p4runtime_proto::bytes::decode;
use p4runtime_proto::v1::{TableEntry, field_match, table_action};

/// A row as text: the table with the row's key, and the action.
type RowText = (String, String);

fn number(value: &[u8]) -> String {
    decode(value, 128).map_or_else(|| format!("{value:02x?}"), |value| value.to_string())
}

/// A row by its names; what the program has no name for by its number.
fn row_text(entry: &TableEntry, schema: &Schema) -> RowText {
    let info = schema.info();
    let table = info.tables.iter().find(|table| table.id() == entry.table_id);
    let alias = table.and_then(|table| table.preamble.as_ref()).map(|preamble| preamble.alias.clone());
    let alias = alias.unwrap_or_else(|| entry.table_id.to_string());
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
                // A process that knows the cookie can send as a member.
                let value = if name == "cookie" { "hidden".to_owned() } else { number(&param.value) };
                format!("{name}={value}")
            });
            let params = params.collect::<Vec<_>>().join(", ");
            let alias = known.and_then(|known| known.preamble.as_ref()).map(|p| p.alias.clone());
            format!("{}({params})", alias.unwrap_or_else(|| action.action_id.to_string()))
        }
        _ => String::new(),
    };
    (format!("{alias} [{}]", if entry.is_default_action { "default" } else { &key }), action)
}

fn group_text(number: u32, group: &Copies) -> RowText {
    let copies = group.0.iter().map(|(port, instance)| format!("{port}/{instance}"));
    (format!("multicast group [{number}]"), format!("copies({})", copies.collect::<Vec<_>>().join(", ")))
}

/// A line for each row that `actual` lacks of what was `written`, has beside it, or has with another action.
pub fn differences(
    written: &SwitchRows,
    actual: &SwitchRows,
    schema: &Schema,
) -> Result<Vec<String>, ControllerError> {
    let (mine, theirs) = written.entries_beside(actual, schema)?;
    let entries = differing(&mine, &theirs).map(|(_, mine, theirs)| (mine, theirs));
    let defaults = differing(&written.defaults, &actual.defaults).map(|(_, mine, theirs)| (mine, theirs));
    let text = |entry: &TableEntry| row_text(entry, schema);
    let rows = entries
        .chain(defaults.filter(|(mine, _)| mine.is_some()))
        .filter_map(|(mine, theirs)| line(mine.map(text), theirs.map(text)));
    let groups = written.differing_groups(actual, schema)?.filter_map(|(&number, mine, theirs)| {
        let text = |group: &Copies| group_text(number, group);
        line(mine.map(text), theirs.map(text))
    });
    Ok(rows.chain(groups).collect())
}

fn line(mine: Option<RowText>, theirs: Option<RowText>) -> Option<String> {
    Some(match (mine, theirs) {
        (Some((row, action)), None) => format!("missing {row} {action}"),
        (None, Some((row, action))) => format!("foreign {row} {action}"),
        (Some((row, written)), Some((_, action))) => format!("changed {row} {action} instead of {written}"),
        (None, None) => return None,
    })
}
