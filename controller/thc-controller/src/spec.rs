//! What a job is made of, as it is asked for, kept and handed to targets.

use crate::capacity::RowCounts;
use crate::rack::RackPlace;
use crate::refusal::Refusal;
use crate::section::JobSection;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use thc_job::{
    ConfigError, Fraction, Interval, JobOptions, JobSetup, PolicyName, Secret, ServerPlace, TableOptions,
    cookie, rack_number, root_address, share_addresses,
};
use thc_protocol::Policy;
use thc_protocol::aggregator::{JobConfig, Shard};
use thc_protocol::wire::{BLOCKS, Form, Shares, Table, Tables};
use thc_transport::resolve;

/// Longest name of a job.
const MAX_NAME: usize = 63;
/// Default number of slots: enough for the windows of few workers, and a quarter of a switch.
const DATA_SLOTS: u32 = 256;
/// And of a job with several servers at most so many.
const MOST_DATA_SLOTS: u32 = 1024;
/// Norm slots are chosen by the size of blocks, up to so many.
const MOST_NORM_SLOTS: u32 = 256;

/// A secret number: shown to nobody.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hidden<T>(pub T);

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

/// A job with everything filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// What operators and workers call it.
    pub name: String,
    /// Its number on the wire.
    pub number: u16,
    /// With which workers join.
    pub cookie: Hidden<u32>,
    /// The seed of the signs; made of cookie and number if none is given.
    pub seed: Option<Hidden<u64>>,
    /// n.
    pub workers: u8,
    /// b.
    pub bits: u8,
    /// g.
    pub granularity: u16,
    /// p.
    pub fraction: f64,
    /// S.
    pub data_slots: u32,
    /// N.
    pub norm_slots: u32,
    /// log₂ of the coordinates of a full partition.
    #[serde(default = "largest_block")]
    pub block: u8,
    /// Workers that complete a sum.
    pub quorum: u8,
    /// Whether lost packets are given up at the deadline.
    pub best_effort: bool,
    /// When best-effort gives a packet up, in milliseconds.
    pub deadline_ms: u32,
    /// The targets that have a share of its slots each, in order; empty if each target has all slots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// Its lookup tables beside the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Further>,
    /// Whether the first table was given, and stays whatever the number of workers.
    #[serde(default)]
    pub one_table: bool,
    /// Which rack its target is; `None` if the target's sums are results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<RackPlace>,
    /// All keys that thc-ps has as well, with those above filled in; `None` in older books.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    options: Option<JobOptions>,
}

/// A lookup table beside a job's first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Further {
    /// b.
    pub bits: u8,
    /// g.
    pub granularity: u16,
    /// p.
    pub fraction: f64,
    /// Bits of a sum.
    pub lane: u8,
}

