//! A table of measurements.

use serde_json::{Map, Value};

use crate::table::{Table, short};

/// A table with a number in each cell.
#[derive(Debug, PartialEq)]
pub struct Sheet {
    /// Its key in the JSON file.
    pub name: &'static str,
    /// The title in its first cell.
    pub title: &'static str,
    /// Titles of its columns.
    pub columns: &'static [&'static str],
    /// Rows: a label, and a number for each column.
    pub rows: Vec<(String, Vec<f64>)>,
}

impl Sheet {
    /// Rows by label, each an object with the columns as keys.
    pub fn json(&self) -> Value {
        let row = |values: &[f64]| -> Map<String, Value> {
            self.columns
                .iter()
                .zip(values)
                .map(|(column, value)| ((*column).to_owned(), (*value).into()))
                .collect()
        };
        let rows = self.rows.iter().map(|(label, values)| (label.clone(), row(values).into()));
        Value::Object(rows.collect())
    }

    /// The table as Markdown.
    pub fn text(&self) -> String {
        let header: Vec<&str> = [self.title].into_iter().chain(self.columns.iter().copied()).collect();
        let row = |(label, values): &(String, Vec<f64>)| {
            [label.clone()].into_iter().chain(values.iter().map(|value| short(*value))).collect::<Vec<_>>()
        };
        Table::new(&header, self.rows.iter().map(row)).to_markdown() + "\n"
    }
}
