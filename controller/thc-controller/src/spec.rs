//! What a job is made of, as it is asked for, kept and handed to targets.

use crate::capacity::Rows;
use crate::rack::Rack;
use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thc_control_proto::v1;
use thc_options::{Fraction, Interval, JobOptions, JobSetup, PolicyName, ServerOptions, TableOptions};
use thc_protocol::Policy;
use thc_protocol::aggregator::{JobConfig, Shard};
use thc_protocol::wire::{BLOCKS, Form, Table, Tables};

/// Longest name of a job.
const MAX_NAME: usize = 63;
/// Slots unless told otherwise: the windows of few workers, and a quarter of a switch.
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
pub struct Spec {
    /// What operators and workers call it.
    pub name: String,
    /// Its number on the wire.
    pub number: u16,
    /// With which workers join.
    pub cookie: Hidden<u32>,
    /// Of the signs; from cookie and number if none is given.
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
    /// The targets that have a share of its slots each, in order; none if each target has them all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// The targets that stand by for these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<String>,
    /// Its lookup tables beside the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Further>,
    /// Whether sessions of all sizes have the first table, since it was asked for.
    #[serde(default)]
    pub one_table: bool,
    /// How many workers its sessions may have, if its members come and go; `workers` is the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Members>,
    /// Of which racks its target is which; none if the target's sums are results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<Rack>,
}

/// Of a job whose members come and go (P42).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// The fewest workers of a session.
    pub least: u8,
    /// A member that is silent for so long is gone, in milliseconds.
    pub gone_after_ms: u32,
    /// How long the first session waits for more workers, in milliseconds.
    pub gather_ms: u32,
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
    /// By share.
    pub at: Vec<SocketAddr>,
    /// How many of them, the last ones, stand by.
    pub spares: u8,
    /// Ports of each.
    pub shards: u8,
}

impl ShareServers {
    /// Data slots unless told otherwise: two blocks for every port, up to as many as a switch has.
    fn data_slots(&self) -> u32 {
        (2 * u32::from(Shard::BLOCK) * self.homes() as u32 * u32::from(self.shards))
            .clamp(DATA_SLOTS, MOST_DATA_SLOTS)
    }

    /// How many of them have slots at home.
    #[must_use]
    pub fn homes(&self) -> usize {
        self.at.len() - usize::from(self.spares)
    }
}

