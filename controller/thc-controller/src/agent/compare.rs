//! Checks whether a target still holds what an agent wrote, since others may have changed it.

use super::Agent;
use crate::error::ControllerError;
use crate::switch::Target;
use std::time::Instant;

impl Agent {
    /// Compares the target's rows with what was written, as often as that is configured, and repairs them. After a
    /// failed write it is not known what was written, and all is read and written anew anyway.
    pub(super) async fn compare_if_due(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let every = self.config.compare;
        if every.is_zero() || self.compared.is_some_and(|compared| compared.elapsed() < every) {
            return Ok(());
        }
        let actual = target.read_rows().await?;
        let changes = match &self.actual {
            Some(written) => written.changes(&actual, target.schema())?.into_updates().len(),
            None => 0,
        };
        self.compared = Some(Instant::now());
        if changes > 0 {
            let name = &self.config.name;
            tracing::warn!(
                "target {name}: somebody else has changed its rows; {changes} updates repair them"
            );
            self.end_sessions_that_cannot_go_on(&actual)?;
            self.actual = Some(actual);
            self.sync(target).await?;
        }
        let mut views = self.shared.views();
        let view = views.entry(self.config.name.clone()).or_default();
        view.compared = self.compared;
        view.repairs += u64::from(changes > 0);
        Ok(())
    }
}
