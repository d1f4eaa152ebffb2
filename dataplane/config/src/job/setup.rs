//! A job as it is checked, and the checks.

use std::time::Duration;

use crate::values::{Interval, Secret};
use thc_codec::partition::DEFAULT_BLOCK;
use thc_codec::signs::mix;
use thc_protocol::aggregator::{JobConfig, Shard};
use thc_protocol::session::{Root, StaticJob};
use thc_protocol::wire::{BLOCKS, HEADER_LEN, MAX_PACKET, Tables, Welcome};
use thc_protocol::{Cookie, JobId, MAX_WORKERS, Policy};

use crate::job::error::{ConfigError, Section};
use crate::job::number::{number, slots};
use crate::job::options::{JobOptions, PolicyName};
use crate::job::place::ServerPlace;
use crate::job::tables::{KnownTables, TableOptions};

const DEFAULT_DATA_SLOTS: u64 = 1024;
/// The default time after which best-effort gives a packet up.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(200);
/// The longest deadline in WELCOME (P23), rounded down.
const MAX_DEADLINE: Duration = Duration::from_secs(3600);

/// A checked job.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobSetup {
    /// Its shape, with the cookie that workers join with.
    pub config: JobConfig,
    /// The WELCOME of its workers, still without session and nonce.
    pub welcome: Welcome,
    /// The root, if this server is a rack of the job.
    pub root: Option<Root>,
}

impl JobSetup {
    /// The job as the session registry takes it.
    pub fn to_static(&self) -> StaticJob {
        StaticJob { config: self.config.clone(), welcome: self.welcome, root: self.root }
    }
}

/// Checks all jobs of a server: each alone, and that they have numbers of their own and agree on the tables that they
/// share.
///
/// # Errors
/// The [`ConfigError`] of the first thing that is wrong.
pub fn validate_jobs(jobs: &[JobOptions], place: &ServerPlace) -> Result<Vec<JobSetup>, ConfigError> {
    let (mut known, mut setups) = (KnownTables::new(), Vec::<JobSetup>::with_capacity(jobs.len()));
    for (section, job) in jobs.iter().enumerate() {
        let named = Section::Nth(section + 1);
        let setup = job.validate(named, place, &mut known)?;
        let number = setup.config.job;
        if setups.iter().any(|other| other.config.job == number) {
            let number = number.0;
            return Err(Section::Server.conflict(format!(
                "job {number} is configured twice: give each [[job]] section its own number"
            )));
        }
        setups.push(setup);
    }
    Ok(setups)
}

impl JobOptions {
    /// Checks the job of this section beside jobs whose tables are known, fills in defaults, and solves or chooses its lookup
    /// tables.
    ///
    /// # Errors
    /// The [`ConfigError`] of the first thing that is wrong.
    pub fn validate(
        &self,
        section: Section,
        place: &ServerPlace,
        known: &mut KnownTables,
    ) -> Result<JobSetup, ConfigError> {
        let keys = self.with_method(section)?;
        let &ServerPlace { shards, shares, .. } = place;
        let missing = section.missing("job", "give the job a number, 0 to 65535");
        let job = number(section, "job", Some(keys.job.ok_or(missing)?), 0, 0..=u64::from(u16::MAX))? as u16;
        let section = Section::Job(job);
        let layout = keys.layout(job, place)?;
        let (workers, all_workers) = match &layout {
            Some(layout) => (layout.members(place.rack_number()).0, layout.racks.total),
            None => keys.workers(section).map(|workers| (workers, workers.into()))?,
        };
        let (cookie, seed) = keys.secrets(section, job)?;
        let quorum = match &layout {
            Some(layout) => layout.members(place.rack_number()).1,
            None => {
                let all = u64::from(workers);
                number(section, "quorum", keys.quorum, all, 1..=all)? as u8
            }
        };
        if place.is_share() && quorum < workers {
            let mend = "shares of a server need all workers in every sum, leave quorum out";
            return Err(section.wrong("quorum", quorum, mend));
        }
        let data_slots = keys.data_slots(section, place)?;
        let blocks = u64::from(*BLOCKS.start())..=u64::from(*BLOCKS.end());
        let block = number(section, "block", keys.block, DEFAULT_BLOCK.into(), blocks)? as u8;
        let norm_slots = slots(section, "norm_slots", keys.norm_slots, default_norm_slots(block, place))?;
        let deadline = keys.deadline(section)?;
        let tables = keys.first_table().job_tables(
            keys.tables.as_deref().unwrap_or_default(),
            job,
            all_workers,
            layout.as_ref().map(|layout| &layout.racks),
            place,
            known,
        )?;
        let welcome = Welcome {
            data_slots,
            norm_slots,
            quorum,
            policy: Policy::from(keys.policy.unwrap_or_default()),
            shards,
            deadline,
            job_seed: seed,
            block,
            shares,
            ..Welcome::new(workers, Tables::new(&tables)?)
        };
        let mut config = JobConfig::from_welcome(JobId(job), Cookie(cookie), &welcome);
        if let Some(layout) = &layout {
            config.skip |= layout.by_quorum();
            config.level = layout.level(place);
        }
        config.check()?;
        let (welcome, root) = match &layout {
            Some(layout) => layout.welcome(place, &welcome),
            None => (welcome, None),
        };
        let length = welcome.to_bytes().len();
        if length > MAX_PACKET - HEADER_LEN {
            let value = format!("a list of {} beside {} shares", tables.len() - 1, shares.servers());
            return Err(section.wrong("tables", value, "WELCOME has no room for so many, leave some out"));
        }
        Ok(JobSetup { config, welcome, root })
    }

