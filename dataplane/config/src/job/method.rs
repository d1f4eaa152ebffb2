//! Methods of compression by name, and what each fixes of a job and of its workers.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use thc_codec::table::LookupTable;
use thc_protocol::wire::Table;

use crate::values::Fraction;

/// A method of compression by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Each key has a default of its own
    #[default]
    Default,
    /// THC as published: b = 4, g = 30, p = 1/32, blocks of 2^20 coordinates, error feedback, independent rounding
    ThcPaper,
}

/// The keys of a job that a method fixes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MethodValues {
    /// b, bits of an index.
    pub bits: u8,
    /// g, the largest table value.
    pub granularity: u16,
    /// p, the share of rotated coordinates that is truncated.
    pub fraction: f64,
    /// log₂ of the coordinates of a block.
    pub block: u8,
}

impl Method {
    /// The keys that the method fixes (Li et al., NSDI 2024, sections 5.2 and 8, partitions of 4 MiB); `None` if it fixes none.
    pub fn values(self) -> Option<MethodValues> {
        match self {
            Method::Default => None,
            Method::ThcPaper => {
                Some(MethodValues { bits: 4, granularity: 30, fraction: 1.0 / 32.0, block: 20 })
            }
        }
    }

    /// Returns `true` if workers keep error feedback (Algorithm 3) and round independently of each other (Appendix A.2).
    pub fn fixes_workers(self) -> bool {
        self == Method::ThcPaper
    }

    /// Compares a session's first table and log₂ of its block with the method's.
    ///
    /// # Errors
    /// A line with the method and the first value that is another.
    pub fn check(self, table: &Table, block: u8) -> Result<(), String> {
        let Some(fixed) = self.values() else { return Ok(()) };
        let solved = LookupTable::solve(fixed.bits, fixed.granularity, fixed.fraction);
        let values = solved.map_err(|error| error.to_string())?.values16();
        let numbers = |values: &[u8; 16]| values.map(|value| value.to_string()).join(",");
        let pairs = [
            ("bits", fixed.bits.to_string(), table.bits.to_string()),
            ("granularity", fixed.granularity.to_string(), table.granularity.to_string()),
            ("fraction", Fraction(fixed.fraction).to_string(), Fraction(table.fraction).to_string()),
            ("block", fixed.block.to_string(), block.to_string()),
            ("table", numbers(&values), numbers(&table.values)),
        ];
        match pairs.iter().find(|(_, fixed, actual)| fixed != actual) {
            None => Ok(()),
            Some((key, fixed, actual)) => Err(format!(
                "method is {self}, which has {key} = {fixed}, and the job has {actual}: give the server the same method"
            )),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_possible_value() {
            Some(value) => value.get_name().fmt(f),
            None => Ok(()),
        }
    }
}
