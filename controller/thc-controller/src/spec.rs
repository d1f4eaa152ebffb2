//! A job as it is kept and handed to targets: its section, checked.

use crate::capacity::RowCounts;
use crate::rack::RackPlace;
use crate::section::JobSection;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use thc_config::job::{
    ConfigError, JobOptions, JobSetup, KnownTables, PolicyName, Section, ServerPlace, TableOptions, cookie,
    rack_number, root_address, share_addresses,
};
use thc_config::values::{Fraction, Interval};
use thc_protocol::Policy;
use thc_protocol::aggregator::{JobConfig, Shard};
use thc_protocol::wire::{Shares, Table};
use thc_transport::resolve;
use tonic::Status;

/// Longest name of a job.
const MAX_NAME: usize = 63;
/// Default number of slots: enough for the windows of few workers, and a quarter of a switch.
const DATA_SLOTS: u32 = 256;
/// The largest default for a job with several servers.
const MOST_DATA_SLOTS: u32 = 1024;

/// A job's section with all defaults filled in, and what follows from it. The section alone is kept; it is checked when
/// the job is made or changed, and when the state file is read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Keys")]
pub struct JobSpec {
    /// All keys, secrets included.
    pub section: JobSection,
    /// The places of its servers, if each has a share of its slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<ShareServers>,
    /// The job in the form for an aggregator and its workers, still without the table's number.
    #[serde(skip_serializing)]
    pub setup: JobSetup,
    /// Which rack its target is; `None` if the target's sums are results.
    #[serde(skip_serializing)]
    pub rack: Option<RackPlace>,
}

/// The part of a specification that the state file has.
#[derive(Deserialize)]
struct Keys {
    section: JobSection,
    #[serde(default)]
    shared: Option<ShareServers>,
}

impl TryFrom<Keys> for JobSpec {
    type Error = String;

    fn try_from(Keys { section, shared }: Keys) -> Result<JobSpec, String> {
        JobSpec::check(section, shared).map_err(|refusal| refusal.message().to_owned())
    }
}

/// The rest follows from these.
impl PartialEq for JobSpec {
    fn eq(&self, other: &JobSpec) -> bool {
        (&self.section, &self.shared) == (&other.section, &other.shared)
    }
}

/// The places of the servers that have a share of a job's slots each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareServers {
    /// The address of each share.
    pub at: Vec<SocketAddr>,
    /// Ports of each.
    pub shards: u8,
}

impl ShareServers {
    /// Default number of data slots: two blocks for every port, up to as many as a switch has.
    fn data_slots(&self) -> u32 {
        (2 * u32::from(Shard::BLOCK) * self.at.len() as u32 * u32::from(self.shards))
            .clamp(DATA_SLOTS, MOST_DATA_SLOTS)
    }
}

