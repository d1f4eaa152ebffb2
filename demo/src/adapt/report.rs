//! The chosen compressions, as a table and as JSON.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// One layer's choice.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The layer's name.
    pub layer: String,
    /// The layer's number of coordinates.
    pub coordinates: usize,
    /// The norm of its gradient, if the input has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm: Option<f64>,
    /// The choice for the layer.
    pub choice: String,
    /// The error of the choice, as a squared L2 norm.
    pub error: f64,
    /// The cost of the choice: bytes up and down, or the profile's unit.
    pub cost: f64,
    /// The layer's share of all costs.
    pub share: f64,
}

/// The choices for all layers.
#[derive(Debug, Serialize)]
pub struct Report {
    /// One row for each layer.
    pub rows: Vec<Row>,
    /// The choice for all layers with which this assignment is compared.
    pub default: Option<String>,
    /// The cost of that choice for all layers.
    pub default_cost: Option<f64>,
    /// The sum of the costs.
    pub cost: f64,
    /// The sum of the errors.
    pub error: f64,
    /// The bound on the sum of the errors.
    pub bound: f64,
    /// A lower bound of the cost of all assignments within the bound.
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
