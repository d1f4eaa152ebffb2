//! Aligned columns: names to the left, numbers to the right.

use std::fmt;

/// Where a column's text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Names.
    Left,
    /// Numbers.
    Right,
}

/// A table as text: a line of headings, and rows.
#[derive(Debug)]
pub struct Grid {
    columns: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// With these headings; one that begins with `>` is over numbers.
    pub fn new(headings: &[&'static str]) -> Grid {
        let column = |heading: &&'static str| match heading.strip_prefix('>') {
            Some(heading) => (heading, Side::Right),
            None => (*heading, Side::Left),
        };
        Grid { columns: headings.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row; an empty cell shows as `-`.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
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

fn visible_text(cell: &str) -> &str {
    if cell.is_empty() { "-" } else { cell }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                let widest = cells.map(|cell| visible_text(cell).chars().count()).max().unwrap_or(0);
                widest.max(self.columns[column].0.chars().count())
            })
            .collect();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut text = String::new();
            for ((cell, width), (_, side)) in cells.zip(&widths).zip(&self.columns) {
                let cell = match side {
                    Side::Left => format!("{cell:<width$}  "),
                    Side::Right => format!("{cell:>width$}  "),
                };
                text += &cell;
            }
            writeln!(f, "{}", text.trim_end())
        };
        line(&mut self.columns.iter().map(|(heading, _)| *heading))?;
        self.rows.iter().try_for_each(|row| line(&mut row.iter().map(|cell| visible_text(cell))))
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
