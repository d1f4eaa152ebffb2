//! `thc table`: an optimal lookup table, and the choice of granularity and fraction.

use std::fmt;

use serde::Serialize;
use thc_codec::CodecError;
use thc_codec::table::{LookupTable, choose};
use thc_ps::Fraction;

use crate::error::{Error, Result};

/// A table, as the command prints it.
#[derive(Clone, Debug, Serialize)]
pub struct TableReport {
    /// Bit budget b.
    pub bits: u8,
    /// Granularity g.
    pub granularity: u16,
    /// Truncated fraction p.
    pub fraction: f64,
    /// Threshold in standard deviations.
    pub t_p: f64,
    /// The 2^b values.
    pub table: Vec<u8>,
    /// Mean squared error from rounding, per unit normal coordinate.
    pub quantization_error: f64,
    /// Mean squared error from truncation.
    pub truncation_error: f64,
    /// The circumstances for which the table was chosen.
    #[serde(flatten)]
    pub chosen: Option<Chosen>,
}

/// The circumstances for which a table is chosen.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Chosen {
    /// Workers n.
    pub workers: u32,
    /// Bits of a summed coordinate.
    pub lane: u8,
    /// The least possible quantization_error / n + truncation_error.
    pub expected_nmse: f64,
}

impl TableReport {
    /// Computes the optimal table for given b, g and p.
    pub fn solve(bits: u8, granularity: u16, fraction: f64) -> Result<Self> {
        let table = LookupTable::solve(bits, granularity, fraction)?;
        Ok(Self::describe(&table, None))
    }

    /// Chooses the best granularity and fraction for `workers` workers whose sums fit `lane` bits.
    pub fn choose(bits: u8, lane: u8, workers: u32) -> Result<Self> {
        let choice = choose(bits, lane, workers).map_err(|error| match error {
            CodecError::LaneTooNarrow { .. } => Error::Usage(format!(
                "the sums of {workers} workers with bits = {bits} do not fit lanes of {lane} bits: use {}fewer bits or fewer workers",
                if lane < 16 { "--lane 16, " } else { "" }
            )),
            error => error.into(),
        })?;
        let chosen = Chosen { workers, lane, expected_nmse: choice.expected_nmse };
        Ok(Self::describe(&choice.table, Some(chosen)))
    }

    fn describe(table: &LookupTable, chosen: Option<Chosen>) -> Self {
        Self {
            bits: table.bits(),
            granularity: table.granularity(),
            fraction: table.fraction(),
            t_p: table.t_p(),
            table: table.values().to_vec(),
            quantization_error: table.quantization_error(),
            truncation_error: table.truncation_error(),
            chosen,
        }
    }
}

impl fmt::Display for TableReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "bit budget b          {}\ngranularity g         {}\nfraction p            {:.6}\nthreshold t_p         {:.5}",
            self.bits,
            self.granularity,
            Fraction(self.fraction),
            self.t_p
        )?;
        let values: Vec<String> = self.table.iter().map(u8::to_string).collect();
        writeln!(f, "table                 {}", values.join(" "))?;
        write!(
            f,
            "quantization error    {:.6}\ntruncation error      {:.6}",
            self.quantization_error, self.truncation_error
        )?;
        if let Some(chosen) = self.chosen {
            write!(
                f,
                "\nexpected NMSE         {:.6}   ({} workers, {}-bit lanes)",
                chosen.expected_nmse, chosen.workers, chosen.lane
            )?;
        }
        Ok(())
    }
}
