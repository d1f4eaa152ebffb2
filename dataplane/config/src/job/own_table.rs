//! Lookup tables that a job names value by value, and the error that is expected of a job's table.

use thc_codec::table::{LookupTable, MAX_GRANULARITY};
use thc_protocol::wire::Table;

use crate::job::error::{ConfigError, Section};
use crate::job::options::JobOptions;
use crate::job::setup::JobSetup;
use crate::job::tables::TableOptions;

impl TableOptions {
    /// The values of a table that is given, checked; `None` if the table is to be solved for.
    pub(super) fn own_values(&self, section: Section) -> Result<Option<Vec<u8>>, ConfigError> {
        let Some(values) = &self.table else { return Ok(None) };
        let refused = |mend: String| Err(section.wrong("table", format!("{values:?}"), mend));
        let count = values.len();
        if ![2, 4, 8, 16].contains(&count) {
            return refused(format!(
                "{count} values are no table, give 2, 4, 8 or 16, one for each index of 1 to 4 bits"
            ));
        }
        if values[0] != 0 {
            return refused("let it begin with 0".to_owned());
        }
        if let Some(pair) = values.windows(2).find(|pair| pair[0] >= pair[1]) {
            return refused(format!("values must increase, and {} follows {}", pair[1], pair[0]));
        }
        let last = values[count - 1];
        if last > u64::from(MAX_GRANULARITY) {
            return refused(format!("let it end with at most {MAX_GRANULARITY}"));
        }
        let follows =
            [("bits", self.bits, u64::from(count.ilog2())), ("granularity", self.granularity, last)];
        for (key, given, of_table) in follows {
            if let Some(given) = given.filter(|given| *given != of_table) {
                return Err(section.wrong(key, given, format!("table has {of_table}, leave {key} out")));
            }
        }
        Ok(Some(values.iter().map(|&value| value as u8).collect()))
    }
}

/// The expected NMSE of a mean with this table.
fn expected_nmse(table: &Table, workers: u16) -> Option<f64> {
    let whole: Vec<u8> = (0..=u8::MAX).collect();
    let values = if table.form.is_identity() { &whole } else { table.values.get(..1 << table.bits)? };
    let table = LookupTable::from_values(values, table.fraction).ok()?;
    Some(table.quantization_error() / f64::from(workers) + table.truncation_error())
}

impl JobSetup {
    /// The expected squared error of a mean over the mean's squared norm, with the first table and without error feedback, where
    /// all workers have the same gradient and round independently: quantization error / n + truncation error.
    pub fn expected_nmse(&self) -> Option<f64> {
        let workers = self.config.level.racks().map_or(self.config.workers.into(), |racks| racks.total);
        expected_nmse(self.welcome.tables.first(), workers)
    }
}

impl JobOptions {
    /// [`JobSetup::expected_nmse`] of a job whose keys are all given, as a controller shows them.
    pub fn expected_nmse(&self) -> Option<f64> {
        let workers = u16::try_from(self.workers?).ok().filter(|workers| *workers > 0)?;
        expected_nmse(&self.first_table().solve(0, workers, None).ok()?, workers)
    }
}
