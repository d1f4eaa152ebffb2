//! One shard: a thread that owns a UDP port and the slots that belong to it (P21).
//!
//! It runs to completion: receive a burst, handle every packet, send the answers, and only then look for
//! commands of the control thread. Nothing in a burst blocks, allocates, locks or logs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use thc_protocol::aggregator::{Aggregator, Endpoint, JobConfigError, JobCounters, Sink};
use thc_protocol::{Ecn, JobId, WorkerId};
use thc_transport::{Origin, Peer};

use crate::control_port::ControlPort;
use crate::error::PsError;
use crate::exchange::{Exchange, PacketHandler};
use crate::kernels::Simd;
use crate::liveness::{PUBLISH, count_admitted};
use crate::rows::ViewChanges;
use crate::state::{ServerState, ShardReport};
use crate::tx_batch::{SendFailure, TxBatch};

/// The sleep of an idle shard if packets or commands came lately, and so the longest wait of a command.
const DOZE: Duration = Duration::from_millis(1);
/// Its sleep when nothing has come for [`QUIET`].
const SLEEP: Duration = Duration::from_millis(20);
const QUIET: Duration = Duration::from_secs(2);
/// The shortest time between two log events about failed sends.
const COMPLAIN: Duration = Duration::from_secs(10);

/// A command to a shard.
#[derive(Debug)]
pub enum ShardCommand {
    /// Change tables and jobs, all before the next packet, and answer whether that worked.
    Follow(Arc<ViewChanges>, Sender<Result<(), JobConfigError>>),
    /// Send a packet of the control plane, from an address of the host if one is given.
    Send(Option<IpAddr>, Peer, Vec<u8>),
    /// Send everything to a peer from this address from now on.
    AnswerFrom(IpAddr, Peer),
    /// Report counters.
    Report(Sender<ShardReport>),
}

/// A shard's state, moved into its thread.
pub struct ShardThread<T> {
    /// Its number.
    pub index: u8,
    /// Its port.
    pub io: T,
    /// Its slots and tables.
    pub aggregator: Aggregator<Simd>,
    /// Its commands.
    pub commands: Receiver<ShardCommand>,
    /// The queue of control packets, which only the first shard has.
    pub control: Option<ControlPort>,
    /// Spin instead of sleeping when idle.
    pub busy_poll: bool,
    /// The state of the whole server.
    pub shared: Arc<ServerState>,
}

/// Sorts packets: those for the control plane go to its thread, all others to the aggregator.
struct Sorter<'a> {
    aggregator: &'a mut Aggregator<Simd>,
    control: Option<&'a ControlPort>,
    dropped: &'a mut u64,
}

impl PacketHandler for Sorter<'_> {
    #[inline]
    fn handle(&mut self, origin: Origin, packet: &[u8], sink: &mut impl Sink) {
        let Origin { from, at, ecn } = origin;
        if let Some(port) = self.control
            && let Some(packet) = port.recognise(from, at, packet)
        {
            *self.dropped += u64::from(!port.offer(packet));
        } else {
            self.aggregator.handle_with(Endpoint::udp(from), Ecn::of_bits(ecn), packet, sink);
        }
    }

    #[inline]
    fn prefetch(&self, packet: &[u8]) {
        self.aggregator.prefetch(packet);
    }
}

struct State<T> {
    thread: ShardThread<T>,
    batch: TxBatch,
    /// Counters of sessions that are over, one for each index.
    past: BTreeMap<u16, JobCounters>,
    /// Which counters a job has.
    indices: BTreeMap<JobId, u16>,
    send_failures: u64,
    complained: Option<Duration>,
    control_dropped: u64,
    /// True if a peer was refused at the last publication.
    refused: bool,
}

impl<T: Exchange> ShardThread<T> {
    /// Runs until the server stops or the port fails; leaves a last report behind.
    pub fn run(self) {
        let shared = Arc::clone(&self.shared);
        let index = usize::from(self.index);
        let mut state = State {
            thread: self,
            batch: TxBatch::new(),
            past: BTreeMap::new(),
            indices: BTreeMap::new(),
            send_failures: 0,
            complained: None,
            control_dropped: 0,
            refused: false,
        };
        if let Err(cause) = state.serve() {
            shared.fail(PsError::Receive { shard: state.thread.index, cause });
        }
        shared.leave_report(index, state.report());
    }
}

impl<T: Exchange> State<T> {
    fn serve(&mut self) -> std::io::Result<()> {
        let mut busy = self.thread.io.now();
        let mut published = busy;
        while !self.thread.shared.stop.load(Ordering::Relaxed) {
            let packets = self.burst()?;
            let now = self.thread.io.now();
            let commands = self.obey();
            if packets > 0 || commands {
                busy = now;
            }
            if now.saturating_sub(published) >= PUBLISH {
                self.publish();
                self.publish_refused(now);
                published = now;
            }
            if packets > 0 {
                continue;
            }
            if self.thread.busy_poll {
                std::hint::spin_loop();
            } else {
                let idle = now.saturating_sub(busy);
                self.thread.io.wait(if idle < QUIET { DOZE } else { SLEEP })?;
            }
        }
        Ok(())
    }

