//! The plans that a job can carry out.

use super::Compressor;
use crate::{Span, WorkerError};
use thc_protocol::wire::Choice;

impl Compressor {
    /// Returns whether the job has the table of this choice.
    pub fn has(&self, choice: Choice) -> bool {
        choice == Choice::Raw || self.coder(choice).is_some()
    }

    /// Checks whether this job can carry out a plan for a tensor of `length` coordinates.
    ///
    /// # Errors
    /// [`WorkerError::Empty`], [`WorkerError::TooLong`], [`WorkerError::Plan`], [`WorkerError::EmptySpan`] or [`WorkerError::NoTable`].
    pub fn check_plan(&self, plan: &[Span], length: usize) -> Result<(), WorkerError> {
        if length == 0 {
            return Err(WorkerError::Empty);
        }
        if u32::try_from(length).is_err() {
            return Err(WorkerError::TooLong { length });
        }
        let planned =
            plan.iter().try_fold(0_usize, |sum, span| sum.checked_add(span.length)).unwrap_or(usize::MAX);
        if planned != length {
            return Err(WorkerError::Plan { planned, length });
        }
        if let Some(span) = plan.iter().position(|span| span.length == 0) {
            return Err(WorkerError::EmptySpan { span });
        }
        if let Some(Choice::Table(table)) = plan.iter().map(|s| s.choice).find(|c| !self.has(*c)) {
            let job: Vec<String> = self.tables().map(|(id, _)| id.to_string()).collect();
            return Err(WorkerError::NoTable { table, tables: job.join(", ") });
        }
        Ok(())
    }
}