impl Spec {
    /// Checks what is asked for and fills in the rest. `number` is the job's if none is asked for, `shared` tells where its
    /// servers are if it names any.
    ///
    /// # Errors
    /// What is wrong and how to mend it.
    pub fn from_request(
        asked: &v1::JobSpec,
        number: u16,
        shared: Option<&ShareServers>,
    ) -> Result<Spec, Refusal> {
        let name = &asked.name;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
            return Err(Refusal::invalid(format!(
                "job name {name:?}: give 1 to {MAX_NAME} letters, digits, '-', '_' or '.'"
            )));
        }
        let fraction = match &asked.fraction {
            None => None,
            Some(text) => Some(
                text.parse::<Fraction>()
                    .map_err(|error| Refusal::invalid(format!("job {name}: fraction: {error}")))?,
            ),
        };
        let policy = match asked.policy.as_deref() {
            None | Some("reliable") => PolicyName::Reliable,
            Some("best-effort") => PolicyName::BestEffort,
            Some(other) => {
                let text = format!("job {name}: policy {other:?}: give reliable or best-effort");
                return Err(Refusal::invalid(text));
            }
        };
        if let Some(bits) = asked.bits.filter(|bits| !(1..=4).contains(bits)) {
            let text =
                format!("job {name}: bits is {bits}: give 1 to 4, which is what switches have tables for");
            return Err(Refusal::invalid(text));
        }
        let rack = asked.rack.as_ref().map(|rack| Rack::from_request(name, rack)).transpose()?;
        let changing = asked.min_workers.is_some() || asked.max_workers.is_some();
        if rack.is_some() && (changing || !asked.spares.is_empty()) {
            let what = if changing { "min_workers and max_workers" } else { "spares" };
            let text = format!(
                "job {name}: a rack has the same workers as long as it lives, and no spare: leave out {what}"
            );
            return Err(Refusal::invalid(text));
        }
        let options = JobOptions {
            job: Some(asked.number.map_or(u64::from(number), u64::from)),
            // With racks, they say it.
            workers: Some(asked.workers.into())
                .filter(|_| (rack.is_none() && !changing) || asked.workers > 0),
            min_workers: asked.min_workers.map(Into::into),
            max_workers: asked.max_workers.map(Into::into),
            gone_after: asked.gone_after_ms.map(milliseconds),
            gather: asked.gather_ms.map(milliseconds),
            racks: rack.as_ref().map(Rack::sizes),
            cookie: Some(asked.cookie.unwrap_or_else(|| thc_options::cookie::random().max(1)))
                .map(|cookie| u64::from(cookie).into()),
            seed: asked.seed.map(Into::into),
            bits: asked.bits.map(Into::into),
            granularity: asked.granularity.map(Into::into),
            fraction,
            data_slots: Some(asked.data_slots.unwrap_or_else(|| slots(shared)).into()),
            norm_slots: asked.norm_slots.map(Into::into),
            block: asked.block.map(Into::into),
            quorum: asked.quorum.map(Into::into),
            policy: Some(policy),
            deadline: asked.deadline_ms.map(|ms| Interval(Duration::from_millis(ms.into()))),
            tables: asked
                .tables
                .iter()
                .map(further)
                .collect::<Result<_, _>>()
                .map_err(|error| Refusal::invalid(format!("job {name}: tables: fraction: {error}")))?,
            ..JobOptions::default()
        };
        let setup = validated(options, shared, rack.as_ref())
            .map_err(|error| Refusal::invalid(format!("job {name}: {error}")))?;
        let (config, welcome) = (&setup.config, &setup.welcome);
        let table = welcome.tables.first();
        let norm_slots = asked.norm_slots.unwrap_or(config.norm_slots.min(MOST_NORM_SLOTS));
        let members = setup.sizes.as_ref().map(|sizes| Members {
            least: sizes.least(),
            gone_after_ms: sizes.gone_after.as_millis() as u32,
            gather_ms: sizes.gather.as_millis() as u32,
        });
        Ok(Spec {
            name: name.clone(),
            number: config.job.0,
            cookie: Hidden(config.cookie.0),
            seed: asked.seed.map(Hidden),
            workers: config.workers,
            bits: table.bits,
            granularity: table.granularity,
            fraction: table.fraction,
            data_slots: config.data_slots,
            norm_slots,
            block: welcome.block,
            quorum: config.quorum,
            best_effort: policy == PolicyName::BestEffort,
            deadline_ms: welcome.deadline.as_millis() as u32,
            servers: asked.servers.clone(),
            spares: asked.spares.clone(),
            tables: welcome.tables[1..].iter().map(Further::new).collect(),
            one_table: asked.granularity.is_some(),
            members,
            rack,
        })
    }

    /// As an aggregator and its workers want it; the table's number is not in it yet.
    ///
    /// # Errors
    /// [`thc_options::ConfigError`], if the spec was not made by [`Self::from_request`].
    pub fn setup(&self, shared: Option<&ShareServers>) -> Result<JobSetup, thc_options::ConfigError> {
        let options = JobOptions {
            job: Some(self.number.into()),
            workers: Some(self.workers.into()).filter(|_| self.rack.is_none() && self.members.is_none()),
            min_workers: self.members.map(|members| members.least.into()),
            max_workers: self.members.map(|_| self.workers.into()),
            gone_after: self.members.map(|members| milliseconds(members.gone_after_ms)),
            gather: self.members.map(|members| milliseconds(members.gather_ms)),
            racks: self.rack.as_ref().map(Rack::sizes),
            cookie: Some(u64::from(self.cookie.0).into()),
            seed: self.seed.map(|seed| seed.0.into()),
            bits: Some(self.bits.into()),
            // Where members come and go each number of workers has a table of its own, unless one was asked for.
            granularity: Some(self.granularity.into()).filter(|_| self.members.is_none() || self.one_table),
            fraction: Some(Fraction(self.fraction)).filter(|_| self.members.is_none() || self.one_table),
            data_slots: Some(self.data_slots.into()),
            norm_slots: Some(self.norm_slots.into()),
            block: Some(self.block.into()),
            quorum: Some(self.quorum.into()).filter(|_| self.rack.is_none() && self.members.is_none()),
            policy: Some(if self.best_effort { PolicyName::BestEffort } else { PolicyName::Reliable }),
            deadline: Some(Interval(Duration::from_millis(self.deadline_ms.into()))),
            tables: self.tables.iter().map(Further::options).collect(),
            ..JobOptions::default()
        };
        validated(options, shared, self.rack.as_ref())
    }

    /// Whether it can become this at a boundary of a session, whose workers keep what they were told when they joined.
    #[must_use]
    pub fn may_become(&self, next: &Spec) -> bool {
        let kept = |spec: &Spec| {
            let Spec {
                number, cookie, seed, data_slots, norm_slots, block, best_effort, deadline_ms, ..
            } = *spec;
            (number, cookie, seed, data_slots, norm_slots, block, best_effort, deadline_ms)
        };
        // One server alone is named here only where it has spares, which may come and go.
        let shares = |spec: &Spec| if spec.servers.len() > 1 { spec.servers.clone() } else { Vec::new() };
        kept(self) == kept(next) && self.rack == next.rack && shares(self) == shares(next)
    }

    /// Whether its workers may go on without a slot (P9).
    #[must_use]
    pub fn may_skip(&self) -> bool {
        let policy = if self.best_effort { Policy::BestEffort } else { Policy::Reliable };
        JobConfig::may_skip(policy, self.quorum, self.workers)
            || self.rack.as_ref().is_some_and(Rack::by_quorum)
    }

    /// As it is shown: without secrets.
    #[must_use]
    pub fn shown(&self, targets: Vec<String>) -> v1::JobSpec {
        v1::JobSpec {
            name: self.name.clone(),
            workers: self.workers.into(),
            bits: Some(self.bits.into()),
            granularity: Some(self.granularity.into()),
            fraction: Some(fraction_text(self.fraction)),
            data_slots: Some(self.data_slots),
            norm_slots: Some(self.norm_slots),
            block: Some(self.block.into()),
            quorum: Some(self.quorum.into()),
            policy: Some(self.policy().to_owned()),
            deadline_ms: Some(self.deadline_ms),
            number: Some(self.number.into()),
            cookie: None,
            seed: None,
            targets: if self.servers.is_empty() { targets } else { Vec::new() },
            servers: self.servers.clone(),
            spares: self.spares.clone(),
            tables: self.tables.iter().map(Further::shown).collect(),
            rack: self.rack.as_ref().map(Rack::shown),
            min_workers: self.members.map(|members| members.least.into()),
            max_workers: self.members.map(|_| self.workers.into()),
            gone_after_ms: self.members.map(|members| members.gone_after_ms),
            gather_ms: self.members.map(|members| members.gather_ms),
        }
    }

    /// Rows that it has in a target's tables, at most. A root has no use for more ports than there are blocks of slots.
    #[must_use]
    pub fn rows(&self) -> Rows {
        let workers = u32::from(self.workers);
        let blocks = self.data_slots.max(self.norm_slots).div_ceil(Shard::BLOCK.into());
        let roots = if self.rack.is_some() { blocks } else { 0 };
        Rows { members: workers, addresses: workers + roots, job_tables: 1 + self.tables.len() as u32, roots }
    }

    /// Whether each of its targets has a share of its slots, or stands by for those that have.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        !self.servers.is_empty()
    }

    /// Whether this target has its sessions from the first one.
    #[must_use]
    pub fn follows_at(&self, target: &str) -> bool {
        self.servers.first().is_some_and(|first| first != target)
    }

    /// The loss policy's name.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        if self.best_effort { "best-effort" } else { "reliable" }
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

    fn shown(&self) -> v1::TableSpec {
        v1::TableSpec {
            bits: Some(self.bits.into()),
            granularity: Some(self.granularity.into()),
            fraction: Some(fraction_text(self.fraction)),
            lane: Some(self.lane.into()),
        }
    }
}

