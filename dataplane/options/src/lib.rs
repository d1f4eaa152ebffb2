//! A server's settings: as they are written ([`ServerOptions`]) and as they are used ([`ServerConfig`]). All
//! defaults are here. A controller uses the same options for its jobs without linking a server.
#![forbid(unsafe_code)]

pub mod cookie;
pub mod credit;
mod error;
mod job;
mod keywords;
mod merge;
mod number;
mod options;
mod p4runtime;
mod rack_size;
mod racks;
mod shares;
mod sizes;
mod tables;
mod tls;

pub use error::{ConfigError, Section};
pub use job::{JobOptions, PolicyName};
pub use keywords::{Keyword, KeywordKind};
pub use merge::{merge, set};
pub use options::ServerOptions;
pub use p4runtime::{P4RuntimeConfig, P4RuntimeOptions};
pub use rack_size::RackSize;
pub use tables::{TableOptions, wire_table};
pub use thc_values::{Fraction, Interval, Secret, Size};
pub use tls::{CertificateFiles, TlsOptions};

use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use number::number;
use racks::Standing;
use tables::Known;
use thc_codec::partition::DEFAULT_BLOCK;
use thc_codec::signs::mix;
use thc_protocol::aggregator::{JobConfig, Shard};
use thc_protocol::session::{Root, Sizes, StaticJob};
use thc_protocol::wire::{BLOCKS, HEADER_LEN, MAX_PACKET, Members, Shares, Tables, Welcome};
use thc_protocol::{Cookie, JobId, MAX_WORKERS, Policy};
use thc_transport::{Backend, CaptureConfig, IoName, LossyConfig, backend, is_link_local};

/// Where a server listens unless told otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:9000";
/// The same over DPDK and AF_XDP: the address is that of the `[dpdk]` section or of the interface.
const DEFAULT_DEVICE_LISTEN: &str = "0.0.0.0:9000";
/// Bytes of a port's receive buffer unless told otherwise.
pub const DEFAULT_RECV_BUFFER: usize = 16 << 20;
/// Bytes of its send buffer.
pub const DEFAULT_SEND_BUFFER: usize = 4 << 20;
const DEFAULT_MEMORY_LIMIT: usize = 1 << 30;
const DEFAULT_DATA_SLOTS: u64 = 1024;
const DEFAULT_DEADLINE: Duration = Duration::from_millis(200);

/// More shards than that find no slots (P21).
const MAX_SHARDS: u64 = 64;
/// The smallest buffer that holds a whole run of packets.
const MIN_BUFFER: usize = 64 << 10;
/// What WELCOME can say (P23), rounded down.
const MAX_DEADLINE: Duration = Duration::from_secs(3600);

/// A checked configuration: [`ServerOptions::validate`] makes it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// What carries the packets.
    pub io: Backend,
    /// Address and port of the first shard; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Threads and ports, at least 1.
    pub shards: u8,
    /// Which share of the slots this server has, and where all shares are; 0 and none if it has all slots.
    pub share: u8,
    /// Where all shares are.
    pub shares: Shares,
    /// How many of them, the last ones, are spares.
    pub spares: u8,
    /// Bytes, of each port.
    pub recv_buffer: usize,
    /// Bytes, of each port.
    pub send_buffer: usize,
    /// Bytes, for the slots of all jobs.
    pub memory_limit: usize,
    /// Members of all of a controller's jobs for which receive buffers are planned.
    pub members: u32,
    /// Spin instead of sleeping.
    pub busy_poll: bool,
    /// Cores of the shards; empty leaves them where the system likes.
    pub pin: Vec<usize>,
    /// Static jobs. Without any, a controller writes jobs by P4Runtime.
    pub jobs: Vec<JobSetup>,
    /// Where P4Runtime is served, if it is.
    pub p4runtime: Option<P4RuntimeConfig>,
    /// Where the program answers Prometheus, if it does.
    pub http: Option<SocketAddr>,
    /// Where to write what goes in and out of all ports.
    pub capture: Option<CaptureConfig>,
    /// Faults to inject on every port, for tests.
    pub faults: Option<LossyConfig>,
}

