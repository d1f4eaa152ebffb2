//! Tables of figures.

use comfy_table::{CellAlignment, presets};

/// A table of figures.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Column titles.
    pub header: Vec<String>,
    /// Cells, as many in each row as there are titles.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these titles; each row has as many cells.
    pub fn new(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        Self { header: header.iter().map(ToString::to_string).collect(), rows: rows.into_iter().collect() }
    }

    /// The table as Markdown, the first column to the left and others to the right.
    pub fn to_markdown(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::ASCII_MARKDOWN).set_header(&self.header).add_rows(&self.rows);
        let numbers = table.column_iter_mut().skip(1);
        numbers.for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        table.to_string()
    }
}

/// A number with about three digits, as in tables and next to points.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v < 1e-4 => format!("{value:.1e}"),
        v if v < 0.01 => format!("{value:.5}"),
        v if v < 0.1 => format!("{value:.4}"),
        v if v < 1.0 => format!("{value:.3}"),
        v if v < 100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 2.3e-14, 0.00123, 0.0204, 0.236, 6.95, 146.3].map(short);
        assert_eq!(all, ["0", "2.3e-14", "0.00123", "0.0204", "0.236", "6.95", "146"]);
    }

    #[test]
    fn tables_are_aligned() {
        let table = Table::new(&["scheme", "NMSE"], [vec!["THC".to_owned(), "0.01".to_owned()]]);
        assert_eq!(table.to_markdown(), "| scheme | NMSE |\n|--------|------|\n| THC    | 0.01 |");
    }
}
