//! Checks whether a target still holds what an agent wrote, since others may have changed it.

use super::Agent;
use crate::difference::{self, differences};
use crate::error::ControllerError;
use crate::target::Target;
use std::time::Instant;
use thc_control_proto::v1;

/// Differences that an event names; `target diff` has all.
const NAMED: usize = 4;

impl Agent {
    /// Compares the target's rows with what was written, as often as that is configured.
    pub(super) async fn compare_if_due(&mut self, target: &mut Target) -> Result<(), ControllerError> {
        let every = self.config.compare;
        if every.is_zero() || self.compared.is_some_and(|compared| compared.elapsed() < every) {
            return Ok(());
        }
        self.compare(target, self.config.repairs).await.map(drop)
    }

    /// Compares them now. Repairs what differs if `repair`.
    pub(super) async fn compare(
        &mut self,
        target: &mut Target,
        repair: bool,
    ) -> Result<Vec<v1::Difference>, ControllerError> {
        let actual = target.read_rows().await?;
        // After a failure it is not known what was written; then all is read and written anew anyway.
        let found = match &self.actual {
            Some(written) => differences(written, &actual, target.schema())?,
            None => Vec::new(),
        };
        // Who looks again and again does not put off what is to be repaired.
        if found.is_empty() || repair || !self.config.repairs {
            self.compared = Some(Instant::now());
        }
        if found.is_empty() {
            self.show_compared(&found, false);
            return Ok(found);
        }
        self.report_differences(&found, repair);
        if repair {
            self.end_sessions_that_cannot_go_on(&actual)?;
            self.actual = Some(actual);
            self.sync(target).await?;
        }
        self.show_compared(if repair { &[] } else { &found }, repair);
        Ok(found)
    }

    /// What is left as it is, is told once.
    fn report_differences(&self, found: &[v1::Difference], repair: bool) {
        let name = &self.config.name;
        let known = self.shared.views().get(name).is_some_and(|view| view.differences == found);
        if known && !repair {
            return;
        }
        let some: Vec<String> = found.iter().take(NAMED).map(difference::line).collect();
        let more = match found.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let done = if repair {
            "repaired".to_owned()
        } else {
            format!("left as they are: `thc-controller target diff {name} --repair` repairs them")
        };
        let what =
            format!("target {name}: somebody else has changed its rows: {}{more}; {done}", some.join("; "));
        tracing::warn!("{what}");
    }

    fn show_compared(&self, differences: &[v1::Difference], repaired: bool) {
        let mut views = self.shared.views();
        let view = views.entry(self.config.name.clone()).or_default();
        view.compared = self.compared;
        view.differences = differences.to_vec();
        view.repairs += u64::from(repaired);
    }
}