/// A further table as it is asked for.
fn further(asked: &v1::TableSpec) -> Result<TableOptions, String> {
    Ok(TableOptions {
        table: None,
        bits: asked.bits.map(Into::into),
        granularity: asked.granularity.map(Into::into),
        fraction: asked.fraction.as_deref().map(str::parse).transpose()?,
        lane: asked.lane.map(Into::into),
        down: None,
    })
}

/// What books from before jobs could say it mean.
fn largest_block() -> u8 {
    *BLOCKS.end()
}

fn slots(shared: Option<&ShareServers>) -> u32 {
    shared.map_or(DATA_SLOTS, ShareServers::data_slots)
}

/// A job goes through the same checks whoever configures it.
fn validated(
    options: JobOptions,
    shared: Option<&ShareServers>,
    rack: Option<&Rack>,
) -> Result<JobSetup, thc_options::ConfigError> {
    let lanes: Vec<Option<u64>> = options.tables.iter().map(|table| table.lane).collect();
    let mut server = ServerOptions { job: vec![options], ..ServerOptions::default() };
    if let Some(shared) = shared {
        let mut at: Vec<String> = shared.at.iter().map(ToString::to_string).collect();
        server.share = Some(format!("0/{}", at.len()));
        server.spares = Some(at.split_off(shared.homes())).filter(|spares| !spares.is_empty());
        (server.shares, server.shards) = (Some(at), Some(shared.shards.into()));
    }
    if let Some(rack) = rack {
        // Where it listens is the target's affair.
        (server.listen, server.shards) = (Some("127.0.0.1:0".to_owned()), Some(1));
        (server.rack, server.root) = (Some(rack.number.into()), Some(rack.root.to_string()));
    }
    let mut config = server.validate()?;
    let mut setup = config.jobs.pop().ok_or(thc_options::ConfigError::NoJob)?;
    if rack.is_some() {
        return Ok(setup);
    }
    setup.welcome.tables = in_usual_form(setup.welcome.tables, &lanes);
    if let Some(sizes) = &mut setup.sizes {
        for (_, welcome) in &mut Arc::make_mut(sizes).shapes {
            welcome.tables = in_usual_form(welcome.tables, &lanes);
        }
    }
    Ok(setup)
}

