//! Aligned columns: names to the left, numbers to the right.

use comfy_table::{CellAlignment, Table, presets};
use std::fmt;

/// A table as text: a line of headings, and rows.
#[derive(Debug)]
pub struct Grid {
    table: Table,
}

impl Grid {
    /// With these headings; one that begins with `>` is over numbers.
    pub fn new(headings: &[&str]) -> Grid {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(headings.iter().map(|heading| heading.trim_start_matches('>')));
        for (column, heading) in table.column_iter_mut().zip(headings) {
            column.set_padding((0, 2));
            if heading.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Grid { table }
    }

    /// Adds a row; an empty cell shows as `-`.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let visible = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
        self.table.add_row(cells.into_iter().map(visible));
    }

    /// Returns `true` if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.lines().try_for_each(|line| writeln!(f, "{}", line.trim_end()))
    }
}

/// 1/32 stays, 0.006324142369709159 becomes 0.006324.
pub fn short(fraction: &str) -> String {
    match fraction.parse::<f64>() {
        Ok(number) if number > 0.0 => {
            let places = (3 - number.log10().floor() as i32).clamp(0, 12) as usize;
            let text = format!("{number:.places$}");
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        }
        _ => fraction.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_short() {
        for (long, short_one) in [
            ("1/32", "1/32"),
            ("0.006324142369709159", "0.006324"),
            ("0.3", "0.3"),
            ("0.0312500001", "0.03125"),
        ] {
            assert_eq!(short(long), short_one);
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut grid = Grid::new(&["NAME", ">PACKETS", "WHY"]);
        grid.row(["a-long-name".into(), "7".into(), String::new()]);
        grid.row(["é".into(), "123456789".into(), "so".into()]);
        let text = grid.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            ["NAME           PACKETS  WHY", "a-long-name          7  -", "é            123456789  so"]
        );
    }
}
