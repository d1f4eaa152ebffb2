//! A job as operators declare it and as clients read it: a `[[job]]` section, in TOML everywhere.

use crate::error::{ControllerError, value};
use clap::Args;
use serde::{Deserialize, Serialize};
use thc_config::file;
use thc_config::job::{JobOptions, PolicyName, RackSize};
use thc_control_proto::v1;

/// A `[[job]]` section: the keys of thc-ps, and where the job is.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobSection {
    /// The job's name for you and the workers: letters, digits, '-', '_' and '.', at most 63
    #[arg(required = true)]
    pub name: Option<String>,
    /// Target that adds up; may be repeated, the first is preferred [default: all]
    #[arg(long = "target", value_name = "NAME", help_heading = "Aggregator")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Split the slots over these targets; the first one starts sessions [default: every target has all slots]
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        conflicts_with = "targets",
        help_heading = "Aggregator"
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// Which of --racks the job's target is, counted from 0: its sums go up to the root, and results come down
    #[arg(long, value_name = "NUMBER", requires = "racks", help_heading = "Rack")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<u32>,
    /// Address of the root, a thc-ps with a job of the same number, cookie and racks
    #[arg(long, value_name = "ADDRESS:PORT", requires = "racks", help_heading = "Rack")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Ethernet address of the root, or of the router on the way to it: one of the target's stations
    #[arg(long, value_name = "MAC", requires = "racks", help_heading = "Rack")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_mac: Option<String>,
    /// The keys that thc-ps has as well.
    #[command(flatten)]
    #[serde(flatten)]
    pub options: JobOptions,
}

impl JobSection {
    /// Reads the keys of one section.
    ///
    /// # Errors
    /// [`ControllerError::Syntax`].
    pub fn parse(text: &str) -> Result<JobSection, ControllerError> {
        Ok(file::parse(text)?)
    }

    /// With the name that follows from its number if it has none.
    #[must_use]
    pub(crate) fn with_default_name(mut self) -> JobSection {
        self.name = self.name.or_else(|| self.options.job.map(|number| format!("job-{number}")));
        self
    }

    /// The section of a job in an answer; an empty one if the answer is from another version of the controller.
    #[must_use]
    pub fn from_job(job: &v1::Job) -> JobSection {
        JobSection::parse(&job.section).unwrap_or_default()
    }

    /// The keys of this section as TOML, secrets included.
    ///
    /// # Errors
    /// [`ControllerError::Value`]: a number that TOML does not have.
    pub fn to_toml(&self) -> Result<String, ControllerError> {
        toml::to_string(self).map_err(|error| value("job", "no TOML", &error.to_string()))
    }

    /// Checks what can be checked without a controller.
    ///
    /// # Errors
    /// [`ControllerError::Value`].
    pub fn check(&self) -> Result<(), ControllerError> {
        let Some(name) = &self.name else {
            return Err(value("job.name", "missing", "give each [[job]] a name"));
        };
        let key = |key: &str| format!("job {name}: {key}");
        let tables = self.options.tables.as_deref().unwrap_or_default();
        if let Some(lane) = self.options.lane.filter(|lane| ![8, 16].contains(lane)) {
            let mend = "the first table adds in lanes of 8 bits, or of 16 for many workers; give one of these, or leave it out";
            return Err(value(&key("lane"), lane, mend));
        }
        if let Some(number) = tables.iter().find_map(|table| table.table_id) {
            return Err(value(
                &key("tables: table_id"),
                number,
                "the controller numbers tables; leave it out",
            ));
        }
        let parts =
            [self.rack.is_some(), self.root.is_some(), self.root_mac.is_some(), self.options.racks.is_some()];
        if parts.contains(&true) && parts.contains(&false) {
            let mend = "give racks, rack, root and root_mac, or none of them: a root itself is a thc-ps with a job of its own";
            return Err(value(&key("rack"), "incomplete", mend));
        }
        Ok(())
    }

    /// Its name; empty if it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The racks of which its target is one, if it is.
    fn own_rack(&self) -> Option<RackSize> {
        let rack = usize::try_from(self.rack?).ok()?;
        self.options.racks.as_ref()?.get(rack).copied()
    }

    /// The number of workers that join its target; 0 if it is unknown.
    #[must_use]
    pub fn workers(&self) -> u32 {
        let rack = self.own_rack().map(|rack| rack.workers);
        let workers = rack.or(self.options.workers).unwrap_or(0);
        u32::try_from(workers).unwrap_or(u32::MAX)
    }

    /// The number of workers that complete a sum.
    #[must_use]
    pub fn quorum(&self) -> u32 {
        let quorum = self.own_rack().map(|rack| rack.quorum).or(self.options.quorum);
        quorum.map_or(self.workers(), |quorum| u32::try_from(quorum).unwrap_or(u32::MAX))
    }

    /// The policy for lost packets.
    #[must_use]
    pub fn policy(&self) -> PolicyName {
        self.options.policy.unwrap_or_default()
    }
}