/// Where the servers of a job are that have a share of its slots each.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// How many hosts send to one of the job's targets: `workers`, and the root above a rack.
    pub(crate) fn senders(&self, workers: u8) -> u32 {
        u32::from(workers) + u32::from(self.rack.is_some())
    }

    /// The number of UDP ports over which consecutive slots are spread, on targets of `shards` ports each.
    pub(crate) fn ports(&self, shards: u8) -> usize {
        usize::from(shards) * self.servers.len().max(1)
    }

    /// Checks a request and fills in the rest. `number` is the job's number unless the request has one;
    /// `shared` says where its servers are, if it names any.
    ///
    /// # Errors
    /// What is wrong and how to fix it.
    pub fn from_request(
        asked: &JobSection,
        number: u16,
        shared: Option<&ShareServers>,
    ) -> Result<JobSpec, Refusal> {
        let name = asked.name();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
            return Err(Refusal::invalid(format!(
                "job name {name:?}: give 1 to {MAX_NAME} letters, digits, '-', '_' or '.'"
            )));
        }
        asked.check().map_err(|error| Refusal::invalid(error.to_string()))?;
        let mut options = asked.options.clone();
        if let Some(bits) = options.bits.filter(|bits| !(1..=4).contains(bits)) {
            let text =
                format!("job {name}: bits is {bits}: give 1 to 4, which is what switches have tables for");
            return Err(Refusal::invalid(text));
        }
        let rack = RackPlace::from_section(asked)?;
        // The book numbers tables.
        options.table = None;
        options.job = options.job.or(Some(number.into()));
        options.cookie = options.cookie.or_else(|| Some(u64::from(cookie::random().max(1)).into()));
        options.data_slots = options.data_slots.or_else(|| Some(slots(shared).into()));
        let setup = validate_options(options.clone(), shared, rack.as_ref())
            .map_err(|error| Refusal::invalid(format!("job {name}: {error}")))?;
        let (config, welcome) = (&setup.config, &setup.welcome);
        let table = welcome.tables.first();
        let mut spec = JobSpec {
            name: name.to_owned(),
            number: config.job.0,
            cookie: Hidden(config.cookie.0),
            seed: options.seed.as_ref().and_then(Secret::number).map(Hidden),
            workers: config.workers,
            bits: table.bits,
            granularity: table.granularity,
            fraction: table.fraction,
            data_slots: config.data_slots,
            norm_slots: match options.norm_slots {
                Some(_) => config.norm_slots,
                None => config.norm_slots.min(MOST_NORM_SLOTS),
            },
            block: welcome.block,
            quorum: config.quorum,
            best_effort: welcome.policy == Policy::BestEffort,
            deadline_ms: welcome.deadline.as_millis() as u32,
            servers: asked.servers.clone(),
            tables: welcome.tables[1..].iter().map(Further::new).collect(),
            one_table: options.granularity.is_some(),
            rack,
            options: None,
        };
        spec.options = Some(spec.fill(options));
        Ok(spec)
    }

    /// The keys that were asked for, and those that were chosen.
    fn fill(&self, asked: JobOptions) -> JobOptions {
        let fixed = self.rack.is_none();
        JobOptions {
            job: Some(self.number.into()),
            workers: fixed.then_some(self.workers.into()),
            racks: self.rack.as_ref().map(RackPlace::sizes),
            cookie: Some(u64::from(self.cookie.0).into()),
            seed: self.seed.map(|seed| seed.0.into()),
            bits: Some(self.bits.into()),
            granularity: Some(self.granularity.into()),
            fraction: Some(Fraction(self.fraction)),
            data_slots: Some(self.data_slots.into()),
            norm_slots: Some(self.norm_slots.into()),
            block: Some(self.block.into()),
            quorum: fixed.then_some(self.quorum.into()),
            policy: Some(self.policy()),
            deadline: Some(milliseconds(self.deadline_ms)),
            tables: (!self.tables.is_empty()).then(|| self.tables.iter().map(Further::options).collect()),
            ..asked
        }
    }

    /// All keys that thc-ps has as well.
    fn options(&self) -> JobOptions {
        self.options.clone().unwrap_or_else(|| self.fill(JobOptions::default()))
    }

    /// The job in the form for an aggregator and its workers, still without the table's number.
    ///
    /// # Errors
    /// [`ConfigError`], if the spec was not made by [`Self::from_request`].
    pub fn setup(&self, shared: Option<&ShareServers>) -> Result<JobSetup, ConfigError> {
        validate_options(self.options(), shared, self.rack.as_ref())
    }

    /// As a section that makes the same job again, with its secrets.
    #[must_use]
    pub fn section(&self, targets: Vec<String>) -> JobSection {
        JobSection {
            name: Some(self.name.clone()),
            targets: if self.servers.is_empty() { targets } else { Vec::new() },
            servers: self.servers.clone(),
            rack: self.rack.as_ref().map(|rack| rack.number.into()),
            root: self.rack.as_ref().map(|rack| rack.root.to_string()),
            root_mac: self.rack.as_ref().map(RackPlace::mac_text),
            options: self.options(),
        }
    }

    /// The section to show: without secrets, and with the table of its largest sessions.
    #[must_use]
    pub fn to_section(&self, targets: Vec<String>) -> JobSection {
        let section = self.section(targets);
        let options = JobOptions {
            cookie: None,
            seed: None,
            granularity: Some(self.granularity.into()),
            fraction: Some(Fraction(self.fraction)),
            ..section.options
        };
        JobSection { options, ..section }
    }

    /// Whether its workers may go on without a slot (P9).
    #[must_use]
    pub fn may_skip(&self) -> bool {
        JobConfig::may_skip(self.policy().into(), self.quorum, self.workers)
            || self.rack.as_ref().is_some_and(RackPlace::by_quorum)
    }

    /// The most rows that it has in a target's tables. A root cannot use more ports than there are blocks of
    /// slots.
    #[must_use]
    pub fn rows(&self) -> RowCounts {
        let workers = u32::from(self.workers);
        let blocks = self.data_slots.max(self.norm_slots).div_ceil(Shard::BLOCK.into());
        let roots = if self.rack.is_some() { blocks } else { 0 };
        RowCounts {
            members: workers,
            addresses: workers + roots,
            job_tables: 1 + self.tables.len() as u32,
            roots,
        }
    }

    /// Whether each of its targets has a share of its slots.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        !self.servers.is_empty()
    }

    /// Whether this target has its sessions from the first one.
    #[must_use]
    pub fn follows_at(&self, target: &str) -> bool {
        self.servers.first().is_some_and(|first| first != target)
    }

    /// The loss policy.
    #[must_use]
    pub fn policy(&self) -> PolicyName {
        if self.best_effort { PolicyName::BestEffort } else { PolicyName::Reliable }
    }
}

