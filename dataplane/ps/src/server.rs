//! The server: its threads, from start to shutdown.

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thc_protocol::JobId;
use thc_protocol::aggregator::{Aggregator, Shard};
use thc_protocol::session::Registry;
use thc_protocol::wire::MAX_PACKET;
use thc_transport::{
    Backend, Capture, CapturedIo, Dpdk, DpdkConfig, DpdkIo, LossyIo, PacketIo, Peer, TransportError,
    UdpConfig, UdpIo,
};

use crate::config::{DEFAULT_RECV_BUFFER, DEFAULT_SEND_BUFFER, ServerConfig};
use crate::control::{Control, ControlCounters, ControlPort, SessionView};
use crate::error::PsError;
use crate::forwarding::{ALL_CONTROL_KINDS, SharedForwarding, StaticRows};
use crate::liveness::Liveness;
use crate::p4runtime::{Listener, Service};
use crate::shard::{Command, ShardIo, ShardReport, Worker};
use crate::shards::Shards;
use crate::stats::{JobSummary, ServerStats};

/// Control packets that may wait. Far more than there are workers; beyond it, JOINs are repeated.
const CONTROL_ROOM: usize = 1024;
/// Commands that may wait for a shard.
const COMMAND_ROOM: usize = 256;
/// The port of [`crate::DEFAULT_LISTEN`].
const USUAL_PORT: u16 = 9000;
/// Tries to find consecutive free ports when the kernel chooses the first.
const PORT_TRIES: usize = 64;

/// How often a server that waits for its workers to leave looks whether they have.
const LOOK: Duration = Duration::from_millis(20);

/// What the threads of one server share. Nothing here is touched per packet but `stop`, read
/// once per burst.
#[derive(Debug)]
pub struct Shared {
    /// Ends all threads.
    pub stop: AtomicBool,
    /// Who is heard.
    pub liveness: Liveness,
    /// The control thread's counters.
    pub control: ControlCounters,
    /// Kinds of packets that go to the control thread, as bits of [`crate::forwarding::kind_bit`]. Looked at for
    /// packets of such kinds alone.
    pub control_kinds: AtomicU8,
    /// Where the root is, if this server is a rack.
    pub root: Option<Peer>,
    failure: Mutex<Option<PsError>>,
    sessions: Mutex<BTreeMap<JobId, SessionView>>,
    /// Reports of shards that have ended.
    last: Mutex<Vec<Option<ShardReport>>>,
}

/// No thread panics while it holds one of these locks, and if one did, the data would be whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Of a server with these static jobs and so many shards, below this root if it is a rack.
    #[must_use]
    pub fn new(jobs: Vec<JobId>, shards: usize, root: Option<Peer>) -> Shared {
        Shared {
            stop: AtomicBool::new(false),
            control: ControlCounters::default(),
            // Whoever asks a server of static jobs before it is ready would otherwise have to ask again.
            control_kinds: AtomicU8::new(if jobs.is_empty() { 0 } else { ALL_CONTROL_KINDS }),
            root,
            failure: Mutex::new(None),
            sessions: Mutex::new(BTreeMap::new()),
            last: Mutex::new(vec![None; shards]),
            liveness: Liveness::new(jobs, shards),
        }
    }

    /// Stops the server because of an error; the first one counts.
    pub fn fail(&self, error: PsError) {
        tracing::error!("{error}");
        lock(&self.failure).get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Shows how a job's session stands.
    pub fn show(&self, job: JobId, view: SessionView) {
        lock(&self.sessions).insert(job, view);
    }

    /// Puts the reports of shards that have ended in the places of what they no longer say.
    pub fn last_reports(&self, reports: &mut [Option<ShardReport>]) {
        for (report, last) in reports.iter_mut().zip(lock(&self.last).iter()) {
            if last.is_some() {
                report.clone_from(last);
            }
        }
    }

    /// Keeps the report of a shard that ends.
    pub fn leave_report(&self, shard: usize, report: ShardReport) {
        lock(&self.last)[shard] = Some(report);
    }
}

/// A running parameter server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    local: Peer,
    shared: Arc<Shared>,
    commands: Vec<Sender<Command>>,
    forwarding: Option<SharedForwarding>,
    p4runtime: Option<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
    started: Instant,
}

impl Server {
    /// Opens the ports and starts the threads; workers can join from then on.
    ///
    /// # Errors
    /// [`PsError::Transport`] if a port is in use or cannot be opened, [`PsError::NoPorts`],
    /// [`PsError::Core`], [`PsError::Pin`] or [`PsError::Thread`] for what the machine refuses.
    pub fn start(config: ServerConfig) -> Result<Server, PsError> {
        check_cores(&config.pin)?;
        let ports = Ports::open(&config)?;
        Server::start_on(ports, config)
    }

