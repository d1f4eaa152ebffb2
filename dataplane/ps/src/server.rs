//! The server: its threads, from start to shutdown.

use std::net::SocketAddr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thc_protocol::aggregator::{Aggregator, Shard};
use thc_protocol::session::Registry;
use thc_transport::{LossyIo, Peer};

use crate::control::Control;
use crate::control_port::ControlPort;
use crate::error::PsError;
use crate::exchange::Exchange;
use crate::forwarding::SharedForwarding;
use crate::p4runtime::{Listener, Service};
use crate::ports::{Ports, Reserved};
use crate::rows::StaticRows;
use crate::shard::{ShardCommand, ShardThread};
use crate::shards::Shards;
use crate::state::{ServerState, ShardReport};
use crate::stats::{JobSummary, ServerStats};
use thc_config::server::ServerConfig;

/// The number of control packets that may wait: far more than there are workers. Further ones are dropped, and workers repeat
/// JOINs.
const CONTROL_ROOM: usize = 1024;
/// Commands that may wait for a shard.
const COMMAND_ROOM: usize = 256;

/// The interval at which a server that waits for its workers to leave checks whether they have left.
const LOOK: Duration = Duration::from_millis(20);

/// A running parameter server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    local: Peer,
    shared: Arc<ServerState>,
    commands: Vec<Sender<ShardCommand>>,
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
    /// [`PsError::Core`], [`PsError::Pin`] or [`PsError::Thread`] if the machine refuses something.
    pub fn start(config: ServerConfig) -> Result<Server, PsError> {
        check_cores(&config.pin)?;
        let ports = Ports::open(&config)?;
        Server::start_on(ports, config)
    }

    /// Starts a server of one shard on an open port of kernel UDP.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_reserved(reserved: Reserved, config: ServerConfig) -> Result<Server, PsError> {
        check_cores(&config.pin)?;
        Server::start_on(Ports::Udp(vec![reserved.0]), config)
    }

    fn start_on(ports: Ports, mut config: ServerConfig) -> Result<Server, PsError> {
        let local = ports.local();
        let room = ports.room();
        config.give_credit(room);
        config.set_marks(ports.read_marks());
        ports.warn_if_small(&config);
        let jobs = config.jobs.iter().map(|job| job.config.job).collect();
        let root = config.jobs.iter().find_map(|job| job.root).map(|root| root.at);
        let shared = Arc::new(ServerState::new(jobs, usize::from(config.shards), root));
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
        let mut controllers = None;
        if let Some(listener) = listener {
            let service = Service::new(&server.config, local, forwarding.clone(), shards.clone(), room);
            controllers = server.config.jobs.is_empty().then(|| service.clients());
            let shared = Arc::clone(&shared);
            server.spawn("thc-ps-p4rt".to_owned(), move || listener.serve(service, &shared))?;
        }
        let jobs = server.config.jobs.iter().map(crate::JobSetup::to_static);
        let registry = if server.config.share == 0 { Registry::new(jobs) } else { Registry::follower(jobs) };
        let control = Control::new(registry, controllers, control_packets, forwarding, shards, shared);
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
            for table in jobs.iter().flat_map(|job| job.welcome.tables.iter()) {
                held.exchange(rows.table(table.id, &table.into()));
            }
            // Shards that do not follow have failed, which the server reports.
            let _ = held.commit();
        }
        forwarding
    }

    fn spawn_shards<T: Exchange + Send + 'static>(
        &mut self,
        ports: Vec<T>,
        control_port: ControlPort,
    ) -> Result<(), PsError> {
        let mut control_port = Some(control_port);
        let slices: Vec<Shard> = self.config.slices().collect();
        for (index, (port, slice)) in (0u8..).zip(ports.into_iter().zip(slices)) {
            let control = control_port.take();
            match self.config.faults {
                Some(mut faults) => {
                    // Each shard has its own sequence of faults.
                    faults.seed = faults.seed.wrapping_add(u64::from(index));
                    self.spawn_shard(index, slice, LossyIo::new(port, faults)?, control)?;
                }
                None => self.spawn_shard(index, slice, port, control)?,
            }
        }
        Ok(())
    }

    fn spawn_shard<T: Exchange + Send + 'static>(
        &mut self,
        index: u8,
        slice: Shard,
        io: T,
        control: Option<ControlPort>,
    ) -> Result<(), PsError> {
        let aggregator = Aggregator::new(slice, self.config.memory_limit);
        let (sender, commands) = bounded(COMMAND_ROOM);
        self.commands.push(sender);
        let thread = ShardThread {
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
            thread.run();
        })?;
        // A thread that has ended has reported its failure.
        result.recv().unwrap_or(Ok(()))
    }

    fn spawn(&mut self, name: String, body: impl FnOnce() + Send + 'static) -> Result<(), PsError> {
        self.threads.push(thread::Builder::new().name(name).spawn(body).map_err(PsError::Thread)?);
        Ok(())
    }

    /// The address and port at which workers join; further shards have the ports after it.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The address of its P4Runtime service, if it has one.
    #[must_use]
    pub fn p4runtime(&self) -> Option<SocketAddr> {
        self.p4runtime
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// Returns whether it has stopped by itself, because of an error that the log shows and
    /// [`Self::failure`] gives.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed()
    }

    /// Takes the error that stopped it, if one did.
    #[must_use]
    pub fn failure(&self) -> Option<PsError> {
        self.shared.take_failure()
    }

    /// Counters up to now.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.gather(&self.reports(), &self.jobs())
    }

    /// Counters of each shard, with its number. JOINs and LEAVEs are counted for the whole server, so they are not in them.
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
        let sessions = self.shared.sessions();
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

    /// Waits until no worker is in any of its jobs, at most `limit`. This is for a server beside a worker,
    /// which others may still need when that worker is done.
    pub fn wait_for_leaving(&self, limit: Duration) {
        let began = Instant::now();
        while began.elapsed() < limit && self.stats().jobs.iter().any(|job| !job.joined.is_empty()) {
            thread::sleep(LOOK);
        }
    }

    /// Stops the threads, even in the middle of sessions, and returns the last counters.
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

fn check_cores(cores: &[usize]) -> Result<(), PsError> {
    if cores.is_empty() {
        return Ok(());
    }
    // If the cores are not known, the error comes from pinning.
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