impl Further {
    fn new(table: &Table) -> Further {
        let &Table { bits, granularity, fraction, form, .. } = table;
        Further { bits, granularity, fraction, lane: form.sums() }
    }

    fn options(&self) -> TableOptions {
        let mut options = TableOptions {
            bits: Some(self.bits.into()),
            lane: Some(self.lane.into()),
            ..TableOptions::default()
        };
        // Of 8 bits there is one table.
        if self.bits < 8 {
            options.granularity = Some(self.granularity.into());
            options.fraction = Some(Fraction(self.fraction));
        }
        options
    }
}

/// What books from before jobs could say it mean.
fn largest_block() -> u8 {
    *BLOCKS.end()
}

fn slots(shared: Option<&ShareServers>) -> u32 {
    shared.map_or(DATA_SLOTS, ShareServers::data_slots)
}

/// A job goes through the same checks whoever configures it.
fn validate_options(
    options: JobOptions,
    shared: Option<&ShareServers>,
    rack: Option<&RackPlace>,
) -> Result<JobSetup, ConfigError> {
    let lanes: Vec<Option<u64>> = options.tables.iter().flatten().map(|table| table.lane).collect();
    let mut setup = options.validate(&server_place(shared, rack)?)?;
    if rack.is_some() {
        return Ok(setup);
    }
    setup.welcome.tables = in_usual_form(setup.welcome.tables, &lanes);
    Ok(setup)
}