    /// Receives and handles one burst, and sends what it answers.
    fn burst(&mut self) -> std::io::Result<usize> {
        let ShardThread { io, aggregator, control, .. } = &mut self.thread;
        let mut sorter = Sorter { aggregator, control: control.as_ref(), dropped: &mut self.control_dropped };
        let mut latest: Option<SendFailure> = None;
        let failures = &mut self.send_failures;
        let packets = io.exchange(&mut self.batch, &mut sorter, &mut |failure| {
            *failures += failure.datagrams;
            latest = Some(failure);
        })?;
        if let Some(failure) = latest {
            self.complain(&failure);
        }
        Ok(packets)
    }

    fn complain(&mut self, failure: &SendFailure) {
        let now = self.thread.io.now();
        if self.complained.is_none_or(|before| now.saturating_sub(before) >= COMPLAIN) {
            self.complained = Some(now);
            tracing::warn!(to = %failure.to, "{}; {} datagrams lost so", failure.cause, self.send_failures);
        }
    }

    /// Obeys all commands, and returns whether there were any.
    fn obey(&mut self) -> bool {
        let mut any = false;
        while let Ok(command) = self.thread.commands.try_recv() {
            any = true;
            // The sender of a command may have ended.
            match command {
                ShardCommand::Follow(changes, done) => {
                    let _ = done.send(self.follow(&changes));
                }
                ShardCommand::Send(from, to, packet) => self.send(from, to, &packet),
                ShardCommand::AnswerFrom(from, to) => drop(self.thread.io.answer_from(to, Some(from))),
                ShardCommand::Report(to) => {
                    let _ = to.send(self.report());
                }
            }
        }
        any
    }

    fn follow(&mut self, changes: &ViewChanges) -> Result<(), JobConfigError> {
        for &job in &changes.gone {
            self.keep_counters(job);
            self.indices.remove(&job);
        }
        for view in &changes.jobs {
            let job = view.config.job;
            if self.indices.get(&job).is_some_and(|&index| index != view.index) {
                self.keep_counters(job);
            }
            self.indices.insert(job, view.index);
        }
        changes.apply(&mut self.thread.aggregator)
    }

    /// Adds a job's counters so far to those that are kept under its index.
    fn keep_counters(&mut self, job: JobId) {
        let Some(&index) = self.indices.get(&job) else { return };
        let Some(counters) = self.thread.aggregator.take_counters(job) else { return };
        match self.past.get_mut(&index) {
            Some(past) => past.merge(&counters),
            None => {
                self.past.insert(index, counters);
            }
        }
    }

    fn send(&mut self, from: Option<IpAddr>, to: Peer, packet: &[u8]) {
        let io = &mut self.thread.io;
        // For this packet alone: anyone may send JOIN, but the shard remembers only members.
        let before = from.map(|from| io.answer_from(to, Some(from)));
        let sent = io.send_run(to, packet, packet.len());
        if let Some(before) = before {
            io.answer_from(to, before);
        }
        if let Err(cause) = sent {
            self.send_failures += 1;
            self.complain(&SendFailure { to, datagrams: 1, cause });
        }
    }

    fn publish(&self) {
        let liveness = &self.thread.shared.liveness;
        for (place, &job) in liveness.jobs().iter().enumerate() {
            let counters = [self.past.get(&(place as u16)), self.thread.aggregator.job_counters(job)];
            for worker in (0..thc_protocol::MAX_WORKERS as u8).map(WorkerId) {
                let packets = counters.iter().flatten().map(|c| count_admitted(c.worker(worker))).sum();
                liveness.publish(usize::from(self.thread.index), place, worker, packets);
            }
        }
    }

    /// Publishes the port of a worker at which no program listens. It takes no lock while there is none.
    fn publish_refused(&mut self, now: Duration) {
        let refused = self.thread.io.refused();
        if refused.is_some() || self.refused {
            self.refused = refused.is_some();
            let refused = refused.map(|(peer, since)| (peer, now.saturating_sub(since)));
            self.thread.shared.publish_refused(usize::from(self.thread.index), refused);
        }
    }

    fn report(&self) -> ShardReport {
        let mut jobs = self.past.clone();
        for job in self.thread.aggregator.jobs().map(|config| config.job) {
            if let (Some(&index), Some(counters)) =
                (self.indices.get(&job), self.thread.aggregator.job_counters(job))
            {
                jobs.entry(index).and_modify(|past| past.merge(counters)).or_insert_with(|| counters.clone());
            }
        }
        ShardReport {
            index: self.thread.index,
            io: self.thread.io.stats(),
            recv_overflows: self.thread.io.recv_overflows(),
            frames: self.thread.io.frames(),
            send_failures: self.send_failures,
            control_dropped: self.control_dropped,
            globals: *self.thread.aggregator.counters(),
            memory: self.thread.aggregator.memory(),
            jobs,
        }
    }
}
