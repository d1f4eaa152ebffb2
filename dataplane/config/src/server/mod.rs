//! A server's settings: as they are written ([`ServerOptions`]) and as they are used ([`ServerConfig`]). All defaults of a
//! server are here; its jobs are those of [`crate::job`].

mod options;
mod p4runtime;
mod place;
mod tls;

pub use options::ServerOptions;
pub use p4runtime::{P4RuntimeConfig, P4RuntimeOptions};
pub use tls::{CertificateFiles, TlsOptions};

use std::net::SocketAddr;
use std::num::NonZero;
use std::thread;

use crate::job::{ConfigError, JobSetup, Section, ServerPlace, credit, number, validate_jobs};
use crate::values::Size;
use thc_protocol::aggregator::Shard;
use thc_protocol::wire::Shares;
use thc_transport::{Backend, IoName, LossyConfig, backend, is_link_local};

/// The default address of a server.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:9000";
/// The default over DPDK, where the `[dpdk]` section has the address.
const DEFAULT_DEVICE_LISTEN: &str = "0.0.0.0:9000";
/// Default bytes of a port's receive buffer.
pub const DEFAULT_RECV_BUFFER: usize = 16 << 20;
/// Default bytes of a port's send buffer.
pub const DEFAULT_SEND_BUFFER: usize = 4 << 20;
const DEFAULT_MEMORY_LIMIT: usize = 1 << 30;

/// More shards than this have no slots (P21 shards).
const MAX_SHARDS: u64 = 64;
/// The smallest buffer that holds a whole run of packets.
const MIN_BUFFER: usize = 64 << 10;

/// A checked configuration: [`ServerOptions::validate`] makes it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The backend that carries the packets.
    pub io: Backend,
    /// Address and port of the first shard; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Threads and ports, at least 1.
    pub shards: u8,
    /// The number of this server's share of the slots; 0 if it has all slots.
    pub share: u8,
    /// The addresses of all shares; none if this server has all slots.
    pub shares: Shares,
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
    /// Cores of the shards; none to let the system choose.
    pub pin: Vec<usize>,
    /// Static jobs. Without any, a controller writes jobs by P4Runtime.
    pub jobs: Vec<JobSetup>,
    /// The P4Runtime service, if there is one.
    pub p4runtime: Option<P4RuntimeConfig>,
    /// The address of the program's metrics, if it serves any.
    pub http: Option<SocketAddr>,
    /// Faults to inject on every port, for tests.
    pub faults: Option<LossyConfig>,
}