impl JobSpec {
    /// Checks a request and fills in the rest. `number` is the job's number unless the request has one;
    /// `shared` says where its servers are, if it names any.
    pub fn from_request(
        asked: &JobSection,
        number: u16,
        shared: Option<&ShareServers>,
    ) -> Result<JobSpec, Status> {
        let name = asked.name();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
            return Err(Status::invalid_argument(format!(
                "job name {name:?}: give 1 to {MAX_NAME} letters, digits, '-', '_' or '.'"
            )));
        }
        asked.check()?;
        let mut section = asked.clone();
        let options = &mut section.options;
        if let Some(bits) = options.bits.filter(|bits| !(1..=4).contains(bits)) {
            let text =
                format!("job {name}: bits is {bits}: give 1 to 4, which is what switches have tables for");
            return Err(Status::invalid_argument(text));
        }
        // The store numbers tables.
        options.table_id = None;
        options.job = options.job.or(Some(number.into()));
        options.cookie = options.cookie.take().or_else(|| Some(u64::from(cookie::random().max(1)).into()));
        let data_slots = shared.map_or(DATA_SLOTS, ShareServers::data_slots);
        options.data_slots = options.data_slots.or(Some(data_slots.into()));
        let mut spec = JobSpec::check(section, shared.cloned())?;
        spec.section.options = fill(spec.section.options, &spec.setup, spec.rack.is_none());
        Ok(spec)
    }

    /// The job with these addresses of its servers.
    pub fn with_servers(&self, shared: ShareServers) -> Result<JobSpec, Status> {
        JobSpec::check(self.section.clone(), Some(shared))
    }

    /// A job goes through the same checks whoever configures it.
    fn check(section: JobSection, shared: Option<ShareServers>) -> Result<JobSpec, Status> {
        let rack = RackPlace::from_section(&section)?;
        let options = &section.options;
        let place = server_place(shared.as_ref(), rack.as_ref());
        let setup =
            place.and_then(|place| options.validate(Section::Nth(1), &place, &mut KnownTables::new()));
        let setup = setup.map_err(|error| {
            let (name, text) = (section.name(), error.to_string());
            // The job has its name in place of its number.
            let number = options.job.map(|number| format!("job {number}: ")).unwrap_or_default();
            Status::invalid_argument(format!("job {name}: {}", text.strip_prefix(&number).unwrap_or(&text)))
        })?;
        Ok(JobSpec { section, shared, setup, rack })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.section.name()
    }

    /// Its number on the wire.
    pub fn number(&self) -> u16 {
        self.setup.config.job.0
    }

    /// Its shape, as aggregators have it.
    pub fn config(&self) -> &JobConfig {
        &self.setup.config
    }

    /// Its targets, the first preferred; or those that have a share of its slots each, in order.
    pub fn targets(&self) -> &[String] {
        if self.is_shared() { &self.section.servers } else { &self.section.targets }
    }

    /// The number of hosts that send to one of the job's targets: `workers`, and the root above a rack.
    pub(crate) fn senders(&self, workers: u8) -> u32 {
        u32::from(workers) + u32::from(self.rack.is_some())
    }

    /// The number of UDP ports over which consecutive slots are spread, on targets of `shards` ports each.
    pub(crate) fn ports(&self, shards: u8) -> usize {
        usize::from(shards) * self.section.servers.len().max(1)
    }

    /// Its section without secrets.
    pub fn shown(&self) -> JobSection {
        let options = JobOptions { cookie: None, seed: None, ..self.section.options.clone() };
        JobSection { options, ..self.section.clone() }
    }

    /// The most rows that it has in a target's tables. A root cannot use more ports than there are blocks of
    /// slots.
    pub fn rows(&self) -> RowCounts {
        let config = self.config();
        let workers = u32::from(config.workers);
        let blocks = config.data_slots.max(config.norm_slots).div_ceil(Shard::BLOCK.into());
        let roots = if self.rack.is_some() { blocks } else { 0 };
        let job_tables = config.tables.len() as u32;
        RowCounts { members: workers, addresses: workers + roots, job_tables, roots }
    }

    /// Returns whether each of its targets has a share of its slots.
    pub fn is_shared(&self) -> bool {
        !self.section.servers.is_empty()
    }

    /// Returns whether this target has its sessions from the first one.
    pub fn follows_at(&self, target: &str) -> bool {
        self.section.servers.first().is_some_and(|first| first != target)
    }

    /// Returns whether every packet of every worker comes into a sum: only then do counts show which worker is behind.
    pub fn waits_for_all(&self) -> bool {
        let config = self.config();
        self.section.policy() == PolicyName::Reliable && config.quorum == config.workers
    }
}