/// A checked job.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobSetup {
    /// Its shape, with the cookie that workers join with.
    pub config: JobConfig,
    /// What its workers are told, but for session and nonce.
    pub welcome: Welcome,
    /// The root, if this server is a rack of the job.
    pub root: Option<Root>,
    /// Sessions of other sizes, if members come and go; `config` and `welcome` are of the largest.
    pub sizes: Option<Arc<Sizes>>,
}

impl JobSetup {
    /// The job as the session registry takes it.
    #[must_use]
    pub fn to_static(&self) -> StaticJob {
        let sizes = self.sizes.clone();
        StaticJob { config: self.config.clone(), welcome: self.welcome, root: self.root, sizes }
    }
}

/// Shards on a machine with so many usable cores. The kernel needs as many again for its work on packets, and
/// other programs should have some: with more shards than free cores, shards wait for each other.
fn default_shards(cores: usize) -> u64 {
    (cores / 4).clamp(1, 4) as u64
}

impl ServerOptions {
    /// Checks everything, fills in defaults, and solves or chooses the lookup tables.
    ///
    /// # Errors
    /// The [`ConfigError`] of the first thing that is wrong.
    pub fn validate(&self) -> Result<ServerConfig, ConfigError> {
        let section = Section::Server;
        // Past the kernel there is no loopback interface to listen on.
        let default = match self.io {
            Some(IoName::Dpdk | IoName::Xdp) => DEFAULT_DEVICE_LISTEN,
            Some(IoName::Udp) | None => DEFAULT_LISTEN,
        };
        let (share, shares, spares) = self.shares()?;
        let own = shares.get(usize::from(share)).copied();
        let own_text = own.map(|at| at.to_string());
        let listen_text = self.listen.as_deref().or(own_text.as_deref()).unwrap_or(default);
        let parsed = listen_text.parse().ok().filter(|at: &SocketAddr| !is_link_local(at.ip()));
        let mut listen = parsed.ok_or_else(|| {
            let mend = "give an address (no link-local one) and a port, such as 0.0.0.0:9000 or [::]:9000"
                .to_owned();
            ConfigError::Value { section, key: "listen", value: format!("{listen_text:?}"), mend }
        })?;
        let io = backend(self.io, listen.ip(), &self.dpdk, &self.xdp)?;
        if let Backend::Dpdk(dpdk) = &io {
            if listen.ip().is_unspecified() {
                listen.set_ip(dpdk.address.into());
            } else if listen.ip() != dpdk.address {
                let mend =
                    format!("over DPDK this end has the address {} only, give that or 0.0.0.0", dpdk.address);
                return Err(ConfigError::Value { section, key: "listen", value: listen.to_string(), mend });
            }
        }
        let limit = self.pcap_limit.map_or(CaptureConfig::DEFAULT_LIMIT, |Size(bytes)| bytes as u64);
        let capture = self.pcap.clone().map(|path| CaptureConfig { path, limit });
        let pin = self.pin.clone().unwrap_or_default();
        let default = match &io {
            _ if !pin.is_empty() => pin.len() as u64,
            // Of a device, each takes a queue.
            Backend::Dpdk(_) | Backend::Xdp(_) => 1,
            Backend::Udp => default_shards(thread::available_parallelism().map_or(1, NonZero::get)),
        };
        // Beside a worker, one thread is enough for a share of the slots.
        let standing = self.standing(listen)?;
        let alone = shares.is_empty() && matches!(standing, Standing::Top);
        let default = if alone || !pin.is_empty() { default } else { 1 };
        let shards = number(section, "shards", self.shards, default, 1..=MAX_SHARDS)? as u8;
        let shares = match shares.is_empty() {
            true => Shares::NONE,
            false => Shares::new(&shares, shards)?,
        };
        if let Some(own) = own.filter(|own| own.port() != listen.port()) {
            let mend = format!("share {share} has port {} in shares, give the same", own.port());
            return Err(ConfigError::Value { section, key: "listen", value: listen.to_string(), mend });
        }
        if listen.port() != 0 && usize::from(listen.port()) + usize::from(shards) - 1 > usize::from(u16::MAX)
        {
            let mend =
                format!("{shards} shards need as many ports, give one up to {}", 65536 - u32::from(shards));
            return Err(ConfigError::Value { section, key: "listen", value: listen.to_string(), mend });
        }
        let buffer = |key, size: Option<Size>, default| match size {
            Some(Size(bytes)) if bytes < MIN_BUFFER => {
                let mend = "give at least 64KiB".to_owned();
                Err(ConfigError::Value { section, key, value: format!("{bytes} bytes"), mend })
            }
            size => Ok(size.map_or(default, |Size(bytes)| bytes)),
        };
        if !pin.is_empty() && pin.len() != usize::from(shards) {
            let mend = format!("name one core for each of the {shards} shards");
            return Err(ConfigError::Value { section, key: "pin", value: format!("{pin:?}"), mend });
        }
        let mut config = ServerConfig {
            io,
            listen,
            shards,
            share,
            shares,
            spares,
            recv_buffer: buffer("recv_buffer", self.recv_buffer, DEFAULT_RECV_BUFFER)?,
            send_buffer: buffer("send_buffer", self.send_buffer, DEFAULT_SEND_BUFFER)?,
            memory_limit: self.memory_limit.map_or(DEFAULT_MEMORY_LIMIT, |Size(bytes)| bytes),
            members: number(section, "members", self.members, credit::DEFAULT_MEMBERS.into(), 1..=65535)?
                as u32,
            busy_poll: self.busy_poll.unwrap_or(false),
            pin,
            jobs: Vec::new(),
            p4runtime: self.p4runtime.as_ref().map(P4RuntimeOptions::validate).transpose()?,
            http: self.http.as_deref().map(http).transpose()?,
            capture,
            faults: self.faults,
        };
        if self.job.is_empty() && config.p4runtime.is_none() {
            return Err(ConfigError::NoJob);
        }
        let mut known = Known::new();
        for (section, job) in self.job.iter().enumerate() {
            let setup = job.validate(section + 1, shards, (shares, spares), standing, &mut known)?;
            let number = setup.config.job;
            if config.jobs.iter().any(|other| other.config.job == number) {
                return Err(ConfigError::Duplicate { job: number.0 });
            }
            config.jobs.push(setup);
        }
        let own = || config.slices();
        let needs: usize =
            config.jobs.iter().flat_map(|job| own().map(|shard| job.config.memory(shard))).sum();
        if needs > config.memory_limit {
            let words = |bytes: usize| Size(bytes).to_string();
            return Err(ConfigError::Memory { needs: words(needs), limit: words(config.memory_limit) });
        }
        Ok(config)
    }
}