    /// The same on a port that is open already: with one shard, over kernel UDP.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_reserved(reserved: Reserved, config: ServerConfig) -> Result<Server, PsError> {
        check_cores(&config.pin)?;
        Server::start_on(Ports::Udp(vec![reserved.0]), config)
    }

    fn start_on(ports: Ports, config: ServerConfig) -> Result<Server, PsError> {
        let local = ports.local();
        ports.warn_if_small(&config);
        let jobs = config.jobs.iter().map(|job| job.config.job).collect();
        let root = config.jobs.iter().find_map(|job| job.root).map(|root| root.at);
        let shared = Arc::new(Shared::new(jobs, usize::from(config.shards), root));
        let (control_port, control_packets) = ControlPort::new(CONTROL_ROOM, Arc::clone(&shared));
        let listener = config.p4runtime.as_ref().map(Listener::bind).transpose()?;
        let mut server = Server {
            local,
            shared: Arc::clone(&shared),
            commands: Vec::new(),
            forwarding: None,
            p4runtime: listener.as_ref().map(Listener::local),
            threads: Vec::new(),
            started: Instant::now(),
            config,
        };
        match ports {
            Ports::Udp(ports) => server.spawn_shards(ports, control_port)?,
            Ports::Dpdk(ports) => server.spawn_shards(ports, control_port)?,
        }
        let shards = Shards::new(server.commands.clone(), Arc::clone(&shared));
        let forwarding = server.forwarding(shards.clone());
        server.forwarding = Some(forwarding.clone());
        let mut elsewhere = None;
        if let Some(listener) = listener {
            let service = Service::new(&server.config, local, forwarding.clone(), shards.clone());
            elsewhere = server.config.jobs.is_empty().then(|| service.packets_in());
            let shared = Arc::clone(&shared);
            server.spawn("thc-ps-p4rt".to_owned(), move || listener.serve(service, &shared))?;
        }
        let jobs = server.config.jobs.iter().map(crate::JobSetup::to_static);
        let registry = if server.config.share == 0 { Registry::new(jobs) } else { Registry::follower(jobs) };
        let control = Control::new(registry, elsewhere, control_packets, forwarding, shards, shared);
        server.spawn("thc-ps-control".to_owned(), move || control.run())?;
        Ok(server)
    }

    /// The rows that static jobs always have, or none.
    fn forwarding(&self, shards: Shards) -> SharedForwarding {
        let jobs = &self.config.jobs;
        let forwarding = SharedForwarding::new(shards, self.config.memory_limit);
        if !jobs.is_empty() {
            let rows = StaticRows::default();
            let mut held = forwarding.lock();
            rows.control_plane().into_iter().for_each(|row| drop(held.exchange(row)));
            let others = jobs.iter().filter_map(|job| job.sizes.as_ref()).flat_map(|sizes| &sizes.shapes);
            let others = others.flat_map(|(_, welcome)| welcome.tables.iter());
            for table in jobs.iter().flat_map(|job| job.welcome.tables.iter()).chain(others) {
                held.exchange(rows.table(table.id, &table.into()));
            }
            // If the shards don't follow, they have failed, and the server says so.
            let _ = held.commit();
        }
        forwarding
    }

    fn spawn_shards<T: ShardIo + Send + 'static>(
        &mut self,
        ports: Vec<T>,
        control_port: ControlPort,
    ) -> Result<(), PsError> {
        let capture = self.config.capture.as_ref().map(Capture::create).transpose()?;
        let mut control_port = Some(control_port);
        let slices: Vec<Shard> = self.config.slices().collect();
        for (index, (port, slice)) in (0u8..).zip(ports.into_iter().zip(slices)) {
            let control = control_port.take();
            match &capture {
                None => self.spawn_faulty(index, slice, port, control)?,
                Some(capture) => {
                    self.spawn_faulty(index, slice, CapturedIo::new(port, capture.clone()), control)?;
                }
            }
        }
        Ok(())
    }

    /// Faults come on top of the capture, which so has what is on the wire.
    fn spawn_faulty<T: ShardIo + Send + 'static>(
        &mut self,
        index: u8,
        slice: Shard,
        port: T,
        control: Option<ControlPort>,
    ) -> Result<(), PsError> {
        match self.config.faults {
            Some(mut faults) => {
                // Each shard its own sequence of faults.
                faults.seed = faults.seed.wrapping_add(u64::from(index));
                self.spawn_shard(index, slice, LossyIo::new(port, faults)?, control)
            }
            None => self.spawn_shard(index, slice, port, control),
        }
    }

    fn spawn_shard<T: ShardIo + Send + 'static>(
        &mut self,
        index: u8,
        slice: Shard,
        io: T,
        control: Option<ControlPort>,
    ) -> Result<(), PsError> {
        let aggregator = Aggregator::new(slice, self.config.memory_limit);
        let (sender, commands) = bounded(COMMAND_ROOM);
        self.commands.push(sender);
        let worker = Worker {
            index,
            io,
            aggregator,
            commands,
            control,
            busy_poll: self.config.busy_poll,
            shared: Arc::clone(&self.shared),
        };
        let core = self.config.pin.get(usize::from(index)).copied();
        let (pinned, result) = bounded(1);
        self.spawn(format!("thc-ps-{index}"), move || {
            let _ = pinned.send(core.map_or(Ok(()), |core| pin(index, core)));
            worker.run();
        })?;
        // A thread that is gone left no answer and a report of its failure.
        result.recv().unwrap_or(Ok(()))
    }

    fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> Result<(), PsError> {
        self.threads.push(thread::Builder::new().name(name).spawn(body).map_err(PsError::Thread)?);
        Ok(())
    }

    /// The address and port that workers join at; further shards have the ports behind it.
    #[must_use]
    pub fn local(&self) -> SocketAddrV4 {
        self.local
    }

    /// Where it serves P4Runtime, if it does.
    #[must_use]
    pub fn p4runtime(&self) -> Option<SocketAddr> {
        self.p4runtime
    }

    /// What it was started with.
    #[must_use]
    pub fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// Whether it has stopped by itself, because of an error that the log shows and
    /// [`Self::failure`] gives.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        lock(&self.shared.failure).is_some()
    }

    /// Takes the error that stopped it, if one did.
    #[must_use]
    pub fn failure(&self) -> Option<PsError> {
        lock(&self.shared.failure).take()
    }

    /// Counters up to now.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.gather(&self.reports(), &self.jobs())
    }

    /// The same of each shard by itself, with its number; but for JOINs and LEAVEs taken and refused, which are the whole server's.
    #[must_use]
    pub fn shard_stats(&self) -> Vec<(u8, ServerStats)> {
        let jobs = self.jobs();
        let reports = self.reports();
        reports.iter().map(|report| (report.index, self.gather(slice::from_ref(report), &jobs))).collect()
    }

    fn reports(&self) -> Vec<ShardReport> {
        Shards::new(self.commands.clone(), Arc::clone(&self.shared)).reports()
    }

    fn gather(&self, reports: &[ShardReport], jobs: &[JobSummary]) -> ServerStats {
        let elapsed = self.started.elapsed();
        ServerStats::gather(&self.config, self.local, elapsed, reports, jobs, &self.shared.control)
    }

    /// Its jobs: those of the configuration, or those that a controller wrote.
    fn jobs(&self) -> Vec<JobSummary> {
        if self.config.jobs.is_empty() {
            return self.forwarding.as_ref().map_or_else(Vec::new, |forwarding| forwarding.lock().jobs());
        }
        let sessions = lock(&self.shared.sessions).clone();
        let jobs = (0u16..).zip(&self.config.jobs);
        jobs.map(|(index, job)| JobSummary {
            job: job.config.job,
            workers: job.config.workers,
            quorum: job.config.quorum,
            index,
            view: sessions.get(&job.config.job).copied().unwrap_or_default(),
        })
        .collect()
    }

    /// Waits until no worker is in any of its jobs, `limit` at most: of one in a process of its own nobody would notice how
    /// early it ends, beside a worker others may still need it.
    pub fn wait_for_leaving(&self, limit: Duration) {
        let began = Instant::now();
        while began.elapsed() < limit && self.stats().jobs.iter().any(|job| !job.joined.is_empty()) {
            thread::sleep(LOOK);
        }
    }

    /// Stops the threads, in the middle of whatever sessions run, and gives the last counters.
    #[must_use]
    pub fn shutdown(mut self) -> ServerStats {
        self.stop();
        self.stats()
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the server panicked");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A port that is open before all is known of the server that will have it: shares must know where all the others are.
pub struct Reserved(UdpIo);

impl Reserved {
    /// Opens a port, any free one for port 0, with buffers of so many bytes or the usual ones.
    ///
    /// # Errors
    /// [`PsError::Transport`].
    pub fn open(
        listen: SocketAddrV4,
        recv_buffer: Option<usize>,
        send_buffer: Option<usize>,
    ) -> Result<Reserved, PsError> {
        let recv_buffer = recv_buffer.unwrap_or(DEFAULT_RECV_BUFFER);
        let send_buffer = send_buffer.unwrap_or(DEFAULT_SEND_BUFFER);
        Ok(Reserved(open_port(listen, recv_buffer, send_buffer)?))
    }

    /// Where it is.
    #[must_use]
    pub fn local(&self) -> SocketAddrV4 {
        self.0.local()
    }
}

/// A port per shard, one behind the other (P21).
enum Ports {
    Udp(Vec<UdpIo>),
    Dpdk(Vec<DpdkIo>),
}

impl Ports {
    fn open(config: &ServerConfig) -> Result<Ports, PsError> {
        match &config.io {
            Backend::Udp => open_udp(config).map(Ports::Udp),
            Backend::Dpdk(dpdk) => Ok(Ports::Dpdk(open_dpdk(config, dpdk)?)),
        }
    }

    fn local(&self) -> Peer {
        let first = match self {
            Ports::Udp(ports) => ports.first().map(PacketIo::local),
            Ports::Dpdk(ports) => ports.first().map(PacketIo::local),
        };
        first.expect("a server has at least one shard")
    }

    /// Full windows of all workers must fit the receive buffer, or packets get lost on arrival.
    fn warn_if_small(&self, config: &ServerConfig) {
        let window =
            |job: &crate::JobSetup| job.config.data_slots as usize / 2 * usize::from(job.config.workers);
        let ports = usize::from(config.shards) * usize::from(config.shares.servers() - config.spares);
        let under_way = config.jobs.iter().map(window).sum::<usize>() / ports;
        let (room, mend) = match self {
            Ports::Udp(ports) => {
                (ports.iter().map(|port| port.recv_capacity(MAX_PACKET)).min(), "recv_buffer")
            }
            Ports::Dpdk(ports) => (ports.iter().map(DpdkIo::recv_capacity).min(), "descriptors"),
        };
        let room = room.unwrap_or(0);
        if room < under_way {
            tracing::warn!(
                "workers may have {under_way} packets under way to a port whose receive buffer holds {room}: \
                 raise {mend} or lower data_slots, or some will get lost and be sent again",
            );
        }
    }
}

fn open_udp(config: &ServerConfig) -> Result<Vec<UdpIo>, PsError> {
    if config.listen.port() != 0 {
        return Ok(open_udp_from(config, config.listen)?);
    }
    for _ in 0..PORT_TRIES {
        match open_udp_from(config, config.listen) {
            Err(TransportError::AddressInUse { .. }) => {}
            other => return Ok(other?),
        }
    }
    Err(PsError::NoPorts { shards: config.shards, ip: *config.listen.ip() })
}

fn open_udp_from(config: &ServerConfig, base: SocketAddrV4) -> Result<Vec<UdpIo>, TransportError> {
    let bind = |addr| open_port(addr, config.recv_buffer, config.send_buffer);
    let first = bind(base)?;
    let local = first.local();
    let mut ports = vec![first];
    for shard in 1..u16::from(config.shards) {
        // Past the last port there is none that is free.
        let addr = SocketAddrV4::new(*base.ip(), local.port().saturating_add(shard));
        ports.push(bind(addr)?);
    }
    Ok(ports)
}

fn open_port(at: SocketAddrV4, recv_buffer: usize, send_buffer: usize) -> Result<UdpIo, TransportError> {
    UdpIo::bind(UdpConfig { recv_buffer, send_buffer, answer_as_asked: true, ..UdpConfig::new(at) })
}

/// No other process shares the address, so every port is free and 0 becomes the usual one.
fn open_dpdk(config: &ServerConfig, dpdk: &DpdkConfig) -> Result<Vec<DpdkIo>, TransportError> {
    if !config.listen.ip().is_unspecified() && *config.listen.ip() != dpdk.address {
        return Err(TransportError::AddressNotAvailable { addr: config.listen });
    }
    let first = if config.listen.port() == 0 { USUAL_PORT } else { config.listen.port() };
    Ok(Dpdk::open(dpdk, first, u16::from(config.shards))?.into_endpoints())
}

fn check_cores(cores: &[usize]) -> Result<(), PsError> {
    if cores.is_empty() {
        return Ok(());
    }
    // Failing here would mean that nothing is known; pinning itself tells then.
    let Ok(set) = sched_getaffinity(None) else { return Ok(()) };
    let may = |core: usize| core < CpuSet::MAX_CPU && set.is_set(core);
    match cores.iter().find(|&&core| !may(core)) {
        None => Ok(()),
        Some(&core) => {
            let allowed: Vec<String> =
                (0..CpuSet::MAX_CPU).filter(|&core| may(core)).map(|core| core.to_string()).collect();
            Err(PsError::Core { core, allowed: allowed.join(", ") })
        }
    }
}

/// Pins the calling thread.
fn pin(shard: u8, core: usize) -> Result<(), PsError> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|cause| PsError::Pin { shard, core, cause: cause.into() })
}
