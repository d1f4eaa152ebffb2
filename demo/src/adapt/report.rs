//! What was chosen, as a table and as JSON.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// One layer's choice.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The layer's name.
    pub layer: String,
    /// Its size.
    pub coordinates: usize,
    /// The norm of its gradient, if it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm: Option<f64>,
    /// What it gets.
    pub choice: String,
    /// What that loses, a squared L2 norm.
    pub error: f64,
    /// What that costs: bytes up and down, or what the profile says.
    pub cost: f64,
    /// Its share of all costs.
    pub share: f64,
}

/// All choices.
#[derive(Debug, Serialize)]
pub struct Report {
    /// One for each layer.
    pub rows: Vec<Row>,
    /// The choice for all that it is compared with.
    pub default: Option<String>,
    /// What that costs.
    pub default_cost: Option<f64>,
    /// Sum of the costs.
    pub cost: f64,
    /// Sum of the errors.
    pub error: f64,
    /// What it may be.
    pub bound: f64,
    /// No choices within the bound cost less.
    pub least_cost: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(["layer", "coordinates", "norm", "choice", "error", "cost", "share"]);
        for row in &self.rows {
            table.add_row([
                row.layer.clone(),
                row.coordinates.to_string(),
                row.norm.map_or_else(String::new, |norm| format!("{norm:.3e}")),
                row.choice.clone(),
                format!("{:.3e}", row.error),
                format!("{:.0}", row.cost),
                format!("{:.1} %", 100.0 * row.share),
            ]);
        }
        for number in [1, 2, 4, 5, 6] {
            if let Some(column) = table.column_mut(number) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for line in table.lines() {
            writeln!(f, "{}", line.strip_prefix(' ').unwrap_or(&line).trim_end())?;
        }
        if let (Some(default), Some(cost)) = (&self.default, self.default_cost) {
            let ratio = if self.cost > 0.0 { cost / self.cost } else { 1.0 };
            writeln!(f, "\ncost {:.0}, with {default} for all {cost:.0}: {ratio:.2} × less", self.cost)?;
        } else {
            writeln!(f, "\ncost {:.0}", self.cost)?;
        }
        let above = if self.least_cost > 0.0 { self.cost / self.least_cost - 1.0 } else { 0.0 };
        write!(
            f,
            "error {:.4e} of {:.4e} allowed; at most {:.3} % above the least possible cost",
            self.error,
            self.bound,
            100.0 * above.max(0.0)
        )
    }
}