impl ServerConfig {
    /// P41: divides a port's receive buffer, which holds `room` data packets, among all that send to it: the
    /// members of all jobs, the racks of a root, and the root of a rack, whose results are no more than one
    /// member's packets.
    pub fn give_credit(&mut self, room: usize) {
        let senders = |job: &JobSetup| usize::from(job.config.workers) + usize::from(job.root.is_some());
        let all: usize = self.jobs.iter().map(senders).sum();
        let ports = usize::from(self.shards) * usize::from(self.shares.servers() - self.spares);
        let credit = credit::largest(room / all.max(1), ports);
        for job in &mut self.jobs {
            job.welcome.credit = credit;
            if let Some(sizes) = &mut job.sizes {
                Arc::make_mut(sizes).shapes.iter_mut().for_each(|(_, welcome)| welcome.credit = credit);
            }
        }
    }

    /// P46: says whether members of its jobs are told congestion marks.
    pub fn tell_marks(&mut self, marks: bool) {
        for job in &mut self.jobs {
            job.welcome.marks = marks;
            if let Some(sizes) = &mut job.sizes {
                Arc::make_mut(sizes).shapes.iter_mut().for_each(|(_, welcome)| welcome.marks = marks);
            }
        }
    }

    /// What each of its ports has of the slots, in order (P21).
    pub fn slices(&self) -> impl Iterator<Item = Shard> {
        Shard::split(self.shards)
    }
}