/// The keys that were asked for, and those that were chosen. Racks give the numbers of workers, and the quorum.
fn fill(asked: JobOptions, setup: &JobSetup, without_racks: bool) -> JobOptions {
    let JobSetup { config, welcome, .. } = setup;
    let &Table { bits, granularity, fraction, .. } = welcome.tables.first();
    let further = welcome.tables[1..].iter().zip(asked.tables.iter().flatten());
    let further: Vec<TableOptions> = further
        .map(|(table, asked)| TableOptions { table: asked.table.clone(), ..table_options(table) })
        .collect();
    JobOptions {
        job: Some(config.job.0.into()),
        workers: without_racks.then_some(config.workers.into()),
        cookie: Some(u64::from(config.cookie.0).into()),
        bits: Some(bits.into()),
        granularity: Some(granularity.into()),
        fraction: Some(Fraction(fraction)),
        data_slots: Some(config.data_slots.into()),
        norm_slots: Some(config.norm_slots.into()),
        block: Some(welcome.block.into()),
        quorum: without_racks.then_some(config.quorum.into()),
        policy: Some(asked.policy.unwrap_or_default()),
        deadline: (welcome.policy == Policy::BestEffort).then_some(Interval(welcome.deadline)),
        tables: (!further.is_empty()).then_some(further),
        ..asked
    }
}

fn table_options(table: &Table) -> TableOptions {
    // There is one table of 8 bits.
    let chosen = table.bits < 8;
    TableOptions {
        bits: Some(table.bits.into()),
        lane: Some(table.form.sums().into()),
        granularity: chosen.then_some(table.granularity.into()),
        fraction: chosen.then_some(Fraction(table.fraction)),
        ..TableOptions::default()
    }
}

