//! Checks whether a target still holds what an agent wrote, since others may have changed it.

use super::Agent;
use crate::difference::differences;
use crate::error::ControllerError;
use crate::switch::Target;
use std::time::Instant;

/// The largest number of differences that a line of the log names.
const NAMED: usize = 4;

impl Agent {
    /// Compares the target's rows with what was written, as often as that is configured, and repairs them. After a
    /// failed write it is not known what was written, and all is read and written anew anyway.
    pub(super) async fn compare_if_due(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let every = self.config.compare;
        if every.is_zero() || self.compared.is_some_and(|compared| compared.elapsed() < every) {
            return Ok(());
        }
        let actual = target.read_rows().await?;
        let found = match &self.actual {
            Some(written) => differences(written, &actual, target.schema())?,
            None => Vec::new(),
        };
        self.compared = Some(Instant::now());
        if !found.is_empty() {
            let more = match found.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            let (name, some) = (&self.config.name, found[..found.len().min(NAMED)].join("; "));
            tracing::warn!("target {name}: somebody else has changed its rows: {some}{more}; repaired");
            self.end_sessions_that_cannot_go_on(&actual)?;
            self.actual = Some(actual);
            self.sync(target).await?;
        }
        let mut views = self.shared.views();
        let view = views.entry(self.config.name.clone()).or_default();
        view.compared = self.compared;
        view.repairs += u64::from(!found.is_empty());
        Ok(())
    }
}
