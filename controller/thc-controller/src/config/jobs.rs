//! Jobs of the file, as requests.

use super::options::NamedJob;
use super::value;
use crate::error::ControllerError;
use thc_control_proto::v1;
use thc_options::{Interval, PolicyName, RackSize, TableOptions};

impl NamedJob {
    pub(super) fn spec(&self) -> Result<v1::JobSpec, ControllerError> {
        let job = &self.job;
        let name = match (&self.name, job.job) {
            (Some(name), _) => name.clone(),
            (None, Some(number)) => format!("job-{number}"),
            (None, None) => return Err(value("job.name", "missing", "give each [[job]] a name")),
        };
        let racks = job.racks.iter().flatten().map(RackSize::to_string).collect();
        let rack = asked_rack(&name, self.rack, racks, self.root.clone(), self.root_mac.clone())?;
        if let Some(down) = job.down.or_else(|| job.tables.iter().find_map(|table| table.down)) {
            let mend = "a controller's jobs send whole sums down, as switches do; leave it out";
            return Err(value(&format!("job {name}: down"), down, mend));
        }
        if job.lane.is_some_and(|lane| lane != 8) {
            return Err(value(
                &format!("job {name}: lane"),
                job.lane.unwrap_or(0),
                "the switch program adds in lanes of 8 bits; leave it out",
            ));
        }
        // Far too large numbers stay too large, and are refused with the others.
        let small = |number: Option<u64>| number.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let secret = |key: &str, text: &Option<thc_options::Secret>| match text {
            None => Ok(None),
            Some(text) => match text.number() {
                Some(number) => Ok(Some(number)),
                None => Err(value(&format!("job {name}: {key}"), "no number", "write it like 0x1234abcd")),
            },
        };
        let cookie = match secret("cookie", &job.cookie)?.map(u32::try_from) {
            None => None,
            Some(Ok(cookie)) => Some(cookie),
            Some(Err(_)) => return Err(value(&format!("job {name}: cookie"), "too large", "give 32 bits")),
        };
        let milliseconds =
            |time: Option<Interval>| time.map(|time| u32::try_from(time.0.as_millis()).unwrap_or(u32::MAX));
        Ok(v1::JobSpec {
            name: name.clone(),
            workers: small(job.workers).unwrap_or(0),
            bits: small(job.bits),
            granularity: small(job.granularity),
            fraction: job.fraction.map(|fraction| fraction.0.to_string()),
            data_slots: small(job.data_slots),
            norm_slots: small(job.norm_slots),
            block: small(job.block),
            quorum: small(job.quorum),
            policy: job.policy.map(|policy| match policy {
                PolicyName::Reliable => "reliable".to_owned(),
                PolicyName::BestEffort => "best-effort".to_owned(),
            }),
            deadline_ms: milliseconds(job.deadline),
            number: small(job.job),
            cookie,
            seed: secret("seed", &job.seed)?,
            targets: self.targets.clone(),
            servers: self.servers.clone(),
            spares: self.spares.clone(),
            tables: job.tables.iter().map(|table| asked_table(&name, table)).collect::<Result<_, _>>()?,
            rack,
            min_workers: small(job.min_workers),
            max_workers: small(job.max_workers),
            gone_after_ms: milliseconds(job.gone_after),
            gather_ms: milliseconds(job.gather),
        })
    }
}

/// What a target is as a rack of a job, of what is given about it.
///
/// # Errors
/// [`ControllerError::Value`] if some of it is missing.
pub fn asked_rack(
    job: &str,
    number: Option<u32>,
    racks: Vec<String>,
    root: Option<String>,
    mac: Option<String>,
) -> Result<Option<v1::RackSpec>, ControllerError> {
    match (number, root, mac) {
        (Some(number), Some(root), Some(mac)) if !racks.is_empty() => {
            Ok(Some(v1::RackSpec { number, racks, root, mac }))
        }
        (None, None, None) if racks.is_empty() => Ok(None),
        _ => {
            let mend = "give racks, rack, root and root_mac, or none of them: a root itself is a thc-ps with a job of its own";
            Err(value(&format!("job {job}: rack"), "half of one", mend))
        }
    }
}

/// A further table of a job as it is asked for; the controller gives tables their numbers.
///
/// # Errors
/// [`ControllerError::Value`] for one with a number.
pub fn asked_table(job: &str, table: &TableOptions) -> Result<v1::TableSpec, ControllerError> {
    if let Some(number) = table.table {
        let key = format!("job {job}: tables: table");
        return Err(value(&key, number, "the controller numbers tables; leave it out"));
    }
    let small = |number: Option<u64>| number.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    Ok(v1::TableSpec {
        bits: small(table.bits),
        granularity: small(table.granularity),
        fraction: table.fraction.map(|fraction| fraction.0.to_string()),
        lane: small(table.lane),
    })
}
