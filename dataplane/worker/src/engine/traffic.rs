//! Packets in and out.

use super::calls::{CallEvents, CallFeedback, Out};
use super::compressor::write_raw;
use super::loan::Bytes;
use super::memory::Memory;
use super::session::Session;
use super::{Engine, REPORT};
use crate::{Silence, WorkerError};
use std::time::{Duration, Instant};
use thc_protocol::session::{JoinError, JoinEvent};
use thc_protocol::worker::{PacketId, SessionError};
use thc_protocol::{Ecn, WorkerId};
use thc_transport::RetainedTx;

/// The bit that only control kinds have set (P2 kinds).
const CONTROL: u8 = 0x20;

/// Returns whether a packet is of the session's control plane, not of the worker's state machine.
fn is_control(packet: &[u8]) -> bool {
    packet.get(1).is_some_and(|&kind| kind & CONTROL != 0)
}

/// A worker that waits for nothing and has heard nothing for this long sends JOIN again: a restarted server needs all
/// workers of a session to resume it (P24 restarts). A worker that waits for results notices a restart by their absence.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// A share that has not answered for this long may have restarted: the worker sends it a JOIN again.
const SHARE_SILENT: Duration = Duration::from_secs(1);
/// How long a server whose port is refused may take to restart and to resume the session (P24 restarts).
const LOST: Duration = Duration::from_secs(4);
/// The engine warns if at least one in this many coordinates of a mean is lost.
const MANY_LOST: usize = 20;

impl<I: RetainedTx> Engine<I> {
    /// Receives and sends.
    pub(super) fn exchange(&mut self, memory: &mut Memory<'_>) -> Result<bool, WorkerError> {
        let got = self.receive(memory)?;
        let now = self.io.now();
        if got > 0 {
            self.recent.burst = got;
        }
        let Session { link, joiners, worker, compressor } = &mut self.session;
        let known = worker.last_heard().max(self.recent.resumed);
        if !worker.is_busy() && now.saturating_sub(known) > KEEP_ALIVE {
            joiners.resume(now);
            self.recent.resumed = now;
        }
        let mut events = CallEvents { calls: &mut self.calls, compressor, memory, received: None };
        worker.tick(now, &mut events, &mut link.tx(&mut self.io));
        if worker.suspects_restart(now) {
            joiners.resume(now);
        }
        for (shard, _) in worker.unanswered_shards(now).filter(|(_, waited)| *waited >= SHARE_SILENT) {
            joiners.resume_at(now, link.ps.share_of(shard));
        }
        self.join_traffic(now)?;
        let handed = self.exchange_packed()?;
        let sent = self.send_ready(memory);
        self.session.link.check()?;
        if let Some(error) = self.calls.take_broken() {
            return Err(error.into());
        }
        if let Some(error) = self.session.worker.failure() {
            return Err(self.session.error(error, self.io.refused().is_some()));
        }
        if self.session.worker.is_busy()
            && let Some(silence) = self.lost_server()
        {
            return Err(silence.into());
        }
        Ok(got > 0 || sent || handed)
    }

    /// The server, or share of one, at whose port no program has listened for [`LOST`].
    pub(super) fn lost_server(&self) -> Option<Silence> {
        let (port, since) = self.io.refused()?;
        let waited = self.io.now().saturating_sub(since);
        (waited >= LOST).then(|| self.session.refused_server(port, waited))
    }

    pub(super) fn receive(&mut self, memory: &mut Memory<'_>) -> Result<usize, WorkerError> {
        let started = Instant::now();
        let mut first = None;
        let now = self.io.now();
        let Self { io, calls, session, .. } = self;
        let mut end = None;
        let got = io.recv_runs(&mut |run| {
            first.get_or_insert_with(Instant::now);
            let Some(port) = session.link.ps.find(run.from) else { return };
            let mut handle_run = |session: &mut Session, packets: &[u8], segment| {
                let Session { link, worker, compressor, .. } = session;
                let mut events = CallEvents { calls, compressor, memory, received: run.memory };
                let ecn = Ecn::of_bits(run.ecn);
                worker.handle_run(now, ecn, packets, segment, &mut events, &mut link.replies);
            };
            if !run.datagrams().any(is_control) {
                return handle_run(session, run.contents, run.segment);
            }
            for packet in run.datagrams() {
                if is_control(packet) {
                    end = session.handle_control(now, port, packet).or(end.take());
                } else {
                    handle_run(session, packet, packet.len());
                }
            }
        })?;
        let ended = Instant::now();
        let handled = first.map_or(Duration::ZERO, |first| ended - first);
        self.stats.compression += handled;
        self.stats.network += (ended - started).saturating_sub(handled);
        self.session.link.send_replies(&mut self.io);
        match end {
            Some(SessionEnd::Joining(error)) => return Err(error.into()),
            Some(SessionEnd::Session(error)) => self.session.worker.fail(error),
            None => {}
        }
        Ok(got)
    }

    pub(super) fn join_traffic(&mut self, now: Duration) -> Result<(), WorkerError> {
        let mut buffer = [0; 64];
        while let Some((share, packet)) = self.session.joiners.poll(now, &mut buffer) {
            self.io.send_run(self.session.link.ps.base(share), packet, packet.len())?;
        }
        Ok(())
    }

