//! Checks whether a target still holds what an agent wrote, since others may have changed it.

use super::Agent;
use crate::difference::{self, differences};
use crate::error::ControllerError;
use crate::switch::Target;
use crate::switch_rows::SwitchRows;
use std::time::Instant;
use thc_control_proto::v1;

/// Differences that the log names; `target diff` prints all.
const NAMED: usize = 4;

impl Agent {
    /// Compares the target's rows with what was written, as often as that is configured, and repairs them.
    pub(super) async fn compare_if_due(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let every = self.config.compare;
        if every.is_zero() || self.compared.is_some_and(|compared| compared.elapsed() < every) {
            return Ok(());
        }
        let (found, actual) = self.differences(target).await?;
        self.compared = Some(Instant::now());
        if !found.is_empty() {
            self.log_differences(&found);
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

    /// The differences between what was written and the rows that the target holds, and these rows. After a
    /// failed write it is not known what was written: then there are none, and all is read and written anew anyway.
    pub(super) async fn differences(
        &self,
        target: &mut Target,
    ) -> Result<(Vec<v1::Difference>, SwitchRows), ControllerError> {
        let actual = target.read_rows().await?;
        let found = match &self.actual {
            Some(written) => differences(written, &actual, target.schema())?,
            None => Vec::new(),
        };
        Ok((found, actual))
    }

    fn log_differences(&self, found: &[v1::Difference]) {
        let some: Vec<String> = found.iter().take(NAMED).map(difference::line).collect();
        let more = match found.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let (name, some) = (&self.config.name, some.join("; "));
        tracing::warn!("target {name}: somebody else has changed its rows: {some}{more}; repaired");
    }
}
