//! What `thc papers` computes without a training: a table by arithmetic or by simulation.

use serde::{Deserialize, Serialize};

use super::gradients::Gradients;
use crate::error::Result;

/// A table that is computed.
#[derive(Clone, Copy, Debug)]
pub struct Sheet {
    /// Name of its files.
    pub name: &'static str,
    /// Whether it differs from seed to seed.
    pub random: bool,
    /// Titles of its columns.
    pub columns: &'static [&'static str],
    /// Digits after the point, of all columns.
    pub digits: usize,
    /// Columns that are drawn, and what their axis is; nothing is drawn without any.
    pub drawn: &'static [usize],
    pub axis: &'static str,
    /// Makes it, for a seed. `quick`: as small as it can be.
    pub make: Make,
}

/// How a table is made.
#[derive(Clone, Copy, Debug)]
pub enum Make {
    /// Made of nothing but what is in the code.
    Computed(fn(quick: bool, seed: u64) -> Result<Vec<Line>>),
    /// Made of gradients that were saved.
    Measured(fn(gradients: &Gradients, seed: u64) -> Result<Vec<Line>>),
}

impl Sheet {
    /// Whether it needs gradients that were saved.
    pub fn needs_gradients(&self) -> bool {
        matches!(self.make, Make::Measured(_))
    }
}

impl PartialEq for Sheet {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A row: a number for each column, where there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub label: String,
    pub values: Vec<Option<f64>>,
}

impl Line {
    /// A row whose cells all have numbers.
    pub fn full(label: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        Self { label: label.into(), values: values.into_iter().map(Some).collect() }
    }

    /// A row with what the paper published, if it did, as its last cell.
    pub fn with_published(
        label: impl Into<String>,
        values: impl IntoIterator<Item = f64>,
        published: Option<f64>,
    ) -> Self {
        let values = values.into_iter().map(Some).chain([published]).collect();
        Self { label: label.into(), values }
    }
}