/// The default number of shards on a machine with `cores` usable cores. The kernel needs as many again for its work on
/// packets, and other programs need some: with more shards than free cores, shards wait for each other.
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
        let (share, shares) = self.shares()?;
        let own = shares.get(usize::from(share)).copied();
        let (io, listen) = self.place(own)?;
        let pin = self.pin.clone().unwrap_or_default();
        let default = match &io {
            _ if !pin.is_empty() => pin.len() as u64,
            // Each shard takes a queue of the device.
            Backend::Dpdk(_) => 1,
            Backend::Udp => default_shards(thread::available_parallelism().map_or(1, NonZero::get)),
        };
        // Beside a worker, one thread is enough for a share of the slots.
        let rack = self.rack_place(listen)?;
        let alone = shares.is_empty() && rack.is_none();
        let default = if alone || !pin.is_empty() { default } else { 1 };
        let shards = number(section, "shards", self.shards, default, 1..=MAX_SHARDS)? as u8;
        let shares = match shares.is_empty() {
            true => Shares::NONE,
            false => Shares::new(&shares, shards)?,
        };
        if let Some(own) = own.filter(|own| own.port() != listen.port()) {
            let mend = format!("share {share} has port {} in shares, give the same", own.port());
            return Err(section.wrong("listen", listen, mend));
        }
        if listen.port() != 0 && usize::from(listen.port()) + usize::from(shards) - 1 > usize::from(u16::MAX)
        {
            let mend =
                format!("{shards} shards need as many ports, give one up to {}", 65536 - u32::from(shards));
            return Err(section.wrong("listen", listen, mend));
        }
        let buffer = |key, size: Option<Size>, default| match size {
            Some(Size(bytes)) if bytes < MIN_BUFFER => {
                Err(section.wrong(key, format!("{bytes} bytes"), "give at least 64KiB"))
            }
            size => Ok(size.map_or(default, |Size(bytes)| bytes)),
        };
        if !pin.is_empty() && pin.len() != usize::from(shards) {
            let mend = format!("name one core for each of the {shards} shards");
            return Err(section.wrong("pin", format!("{pin:?}"), mend));
        }
        let mut config = ServerConfig {
            io,
            listen,
            shards,
            share,
            shares,
            recv_buffer: buffer("recv_buffer", self.recv_buffer, DEFAULT_RECV_BUFFER)?,
            send_buffer: buffer("send_buffer", self.send_buffer, DEFAULT_SEND_BUFFER)?,
            memory_limit: self.memory_limit.map_or(DEFAULT_MEMORY_LIMIT, |Size(bytes)| bytes),
            members: number(section, "members", self.members, credit::DEFAULT_MEMBERS.into(), 1..=65535)?
                as u32,
            busy_poll: self.busy_poll.unwrap_or(false),
            pin,
            jobs: Vec::new(),
            p4runtime: self.p4runtime.as_ref().map(P4RuntimeOptions::validate).transpose()?,
            http: self.http.as_deref().map(|at| socket_address("http", at, "127.0.0.1:9100")).transpose()?,
            faults: self.faults,
        };
        if self.job.is_empty() && config.p4runtime.is_none() {
            return Err(ConfigError::NoJob);
        }
        config.jobs = validate_jobs(&self.job, &ServerPlace { shares, rack, ..ServerPlace::alone(shards) })?;
        let own = || config.slices();
        let needs: usize =
            config.jobs.iter().flat_map(|job| own().map(|shard| job.config.memory(shard))).sum();
        if needs > config.memory_limit {
            let words = |bytes: usize| Size(bytes).to_string();
            let (needs, limit) = (words(needs), words(config.memory_limit));
            return Err(section.conflict(format!(
                "the slots of all jobs need {needs}, memory_limit is {limit}: raise memory_limit or lower data_slots"
            )));
        }
        Ok(config)
    }

    /// The backend, and the address that the server listens at: by default its own among the shares.
    fn place(&self, own: Option<SocketAddr>) -> Result<(Backend, SocketAddr), ConfigError> {
        // Past the kernel there is no loopback interface to listen on.
        let default = match self.io {
            Some(IoName::Dpdk) => DEFAULT_DEVICE_LISTEN,
            Some(IoName::Udp) | None => DEFAULT_LISTEN,
        };
        let section = Section::Server;
        let own = own.map(|at| at.to_string());
        let text = self.listen.as_deref().or(own.as_deref()).unwrap_or(default);
        let parsed = text.parse().ok().filter(|at: &SocketAddr| !is_link_local(at.ip()));
        let mut listen = parsed.ok_or_else(|| {
            let mend = "give an address (no link-local one) and a port, such as 0.0.0.0:9000 or [::]:9000";
            section.wrong("listen", format!("{text:?}"), mend)
        })?;
        let io = backend(self.io, listen.ip(), &self.dpdk).map_err(|error| ConfigError::Io(error.into()))?;
        if let Backend::Dpdk(dpdk) = &io {
            if listen.ip().is_unspecified() {
                listen.set_ip(dpdk.address.into());
            } else if listen.ip() != dpdk.address {
                let mend =
                    format!("over DPDK this end has the address {} only, give that or 0.0.0.0", dpdk.address);
                return Err(section.wrong("listen", listen, mend));
            }
        }
        Ok((io, listen))
    }
}

impl ServerConfig {
    /// P41: divides a port's receive buffer, which holds `room` data packets, among all that send to it: the
    /// members of all jobs, the racks of a root, and the root of a rack, whose results are no more than one
    /// member's packets.
    pub fn give_credit(&mut self, room: usize) {
        let senders = |job: &JobSetup| usize::from(job.config.workers) + usize::from(job.root.is_some());
        let all: usize = self.jobs.iter().map(senders).sum();
        let ports = usize::from(self.shards) * usize::from(self.shares.servers());
        let credit = credit::largest(room / all.max(1), ports);
        for job in &mut self.jobs {
            job.welcome.credit = credit;
        }
    }

    /// Sets whether WELCOME says that results carry congestion marks (P46).
    pub fn set_marks(&mut self, marks: bool) {
        for job in &mut self.jobs {
            job.welcome.marks = marks;
        }
    }

    /// The slots of each of its ports, in order (P21).
    pub fn slices(&self) -> impl Iterator<Item = Shard> {
        Shard::split(self.shards)
    }
}

/// The value of a key that is an address and a port, such as `example`.
fn socket_address(key: &'static str, text: &str, example: &str) -> Result<SocketAddr, ConfigError> {
    let mend = || format!("give an address and a port, such as {example}");
    text.parse().map_err(|_| Section::Server.wrong(key, format!("{text:?}"), mend()))
}

#[cfg(test)]
mod tests;