/// The place of the job's target, by the checks that a server's own options go through. How many ports a target has
/// that has all slots is its agent's affair.
fn server_place(shared: Option<&ShareServers>, rack: Option<&RackPlace>) -> Result<ServerPlace, ConfigError> {
    let usable = |text: &str| resolve(text).ok();
    let mut place = ServerPlace { may_be_switch: true, ..ServerPlace::alone(1) };
    if let Some(shared) = shared {
        let texts: Vec<String> = shared.at.iter().map(ToString::to_string).collect();
        place.shards = shared.shards;
        place.shares = Shares::new(&share_addresses(&texts, usable)?, shared.shards)?;
    }
    if let Some(rack) = rack {
        let number = rack_number(rack.number.into(), shared.is_some())?;
        place.rack = Some((number, root_address(&rack.root.to_string(), usable)?));
    }
    Ok(place)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use thc_protocol::wire::Form;

    fn section(text: &str) -> JobSection {
        JobSection::parse(&format!("name = \"train\"\n{text}")).unwrap()
    }

    fn spec(text: &str) -> Result<JobSpec, String> {
        JobSpec::from_request(&section(text), 7, None).map_err(|refusal| refusal.message().to_owned())
    }

    #[test]
    fn what_is_not_given_is_filled_in() {
        let spec = spec("workers = 4").unwrap();
        assert_eq!(
            (spec.number(), spec.section.options.bits, spec.config().quorum, spec.section.policy()),
            (7, Some(4), 4, PolicyName::Reliable)
        );
        let granularity = spec.setup.welcome.tables.first().granularity;
        assert!(granularity * 4 <= 255);
        assert_eq!(spec.section.options.granularity, Some(granularity.into()));
    }

    /// 18 to 64 workers with 4 bits need lanes of 16 bits, as the refusal of 8 says.
    #[test]
    fn many_workers_have_wider_lanes() {
        for (workers, bits) in [(18, 4), (64, 4), (64, 2)] {
            let spec = spec(&format!("workers = {workers}\nbits = {bits}\nlane = 16")).unwrap();
            let first = *spec.setup.welcome.tables.first();
            let config = spec.config();
            assert_eq!(
                (config.workers, first.bits, first.form.to_string().as_str()),
                (workers, bits, "4/16")
            );
            assert!(u32::from(first.granularity) * u32::from(workers) > 255);
            let again = JobSpec::from_request(&spec.section, 7, None).unwrap();
            assert_eq!(again.section, spec.section);
        }
    }

    #[test]
    fn small_blocks_get_more_norm_slots() {
        for (block, slots) in [(20, 64), (16, 128), (13, 256), (10, 256)] {
            let spec = spec(&format!("workers = 4\nblock = {block}")).unwrap();
            let welcome = &spec.setup.welcome;
            assert_eq!((u64::from(welcome.block), welcome.norm_slots), (block, slots));
            assert_eq!((spec.config().norm_slots, spec.shown().options.block), (slots, Some(block)));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (text, says) in [
            ("workers = 0", "workers"),
            ("granularity = 30\nworkers = 4", "fraction"),
            ("granularity = 100\nfraction = \"1/32\"\nworkers = 4", "at most 63"),
            ("data_slots = 3\nworkers = 4", "even"),
            ("block = 21\nworkers = 4", "10 to 20"),
            ("workers = 4\nlane = 9", "lanes of 8 bits"),
            ("workers = 18\nlane = 8", "lane = 16"),
            ("workers = 4\nbits = 0", "bits is 0: give 1 to 4"),
            ("workers = 4\nbits = 5", "bits is 5: give 1 to 4"),
            ("workers = 4\nrack = 1", "incomplete"),
        ] {
            let refused = spec(text).unwrap_err();
            assert!(refused.contains(says), "{text}: {refused}");
        }
        let named = JobSection { name: Some("a b".to_owned()), ..section("workers = 4") };
        assert!(JobSpec::from_request(&named, 1, None).unwrap_err().message().contains("a b"));
        for (text, says) in
            [("policy = \"some\"", "best-effort"), ("fraction = \"x\"", "fraction"), ("wrkers = 1", "wrkers")]
        {
            let refused = JobSection::parse(text).unwrap_err().to_string();
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }

    /// A job that was stored and read back is the same.
    #[test]
    fn a_file_makes_its_job_again() {
        for text in [
            "workers = 3\nblock = 10",
            "workers = 4\nseed = 3\npolicy = \"best-effort\"\ndeadline = \"50ms\"\nquorum = 3",
            "workers = 6\ntables = [{ bits = 2 }, { bits = 8 }]",
            "workers = 6\nbits = 2\ntables = [{ bits = 2, lane = 5 }]",
            "rack = 1\nracks = [8, \"3/4\"]\nroot = \"10.0.0.9:9000\"\nroot_mac = \"02:00:00:00:00:09\"",
        ] {
            let spec = spec(text).unwrap();
            let kept = serde_json::to_value(&spec).unwrap();
            assert!(kept["setup"].is_null() && kept["rack"].is_null(), "{kept}");
            let again: JobSpec = serde_json::from_value(kept.clone()).unwrap();
            assert_eq!(
                (format!("{:?}", again.setup), &again),
                (format!("{:?}", spec.setup), &spec),
                "{text}"
            );
            let mut wrong = kept;
            wrong["section"]["data_slots"] = 3.into();
            let refused = serde_json::from_value::<JobSpec>(wrong).unwrap_err().to_string();
            assert!(refused.contains("job train") && refused.contains("even"), "{refused}");
        }
    }

    /// The section that `job show` prints makes the same job again, but for its secrets.
    #[test]
    fn a_section_makes_its_job_again() {
        for text in ["workers = 4\ncookie = 5", "workers = 6\ncookie = \"0x5\""] {
            let spec = spec(text).unwrap();
            let section = JobSection::parse(&spec.section.to_toml().unwrap()).unwrap();
            assert_eq!(section, spec.section, "{text}");
            let again = JobSpec::from_request(&section, 9, None).unwrap();
            assert_eq!((&again.section, again.number()), (&section, spec.number()), "{text}");
        }
    }

    #[test]
    fn servers_have_slots_each_and_all_workers_in_every_sum() {
        let at = |count: u16| (0..count).map(|i| SocketAddr::from(([10, 0, 0, 1], 9000 + i))).collect();
        let made = |count, change: fn(&mut JobOptions)| {
            let servers = (0..count).map(|i| format!("h{i}")).collect();
            let mut asked = JobSection { servers, ..section("workers = 4") };
            change(&mut asked.options);
            let shared = ShareServers { at: at(count), shards: 1 };
            JobSpec::from_request(&asked, 7, Some(&shared))
        };
        for (count, slots) in [(2, 256), (4, 512), (8, 1024), (16, 1024)] {
            let spec = made(count, |_| {}).unwrap();
            assert_eq!((spec.config().data_slots, spec.targets().len()), (slots, count.into()));
            assert_eq!(spec.setup.welcome.shares.as_slice(), at(count));
            let moved = ShareServers { at: at(count + 1).split_off(1), shards: 1 };
            let welcome = spec.with_servers(moved.clone()).unwrap().setup.welcome;
            assert_eq!(welcome.shares.as_slice(), moved.at);
        }
        let refused = |count, change| made(count, change).unwrap_err().message().to_owned();
        let gap = refused(8, |s| s.data_slots = Some(256));
        assert!(gap.contains("data_slots is 256") && gap.contains("at least 512"), "{gap}");
        assert!(refused(2, |s| s.quorum = Some(3)).contains("all workers in every sum"));
        let shared = ShareServers { at: vec![at(1)[0]; 2], shards: 1 };
        let overlap = JobSpec::from_request(&section("workers = 4"), 1, Some(&shared)).unwrap_err();
        let overlap = overlap.message();
        assert!(overlap.contains("shares 0 and 1 overlap"), "{overlap}");
    }

    #[test]
    fn a_rack_has_the_members_and_tables_that_its_root_knows() {
        let rack = |racks: &str, number: u8, more: &str| {
            let root = if more.contains("root =") { "" } else { "root = \"10.0.0.9:9000\"\n" };
            let mac = if more.contains("root_mac =") { "" } else { "root_mac = \"02:00:00:00:00:09\"\n" };
            spec(&format!("rack = {number}\nracks = [{racks}]\n{root}{mac}{more}"))
        };
        let spec = rack("8, \"3/4\"", 1, "").unwrap();
        let config = spec.config();
        assert_eq!((config.workers, config.quorum, config.skip), (4, 3, true));
        let shown = spec.shown();
        assert_eq!((shown.workers(), shown.quorum()), (4, 3));
        let root = spec.setup.root.as_ref().unwrap().welcome.rack.unwrap();
        assert_eq!((root.workers, root.quorum, spec.setup.welcome.tables.first().id.0), (12, 11, 7));
        assert_eq!(JobSpec::from_request(&shown, 7, None).unwrap().rack, spec.rack);
        // 160 workers need lanes of 16 bits above, and 8 do below.
        let spec = rack(&["8"; 20].join(", "), 0, "").unwrap();
        let table = spec.setup.welcome.tables.first();
        assert_eq!(
            (table.form.to_string().as_str(), spec.rack.as_ref().unwrap().form(table)),
            ("4/16", Some(Form::USUAL))
        );
        let refused = |racks, number, more| rack(racks, number, more).unwrap_err();
        assert!(refused("8, 8", 2, "").contains("rack is 2, and the last of 2 is 1"));
        assert!(refused("8", 0, "root = \"host\"").contains("10.0.0.1:9000"));
        assert!(refused("8", 0, "root_mac = \"1\"").contains("root_mac"));
        assert!(JobSection::parse("racks = [\"x\"]").unwrap_err().to_string().contains("not a rack"));
    }

    #[test]
    fn nothing_shows_a_cookie() {
        let spec = spec("workers = 4\ncookie = 0xDEAD").unwrap();
        assert_eq!(spec.config().cookie.0, 0xDEAD);
        assert_eq!(spec.shown().options.cookie, None);
        assert!(!format!("{spec:?}").contains("57005"));
    }
}