    fn workers(&self, section: Section) -> Result<u8, ConfigError> {
        let mend = "say how many workers the job has, 1 to 64";
        let workers = self.workers.ok_or(section.missing("workers", mend))?;
        Ok(number(section, "workers", Some(workers), 0, 1..=MAX_WORKERS as u64)? as u8)
    }

    /// The job's cookie and its seed.
    fn secrets(&self, section: Section, job: u16) -> Result<(u32, u64), ConfigError> {
        let mend = "give a secret number that the workers give too";
        let missing = section.missing("cookie", mend);
        let range = "from 1 to 0xffffffff";
        let cookie = self.cookie.as_ref().ok_or(missing)?.cookie().filter(|&number| number != 0);
        let cookie = cookie.ok_or(ConfigError::Secret { section, key: "cookie", range })?;
        let range = "from 0 to 0xffffffffffffffff";
        let seed = self.seed.as_ref().map_or(Some(default_seed(cookie, job)), Secret::number);
        Ok((cookie, seed.ok_or(ConfigError::Secret { section, key: "seed", range })?))
    }

    fn data_slots(&self, section: Section, place: &ServerPlace) -> Result<u32, ConfigError> {
        let &ServerPlace { shards, shares, .. } = place;
        let servers = shares.servers();
        let data_slots = slots(section, "data_slots", self.data_slots, default_data_slots(shards * servers))?;
        let least = u32::from(Shard::BLOCK) * u32::from(shards) * u32::from(servers);
        if place.is_share() && data_slots < least {
            let mend = format!("with {servers} shares give at least {least}, or some have none");
            return Err(section.wrong("data_slots", data_slots, mend));
        }
        Ok(data_slots)
    }

    fn deadline(&self, section: Section) -> Result<Duration, ConfigError> {
        let deadline = self.deadline.map_or(DEFAULT_DEADLINE, |Interval(time)| time);
        if self.deadline.is_some() && self.policy.unwrap_or_default() == PolicyName::Reliable {
            let mend =
                "policy = reliable gives no packet up; leave deadline out, or give policy = best-effort";
            return Err(section.wrong("deadline", Interval(deadline), mend));
        }
        if deadline < Duration::from_millis(1) || deadline > MAX_DEADLINE {
            return Err(section.wrong("deadline", Interval(deadline), "use 1ms to 1h"));
        }
        Ok(deadline)
    }

    pub(super) fn first_table(&self) -> TableOptions {
        TableOptions {
            table_id: self.table_id,
            table: self.table.clone(),
            bits: self.bits,
            granularity: self.granularity,
            fraction: self.fraction,
            lane: self.lane,
        }
    }
}

/// Default number of data slots: the window has at least two blocks for each port.
fn default_data_slots(ports: u8) -> u64 {
    DEFAULT_DATA_SLOTS
        .max(4 * u64::from(Shard::BLOCK) * u64::from(ports.saturating_sub(1)).next_power_of_two())
}

/// Default number of norm slots: the norms of 4 Mi coordinates fit their window, so that those of even the
/// smallest blocks wait for few round trips. At most as many as a switch has for one job, or for all.
fn default_norm_slots(block: u8, place: &ServerPlace) -> u64 {
    (1 << (23 - block.min(23))).clamp(64, if place.may_be_switch { 256 } else { 1024 })
}

/// Default seed of the signs. It must be the same after a restart in the middle of a session (P24), so it is
/// not random but the finalizer of SplitMix64 over cookie and job number.
fn default_seed(cookie: u32, job: u16) -> u64 {
    mix((u64::from(cookie) << 16 | u64::from(job)).wrapping_add(0x9E37_79B9_7F4A_7C15))
}