fn http(text: &str) -> Result<SocketAddr, ConfigError> {
    text.parse().map_err(|_| ConfigError::Value {
        section: Section::Server,
        key: "http",
        value: format!("{text:?}"),
        mend: "give an address and a port, such as 127.0.0.1:9100".to_owned(),
    })
}

fn slots(section: Section, key: &'static str, given: Option<u64>, default: u64) -> Result<u32, ConfigError> {
    let value = number(section, key, given, default, 2..=65536)?;
    if value % 2 != 0 {
        let mend = format!("use an even number, such as {}", value + 1);
        return Err(ConfigError::Value { section, key, value: value.to_string(), mend });
    }
    Ok(value as u32)
}

impl JobOptions {
    fn validate(
        &self,
        section: usize,
        shards: u8,
        (shares, spares): (Shares, u8),
        standing: Standing,
        known: &mut Known,
    ) -> Result<JobSetup, ConfigError> {
        let missing = |section, key, mend| ConfigError::Missing { section, key, mend };
        let section = Section::Nth(section);
        let job = self.job.ok_or_else(|| missing(section, "job", "give the job a number, 0 to 65535"))?;
        let job = number(section, "job", Some(job), 0, 0..=u64::from(u16::MAX))? as u16;
        let section = Section::Job(job);
        let layout = self.layout(job, standing, shares != Shares::NONE)?;
        let come_and_go = self.range(section)?;
        let (workers, all_workers) = match &layout {
            Some(layout) => {
                if let Some(most) = self.max_workers.or(self.min_workers) {
                    let mend = "members of racks do not come and go, leave min_workers and max_workers out"
                        .to_owned();
                    let key = "max_workers";
                    return Err(ConfigError::Value { section, key, value: most.to_string(), mend });
                }
                (layout.members(standing).0, layout.racks.total)
            }
            None if come_and_go.is_some() => {
                come_and_go.map_or((0, 0), |sizes| (sizes.most, sizes.most.into()))
            }
            None => {
                let workers = self.workers.or(self.max_workers).ok_or_else(|| {
                    missing(section, "workers", "say how many workers the job has, 1 to 64")
                })?;
                let workers = number(section, "workers", Some(workers), 0, 1..=MAX_WORKERS as u64)?;
                (workers as u8, workers as u16)
            }
        };
        let cookie = self
            .cookie
            .as_ref()
            .ok_or_else(|| missing(section, "cookie", "give a secret number that the workers give too"))?;
        let range = "from 1 to 0xffffffff";
        let cookie = cookie.cookie().filter(|&number| number != 0).ok_or(ConfigError::Secret {
            section,
            key: "cookie",
            range,
        })?;
        let seed = match &self.seed {
            None => default_seed(cookie, job),
            Some(seed) => seed.number().ok_or(ConfigError::Secret {
                section,
                key: "seed",
                range: "from 0 to 0xffffffffffffffff",
            })?,
        };
        let all = u64::from(workers);
        let quorum = match &layout {
            Some(layout) => layout.members(standing).1,
            None => number(section, "quorum", self.quorum, all, 1..=all)? as u8,
        };
        if shares != Shares::NONE && u64::from(quorum) < all {
            let mend = "shares of a server need all workers in every sum, leave quorum out".to_owned();
            return Err(ConfigError::Value { section, key: "quorum", value: quorum.to_string(), mend });
        }
        let homes = shares.servers() - spares;
        let default = default_data_slots(shards * homes);
        let data_slots = slots(section, "data_slots", self.data_slots, default)?;
        let least = u32::from(Shard::BLOCK) * u32::from(shards) * u32::from(homes);
        if shares != Shares::NONE && data_slots < least {
            let mend = format!("with {homes} shares give at least {least}, or some have none");
            return Err(ConfigError::Value {
                section,
                key: "data_slots",
                value: data_slots.to_string(),
                mend,
            });
        }
        let blocks = u64::from(*BLOCKS.start())..=u64::from(*BLOCKS.end());
        let block = number(section, "block", self.block, DEFAULT_BLOCK.into(), blocks)? as u8;
        let norm_slots = slots(section, "norm_slots", self.norm_slots, default_norm_slots(block))?;
        let deadline = self.deadline.map_or(DEFAULT_DEADLINE, |Interval(time)| time);
        if deadline < Duration::from_millis(1) || deadline > MAX_DEADLINE {
            let value = Interval(deadline).to_string();
            let mend = "use 1ms to 1h".to_owned();
            return Err(ConfigError::Value { section, key: "deadline", value, mend });
        }
        let policy = Policy::from(self.policy.unwrap_or_default());
        let first = TableOptions {
            table: self.table,
            bits: self.bits,
            granularity: self.granularity,
            fraction: self.fraction,
            lane: self.lane,
            down: self.down,
        };
        let tables = {
            let racks = layout.as_ref().map(|layout| &layout.racks);
            // Of shares, links bound what comes down; what is alone may be on a switch's place, or on the loopback.
            first.job_tables(
                self.tables.as_deref().unwrap_or_default(),
                job,
                all_workers,
                racks,
                shares != Shares::NONE,
                known,
            )?
        };
        let welcome = Welcome {
            data_slots,
            norm_slots,
            quorum,
            policy,
            shards,
            deadline,
            job_seed: seed,
            block,
            shares,
            members: (spares > 0).then_some(Members { spares, ..Members::default() }),
            ..Welcome::new(workers, Tables::new(&tables)?)
        };
        let mut config = JobConfig::from_welcome(JobId(job), Cookie(cookie), &welcome);
        if let Some(layout) = &layout {
            config.skip |= layout.by_quorum();
            config.level = layout.level(standing);
        }
        config.check()?;
        let (welcome, root) = match &layout {
            Some(layout) => layout.welcome(standing, &welcome),
            None => (welcome, None),
        };
        let length = welcome.to_bytes().len();
        if length > MAX_PACKET - HEADER_LEN {
            let value = format!("a list of {} beside {} shares", tables.len() - 1, shares.servers());
            let mend = "WELCOME has no room for so many, leave some out".to_owned();
            return Err(ConfigError::Value { section, key: "tables", value, mend });
        }
        let sizes = come_and_go.map(|sizes| sizes.sizes((&config, &welcome), &first, known)).transpose()?;
        // The largest is what the job is told by where no session runs.
        let welcome =
            sizes.as_ref().and_then(|sizes| sizes.shapes.last()).map_or(welcome, |(_, welcome)| *welcome);
        Ok(JobSetup { config, welcome, root, sizes })
    }
}

/// Default number of data slots: the window has at least two blocks for each port.
fn default_data_slots(ports: u8) -> u64 {
    DEFAULT_DATA_SLOTS
        .max(4 * u64::from(Shard::BLOCK) * u64::from(ports.saturating_sub(1)).next_power_of_two())
}

/// Default number of norm slots: the norms of 4 Mi coordinates fit their window, so that those of even the
/// smallest blocks wait for few round trips. At most as many as a switch has.
fn default_norm_slots(block: u8) -> u64 {
    (1 << (23 - block.min(23))).clamp(64, 1024)
}

/// Default seed of the signs. It must be the same after a restart in the middle of a session (P24), so it is
/// not random but the finalizer of SplitMix64 over cookie and job number.
fn default_seed(cookie: u32, job: u16) -> u64 {
    mix((u64::from(cookie) << 16 | u64::from(job)).wrapping_add(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests;