    /// Fills packets as far as the window goes and groups are compressed.
    fn send_ready(&mut self, memory: &mut Memory<'_>) -> bool {
        let mut sent = false;
        let now = self.io.now();
        let Session { link, worker, compressor, .. } = &mut self.session;
        while let Some(place) = worker.next_data() {
            let Some((active, buffers)) = self.calls.get_with_buffers(place.call) else { break };
            let Some((group, _)) = active.find(place) else { break };
            let state = &active.groups[group];
            let left = state.packets - state.sent;
            let mut tx = link.tx(&mut self.io);
            let count = match &state.out {
                Out::Ready { packets, .. } => {
                    // The first packet of a partition among those of its group; most packets are of the partition of the
                    // packet before.
                    let (mut partition, mut begin) = (u32::MAX, 0);
                    let write = |at: PacketId, payload: &mut [u8]| {
                        if at.partition != partition {
                            let first = active.find(PacketId { packet: 0, ..at });
                            (partition, begin) = (at.partition, first.map_or(0, |(_, packet)| packet));
                        }
                        let first = (begin + at.packet as usize) * payload.len();
                        payload.copy_from_slice(&packets[first..first + payload.len()]);
                    };
                    worker.fill(now, &mut tx, left, write)
                }
                Out::Direct => {
                    let x = memory.call(place.call).and_then(|memory| memory.x.get(state.range.clone()));
                    let Some(x) = x else { break };
                    let limit = compressor.raw_limit();
                    let write = |at: PacketId, payload: &mut [u8]| {
                        let measured = &active.parts[at.partition as usize];
                        let scale = compressor.raw_scale(measured.norm);
                        write_raw(&x[measured.place(state.range.start)], at, scale, limit, payload);
                    };
                    worker.fill(now, &mut tx, left, write)
                }
                _ => break,
            };
            if count == 0 {
                break;
            }
            sent = true;
            if let Some(packets @ Bytes::Own(_)) = active.count_sent(group, count) {
                buffers.take_packed(packets);
                self.ready.count -= usize::from(matches!(active.groups[group].out, Out::Done));
            }
        }
        sent
    }

    /// Hands out calls that are done, in their order.
    pub(super) fn deliver_done(&mut self) {
        while let Some(mut active) = self.calls.pop_done() {
            let (length, lost) = (active.length, active.lost);
            let result = active.error.take().map_or(Ok(()), |error| Err(WorkerError::Call(error)));
            if let Some(CallFeedback { key, left, .. }) = active.feedback.take() {
                match result {
                    Ok(()) => self.feedback.commit(key, left),
                    Err(_) => self.feedback.discard(key, left),
                }
            }
            match result {
                Ok(()) => {
                    self.stats.calls += 1;
                    self.stats.coordinates += length as u64;
                    self.count_lost(lost, length);
                }
                Err(_) => self.stats.failed += 1,
            }
            self.calls.deliver(active, result);
        }
        if self.calls.len() == 0 {
            // Calls may have failed while the feedback was lent.
            self.feedback.release_all();
        }
    }

    /// Counts coordinates of a call that were lost, and warns if they are so many that they may disturb training.
    fn count_lost(&mut self, lost: usize, of: usize) {
        self.stats.lost_coordinates += lost as u64;
        let now = self.io.now();
        if lost * MANY_LOST >= of && now >= self.recent.reported + REPORT {
            self.recent.reported = now;
            let part = 100.0 * lost as f64 / of as f64;
            tracing::warn!("{part:.1} % of the coordinates were lost and count as zero in the mean");
        }
    }
}

/// The error of a packet that ends the session.
enum SessionEnd {
    /// The worker cannot be a member any more.
    Joining(JoinError),
    Session(SessionError),
}

impl Session {
    /// Handles a control packet from `port`. Returns an error if the packet ends the session.
    fn handle_control(&mut self, now: Duration, port: usize, packet: &[u8]) -> Option<SessionEnd> {
        let Session { link, joiners, worker, .. } = self;
        let (share, is_base) = link.ps.share(port);
        if !is_base {
            return None;
        }
        let reforming = |worker| Some(SessionEnd::Session(SessionError::Reforming { worker }));
        match joiners.handle(now, share, packet)? {
            // The answer to a JOIN that asked whether the session still runs.
            JoinEvent::Welcome(welcome) if welcome.session == worker.parameters().cookie => {
                worker.handle_answer(now);
                None
            }
            JoinEvent::Welcome(..) => reforming(WorkerId::NONE),
            JoinEvent::Reforming(worker) => reforming(worker),
            JoinEvent::Changed(change) => Some(SessionEnd::Session(SessionError::Changed { change })),
            JoinEvent::Failed(error) => Some(SessionEnd::Joining(error)),
            JoinEvent::Here(members) => {
                worker.handle_members(now, members);
                None
            }
            JoinEvent::Pending(..) | JoinEvent::PendingRacks(..) | JoinEvent::Bye => None,
        }
    }
}