/// Where the job's target stands, by the checks that a server's own options go through. How many ports a target has
/// that has all slots is its agent's affair.
fn server_place(shared: Option<&ShareServers>, rack: Option<&RackPlace>) -> Result<ServerPlace, ConfigError> {
    let usable = |text: &str| resolve(text).ok();
    let mut place = ServerPlace::alone(1);
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

/// Every aggregator has the usual form: fewer bits of the first table travel in it as they are.
fn in_usual_form(told: Tables, lanes: &[Option<u64>]) -> Tables {
    let mut tables = told.to_vec();
    // Sums are packed only where that was asked for.
    for (table, _) in tables.iter_mut().skip(1).zip(lanes).filter(|(_, lane)| lane.is_none()) {
        table.form = Form::new(table.form.width(), table.form.lane()).unwrap_or(table.form);
    }
    for first in tables.iter_mut().take(1) {
        first.form = Form::new(Form::USUAL.width(), first.form.lane()).unwrap_or_default();
    }
    Tables::new(&tables).unwrap_or(told)
}

fn milliseconds(ms: u32) -> Interval {
    Interval(Duration::from_millis(ms.into()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn section(text: &str) -> JobSection {
        JobSection::parse(&format!("name = \"train\"\n{text}")).unwrap()
    }

    fn spec(text: &str) -> Result<JobSpec, String> {
        JobSpec::from_request(&section(text), 7, None).map_err(|refusal| refusal.message)
    }

    #[test]
    fn what_is_not_given_is_filled_in() {
        let spec = spec("workers = 4").unwrap();
        assert_eq!((spec.number, spec.bits, spec.quorum, spec.policy()), (7, 4, 4, PolicyName::Reliable));
        assert!(u32::from(spec.granularity) * 4 <= 255);
        let setup = spec.setup(None).unwrap();
        assert_eq!((setup.config.job.0, setup.welcome.tables.first().granularity), (7, spec.granularity));
        assert_eq!(setup.config.cookie.0, spec.cookie.0);
    }

    /// 18 to 64 workers with 4 bits need lanes of 16 bits, as the refusal of 8 says.
    #[test]
    fn many_workers_have_wider_lanes() {
        for (workers, bits) in [(18, 4), (64, 4), (64, 2)] {
            let spec = spec(&format!("workers = {workers}\nbits = {bits}\nlane = 16")).unwrap();
            let first = *spec.setup(None).unwrap().welcome.tables.first();
            assert_eq!((spec.workers, first.bits, first.form.to_string().as_str()), (workers, bits, "4/16"));
            assert!(u32::from(first.granularity) * u32::from(workers) > 255);
            let again = JobSpec::from_request(&spec.section(Vec::new()), 7, None).unwrap();
            assert_eq!(again.section(Vec::new()), spec.section(Vec::new()));
        }
    }

    #[test]
    fn small_blocks_get_more_norm_slots() {
        for (block, slots) in [(20, 64), (16, 128), (13, 256), (10, 256)] {
            let spec = spec(&format!("workers = 4\nblock = {block}")).unwrap();
            assert_eq!((u64::from(spec.block), spec.norm_slots), (block, slots));
            let setup = spec.setup(None).unwrap();
            assert_eq!((setup.welcome.block, setup.welcome.norm_slots), (spec.block, slots));
            assert_eq!(spec.to_section(Vec::new()).options.block, Some(block));
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
            ("workers = 18", "lane = 16"),
            ("workers = 4\nrack = 1", "incomplete"),
        ] {
            let refused = spec(text).unwrap_err();
            assert!(refused.contains(says), "{text}: {refused}");
        }
        let named = JobSection { name: Some("a b".to_owned()), ..section("workers = 4") };
        assert!(JobSpec::from_request(&named, 1, None).unwrap_err().message.contains("a b"));
        for (text, says) in
            [("policy = \"some\"", "best-effort"), ("fraction = \"x\"", "fraction"), ("wrkers = 1", "wrkers")]
        {
            let refused = JobSection::parse(text).unwrap_err().to_string();
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }

    /// A file of before jobs were kept as the keys of thc-ps.
    #[test]
    fn what_was_kept_before_is_the_same_job() {
        for text in [
            "workers = 4\nseed = 3\npolicy = \"best-effort\"\ndeadline = \"50ms\"\nquorum = 3",
            "workers = 6\ntables = [{ bits = 2 }, { bits = 8 }]",
            "rack = 1\nracks = [8, \"3/4\"]\nroot = \"10.0.0.9:9000\"\nroot_mac = \"02:00:00:00:00:09\"",
        ] {
            let spec = spec(text).unwrap();
            let mut kept = serde_json::to_value(&spec).unwrap();
            assert_eq!(serde_json::from_value::<JobSpec>(kept.clone()).unwrap(), spec, "{text}");
            kept.as_object_mut().unwrap().remove("options").unwrap();
            let before: JobSpec = serde_json::from_value(kept).unwrap();
            assert_eq!(before.section(Vec::new()), spec.section(Vec::new()), "{text}");
            assert_eq!(format!("{:?}", before.setup(None)), format!("{:?}", spec.setup(None)), "{text}");
        }
    }

    /// What a job is shown as makes the same job again, but for its secrets.
    #[test]
    fn a_section_makes_its_job_again() {
        for text in ["workers = 4\ncookie = 5", "workers = 6\ncookie = \"0x5\""] {
            let spec = spec(text).unwrap();
            let section = JobSection::parse(&spec.section(Vec::new()).to_toml().unwrap()).unwrap();
            assert_eq!(section, spec.section(Vec::new()), "{text}");
            let again = JobSpec::from_request(&section, 9, None).unwrap();
            assert_eq!((again.section(Vec::new()), again.number), (section, spec.number), "{text}");
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
                .map(|spec| (spec.setup(Some(&shared)).unwrap(), spec))
        };
        for (count, slots) in [(2, 256), (4, 512), (8, 1024), (16, 1024)] {
            let (setup, spec) = made(count, |_| {}).unwrap();
            assert_eq!((spec.data_slots, spec.servers.len()), (slots, count.into()));
            assert_eq!(setup.welcome.shares.as_slice(), at(count));
        }
        let refused = |count, change| made(count, change).unwrap_err().message;
        let gap = refused(8, |s| s.data_slots = Some(256));
        assert!(gap.contains("data_slots is 256") && gap.contains("at least 512"), "{gap}");
        assert!(refused(2, |s| s.quorum = Some(3)).contains("all workers in every sum"));
        let shared = ShareServers { at: vec![at(1)[0]; 2], shards: 1 };
        let overlap = JobSpec::from_request(&section("workers = 4"), 1, Some(&shared)).unwrap_err().message;
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
        assert_eq!((spec.workers, spec.quorum, spec.may_skip()), (4, 3, true));
        let shown = spec.to_section(Vec::new());
        assert_eq!((shown.workers(), shown.quorum()), (4, 3));
        let setup = spec.setup(None).unwrap();
        let told = setup.root.unwrap().welcome.rack.unwrap();
        assert_eq!((told.workers, told.quorum, setup.welcome.tables.first().id.0), (12, 11, 7));
        assert_eq!(JobSpec::from_request(&shown, 7, None).unwrap().rack, spec.rack);
        // 160 workers need lanes of 16 bits above, and 8 do below.
        let spec = rack(&["8"; 20].join(", "), 0, "").unwrap();
        let setup = spec.setup(None).unwrap();
        let table = setup.welcome.tables.first();
        assert_eq!(
            (table.form.to_string().as_str(), spec.rack.unwrap().form(table)),
            ("4/16", Some(Form::USUAL))
        );
        let refused = |racks, number, more| rack(racks, number, more).unwrap_err();
        assert!(refused("8, 8", 2, "").contains("rack is 2, and the last of 2 is 1"));
        assert!(refused("8", 0, "root = \"host\"").contains("10.0.0.1:9000"));
        assert!(refused("8", 0, "root_mac = \"1\"").contains("root_mac"));
        assert!(JobSection::parse("racks = [\"x\"]").unwrap_err().to_string().contains("not a rack"));
    }

    #[test]
    fn bits_are_those_of_a_switchs_tables() {
        for bits in [0, 5, 8, u32::MAX] {
            let refused = spec(&format!("workers = 4\nbits = {bits}")).unwrap_err();
            assert!(refused.contains(&format!("bits is {bits}: give 1 to 4")), "{refused}");
        }
        for bits in 1..=4 {
            assert_eq!(spec(&format!("workers = 4\nbits = {bits}")).unwrap().bits, bits);
        }
    }

    #[test]
    fn nothing_shows_a_cookie() {
        let spec = spec("workers = 4\ncookie = 0xDEAD").unwrap();
        assert_eq!(spec.cookie.0, 0xDEAD);
        assert_eq!(spec.to_section(Vec::new()).options.cookie, None);
        assert!(!format!("{spec:?}").contains("57005"));
    }
}