/// Every aggregator has the usual form: fewer bits of the first table travel in it as they are.
fn in_usual_form(told: Tables, lanes: &[Option<u64>]) -> Tables {
    let mut tables = told.to_vec();
    // Sums are packed only where that was asked for.
    for (table, _) in tables.iter_mut().skip(1).zip(lanes).filter(|(_, lane)| lane.is_none()) {
        table.form = Form::new(table.form.width(), table.form.lane()).unwrap_or(table.form);
    }
    tables.iter_mut().take(1).for_each(|first| first.form = Form::USUAL);
    Tables::new(&tables).unwrap_or(told)
}

fn milliseconds(ms: u32) -> Interval {
    Interval(Duration::from_millis(ms.into()))
}

/// 1/32 instead of 0.03125 where that is exact.
#[must_use]
pub fn fraction_text(fraction: f64) -> String {
    let whole = (1.0 / fraction).round();
    if 1.0 / whole == fraction { format!("1/{whole}") } else { fraction.to_string() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn asked() -> v1::JobSpec {
        v1::JobSpec { name: "train".to_owned(), workers: 4, ..v1::JobSpec::default() }
    }

    #[test]
    fn what_is_not_given_is_filled_in() {
        let spec = Spec::from_request(&asked(), 7, None).unwrap();
        assert_eq!((spec.number, spec.bits, spec.quorum, spec.policy()), (7, 4, 4, "reliable"));
        assert!(u32::from(spec.granularity) * 4 <= 255);
        let setup = spec.setup(None).unwrap();
        assert_eq!((setup.config.job.0, setup.welcome.tables.first().granularity), (7, spec.granularity));
        assert_eq!(setup.config.cookie.0, spec.cookie.0);
    }

    #[test]
    fn small_blocks_get_more_norm_slots() {
        for (block, slots) in [(20, 64), (16, 128), (13, 256), (10, 256)] {
            let spec = Spec::from_request(&v1::JobSpec { block: Some(block), ..asked() }, 7, None).unwrap();
            assert_eq!((u32::from(spec.block), spec.norm_slots), (block, slots));
            let setup = spec.setup(None).unwrap();
            assert_eq!((setup.welcome.block, setup.welcome.norm_slots), (spec.block, slots));
            assert_eq!(spec.shown(Vec::new()).block, Some(block));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let with = |change: fn(&mut v1::JobSpec)| {
            let mut spec = asked();
            change(&mut spec);
            Spec::from_request(&spec, 1, None).unwrap_err().message
        };
        assert!(with(|s| s.name = "a b".into()).contains("a b"));
        assert!(with(|s| s.workers = 0).contains("workers"));
        assert!(with(|s| s.policy = Some("some".into())).contains("best-effort"));
        assert!(with(|s| s.granularity = Some(30)).contains("fraction"));
        assert!(with(|s| s.fraction = Some("x".into())).contains("fraction"));
        let lanes = with(|s| {
            s.granularity = Some(100);
            s.fraction = Some("1/32".into());
        });
        assert!(lanes.contains("at most 63"), "{lanes}");
        assert!(with(|s| s.data_slots = Some(3)).contains("even"));
        assert!(with(|s| s.block = Some(21)).contains("10 to 20"));
    }

    #[test]
    fn servers_have_slots_each_and_all_workers_in_every_sum() {
        let at = |count: u16| (0..count).map(|i| SocketAddr::from(([10, 0, 0, 1], 9000 + i))).collect();
        let of = |count, change: fn(&mut v1::JobSpec)| {
            let servers = (0..count).map(|i| format!("h{i}")).collect();
            let mut asked = v1::JobSpec { servers, ..asked() };
            change(&mut asked);
            let shared = ShareServers { at: at(count), spares: 0, shards: 1 };
            Spec::from_request(&asked, 7, Some(&shared))
                .map(|spec| (spec.setup(Some(&shared)).unwrap(), spec))
        };
        for (count, slots) in [(2, 256), (4, 512), (8, 1024), (16, 1024)] {
            let (setup, spec) = of(count, |_| {}).unwrap();
            assert_eq!((spec.data_slots, spec.servers.len()), (slots, count.into()));
            assert_eq!(setup.welcome.shares.as_slice(), at(count));
        }
        let refused = |count, change| of(count, change).unwrap_err().message;
        let gap = refused(8, |s| s.data_slots = Some(256));
        assert!(gap.contains("data_slots is 256") && gap.contains("at least 512"), "{gap}");
        assert!(refused(2, |s| s.quorum = Some(3)).contains("all workers in every sum"));
        let shared = ShareServers { at: vec![at(1)[0]; 2], spares: 0, shards: 1 };
        let overlap = Spec::from_request(&asked(), 1, Some(&shared)).unwrap_err().message;
        assert!(overlap.contains("shares 0 and 1 overlap"), "{overlap}");
    }

    #[test]
    fn a_rack_has_the_members_and_tables_that_its_root_knows() {
        let rack = |racks: &[&str], number| v1::RackSpec {
            number,
            racks: racks.iter().map(|&size| size.to_owned()).collect(),
            root: "10.0.0.9:9000".to_owned(),
            mac: "02:00:00:00:00:09".to_owned(),
        };
        let of = |rack| Spec::from_request(&v1::JobSpec { workers: 0, rack: Some(rack), ..asked() }, 7, None);
        let spec = of(rack(&["8", "3/4"], 1)).unwrap();
        assert_eq!((spec.workers, spec.quorum, spec.may_skip()), (4, 3, true));
        let setup = spec.setup(None).unwrap();
        let told = setup.root.unwrap().welcome.rack.unwrap();
        assert_eq!((told.workers, told.quorum, setup.welcome.tables.first().id.0), (12, 11, 7));
        assert_eq!(of(spec.shown(Vec::new()).rack.unwrap()).unwrap().rack, spec.rack);
        // 160 workers need lanes of 16 bits above, and 8 do below.
        let spec = of(rack(&["8"; 20], 0)).unwrap();
        let setup = spec.setup(None).unwrap();
        let table = setup.welcome.tables.first();
        assert_eq!(
            (table.form.to_string().as_str(), spec.rack.unwrap().form(table)),
            ("4/16", Some(Form::USUAL))
        );
        let refused = |rack| of(rack).unwrap_err().message;
        assert!(refused(rack(&["8", "8"], 2)).contains("rack is 2, and the last of 2 is 1"));
        assert!(refused(rack(&["8", "x"], 0)).contains("no rack"));
        assert!(refused(v1::RackSpec { root: "host".into(), ..rack(&["8"], 0) }).contains("10.0.0.1:9000"));
        assert!(refused(v1::RackSpec { mac: "1".into(), ..rack(&["8"], 0) }).contains("root_mac"));
    }

    #[test]
    fn bits_are_those_of_a_switchs_tables() {
        for bits in [0, 5, 8, u32::MAX] {
            let refused =
                Spec::from_request(&v1::JobSpec { bits: Some(bits), ..asked() }, 1, None).unwrap_err();
            assert!(refused.message.contains(&format!("bits is {bits}: give 1 to 4")), "{refused:?}");
        }
        for bits in 1..=4 {
            assert_eq!(
                u32::from(
                    Spec::from_request(&v1::JobSpec { bits: Some(bits), ..asked() }, 1, None).unwrap().bits
                ),
                bits
            );
        }
    }

    #[test]
    fn nothing_shows_a_cookie() {
        let spec = Spec::from_request(&v1::JobSpec { cookie: Some(0xDEAD), ..asked() }, 1, None).unwrap();
        assert_eq!(spec.cookie.0, 0xDEAD);
        assert_eq!(spec.shown(Vec::new()).cookie, None);
        assert!(!format!("{spec:?}").contains("57005"));
    }

    #[test]
    fn fractions_are_short() {
        assert_eq!(fraction_text(1.0 / 32.0), "1/32");
        assert_eq!(fraction_text(1.0 / 1000.0), "1/1000");
        assert_eq!(fraction_text(0.3), "0.3");
    }
}
