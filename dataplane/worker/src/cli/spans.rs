//! `--plan`: the spans of tensors, and the form in which each travels.

use std::str::FromStr;
use thc_protocol::TableId;
use thc_protocol::wire::Tables;
use thc_worker::{Choice, Span};

/// One span, as it is written: `2`, `2/8`, `raw`, each with `:COORDINATES` behind it unless it takes the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    as_what: AsWhat,
    /// The number of coordinates; `None` for the rest of the tensor.
    length: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AsWhat {
    Table(TableId),
    /// The job's first table of this form, width/lane.
    Form(String),
    Raw,
}

/// The spans of every tensor; the last takes what the others leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spans(Vec<Piece>);

impl FromStr for Spans {
    type Err = String;

    fn from_str(text: &str) -> Result<Spans, String> {
        let mut pieces: Vec<Piece> = Vec::new();
        for part in text.split(',').map(str::trim) {
            if pieces.last().is_some_and(|piece| piece.length.is_none()) {
                return Err(format!("{part:?} comes behind a span without a length, which takes the rest"));
            }
            let (what, length) = match part.split_once(':') {
                None => (part, None),
                Some((what, length)) => match length.parse() {
                    Ok(1..) => (what, length.parse().ok()),
                    _ => {
                        return Err(format!("{part:?}: behind ':' give a number of coordinates, at least 1"));
                    }
                },
            };
            let as_what = match what.parse() {
                _ if what == "raw" => AsWhat::Raw,
                Ok(id @ 1..) => AsWhat::Table(TableId(id)),
                _ if what.split_once('/').is_some() => AsWhat::Form(what.to_owned()),
                _ => {
                    return Err(format!(
                        "{what:?} is not a table: give its number, 1 to 255, its form such as 2/8, or raw"
                    ));
                }
            };
            pieces.push(Piece { as_what, length });
        }
        Ok(Spans(pieces))
    }
}

impl Spans {
    /// The plan of a tensor of `coordinates` in a job of these tables.
    pub fn plan(&self, coordinates: usize, tables: &Tables) -> Result<Vec<Span>, String> {
        let mut plan = Vec::with_capacity(self.0.len());
        let mut left = coordinates;
        for Piece { as_what, length } in &self.0 {
            let length = length.unwrap_or(left);
            left = left.checked_sub(length).filter(|_| length > 0).ok_or_else(|| {
                format!("plan: its spans reach beyond the {coordinates} coordinates of a tensor; the last may be without a length")
            })?;
            plan.push(Span { length, choice: as_what.choice(tables)? });
        }
        if left > 0 {
            return Err(format!(
                "plan: its spans leave {left} of a tensor's {coordinates} coordinates; leave out the last one's length"
            ));
        }
        Ok(plan)
    }
}

impl AsWhat {
    fn choice(&self, tables: &Tables) -> Result<Choice, String> {
        let found = match self {
            AsWhat::Raw => return Ok(Choice::Raw),
            AsWhat::Table(id) => tables.iter().find(|table| table.id == *id),
            // By its sums as they travel, or as they are added.
            AsWhat::Form(form) => {
                let added =
                    |form: thc_protocol::wire::Form| format!("{}/{}", form.width(), form.lane().bits());
                let exactly = tables.iter().find(|table| table.form.to_string() == *form);
                exactly.or_else(|| tables.iter().find(|table| added(table.form) == *form))
            }
        };
        let named = match self {
            AsWhat::Form(form) => form.clone(),
            AsWhat::Table(id) => id.to_string(),
            AsWhat::Raw => String::new(),
        };
        found.map(|table| Choice::Table(table.id)).ok_or_else(|| {
            let all: Vec<String> =
                tables.iter().map(|table| format!("{} ({})", table.id, table.form)).collect();
            format!("plan: the job has no table {named}: its tables are {}; or choose raw", all.join(", "))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_protocol::Lane;
    use thc_protocol::wire::{Form, Table};

    fn tables() -> Tables {
        let table = |id, width, lane| Table {
            id: TableId(id),
            bits: width,
            form: Form::new(width, lane).unwrap(),
            granularity: 15,
            fraction: 0.1,
            t_p: 1.6,
            values: [0; 16],
        };
        Tables::new(&[table(1, 4, Lane::Bits8), table(9, 2, Lane::Bits4)]).unwrap()
    }

    #[test]
    fn spans_follow_each_other_and_the_last_takes_the_rest() {
        let plan = |text: &str, coordinates| text.parse::<Spans>().unwrap().plan(coordinates, &tables());
        let (four, two) = (Choice::Table(TableId(1)), Choice::Table(TableId(9)));
        assert_eq!(plan("9", 5).unwrap(), [Span { length: 5, choice: two }]);
        assert_eq!(plan("2/4", 5), plan("9", 5));
        let mixed = [(3, four), (4, Choice::Raw), (93, two)].map(|(length, choice)| Span { length, choice });
        assert_eq!(plan("4/8:3, raw:4, 9", 100).unwrap(), mixed);
        assert_eq!(plan("1:3,raw:4,9:93", 100).unwrap(), mixed);
        for (text, said) in [
            ("7", "no table 7: its tables are 1 (4/8), 9 (2/4); or choose raw"),
            ("8/16", "no table 8/16"),
            ("1:101", "reach beyond the 100"),
            ("1:100,9", "reach beyond the 100"),
            ("1:99", "leave 1 of"),
        ] {
            let error = plan(text, 100).unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn what_is_no_plan_is_said() {
        for (text, said) in [
            ("", "not a table"),
            ("0", "not a table"),
            ("256", "not a table"),
            ("four", "not a table"),
            ("1,2", "behind a span without a length"),
            ("1:0", "at least 1"),
            ("1:x", "at least 1"),
        ] {
            let error = text.parse::<Spans>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
