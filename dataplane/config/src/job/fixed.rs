//! The keys of a job that its method fixes.

use crate::job::error::{ConfigError, Section};
use crate::job::options::JobOptions;
use crate::values::Fraction;

impl JobOptions {
    /// These keys and those that the method fixes.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if one of the latter is given with another value.
    pub(crate) fn with_method(&self, section: Section) -> Result<JobOptions, ConfigError> {
        let mut job = self.clone();
        let method = job.method.unwrap_or_default();
        let section = job.job.and_then(|job| u16::try_from(job).ok()).map_or(section, Section::Job);
        let Some(fixed) = method.values() else { return Ok(job) };
        let conflict = |key, value: String, fixed: &str| {
            let mend = format!("method = {method} fixes {key}{fixed}, leave one of them out");
            Err(section.wrong(key, value, mend))
        };
        if let Some(values) = &job.table {
            return conflict("table", format!("{values:?}"), "");
        }
        if let Some(tables) = &job.tables {
            return conflict("tables", format!("a list of {}", tables.len()), "");
        }
        let numbers = [
            ("bits", &mut job.bits, u64::from(fixed.bits)),
            ("granularity", &mut job.granularity, u64::from(fixed.granularity)),
            ("block", &mut job.block, u64::from(fixed.block)),
        ];
        for (key, given, fixed) in numbers {
            match given.replace(fixed) {
                Some(other) if other != fixed => {
                    return conflict(key, other.to_string(), &format!(" = {fixed}"));
                }
                _ => {}
            }
        }
        match job.fraction.replace(Fraction(fixed.fraction)) {
            Some(other) if other != Fraction(fixed.fraction) => {
                conflict("fraction", other.to_string(), &format!(" = {}", Fraction(fixed.fraction)))
            }
            _ => Ok(job),
        }
    }
}
