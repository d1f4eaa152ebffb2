//! Table `job_tables`: which lookup tables a job may use (P7).

use super::Row;

/// A job's permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTable {
    /// Key: the job's number.
    pub job: u16,
    /// Key: the lookup table's id.
    pub table: u8,
    /// Where lookup tables have numbers of the chip's: this one's, and whether its lanes have 4 bits.
    pub on_chip: Option<(u8, bool)>,
}

impl Row for JobTable {
    const TABLE: &'static str = "job_tables";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("job", self.job.into()), ("table", self.table.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        let place = self.on_chip.map(|(number, half)| [("lookup", number.into()), ("half", half.into())]);
        ("allow_table", place.into_iter().flatten().collect())
    }
}
