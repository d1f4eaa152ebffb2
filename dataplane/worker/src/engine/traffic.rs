//! Packets in and out.

use super::calls::{CallEvents, Out};
use super::compressor::write_raw;
use super::link::Link;
use super::memory::Memory;
use super::{Engine, REPORT};
use crate::{Silence, WorkerError};
use std::time::{Duration, Instant};
use thc_protocol::session::JoinEvent;
use thc_protocol::wire::Kind;
use thc_protocol::worker::{PacketId, SessionError};
use thc_protocol::{Ecn, WorkerId};
use thc_transport::PacketIo;

/// The bit that control kinds have set, and no others (P2).
const CONTROL: u8 = 0x20;

/// Whether a packet of this kind is for the worker's state machine and nobody else.
fn is_for_worker(kind: u8) -> bool {
    kind & CONTROL == 0 && kind != Kind::Nudge as u8
}

/// A worker that waits for nothing and has heard nothing of its session for so long introduces itself again:
/// a restarted server needs all workers of a session to resume it (P24). A worker that waits for something
/// notices by itself.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// A share that has not answered for so long may have been started anew: this worker introduces itself there again.
const SHARE_SILENT: Duration = Duration::from_secs(1);
/// How long a server whose port is refused may take to come back, which resumes the session (P24).
const LOST: Duration = Duration::from_secs(4);
/// Which part of a mean must be given up for the engine to say so.
const MANY_LOST: usize = 20;

impl<I: PacketIo> Engine<I> {
    /// Receives and sends.
    pub(super) fn exchange(&mut self, memory: &mut Memory<'_>) -> Result<bool, WorkerError> {
        let got = self.receive(memory)?;
        let now = self.io.now();
        if got > 0 {
            self.burst = got;
        }
        let known = self.worker.last_heard().max(self.asked);
        if !self.worker.is_busy() && now.saturating_sub(known) > KEEP_ALIVE {
            self.joiners.resume(now);
            self.asked = now;
        }
        let Self { calls, compressor, .. } = self;
        let mut events = CallEvents { calls, compressor, memory, received: None };
        self.worker.tick(now, &mut events, &mut self.link.tx(&mut self.io));
        if self.worker.suspects_restart(now) {
            self.joiners.resume(now);
        }
        for (shard, _) in self.worker.unanswered_shards(now).filter(|(_, waited)| *waited >= SHARE_SILENT) {
            self.joiners.resume_at(now, self.link.ps.share_of(shard));
        }
        self.join_traffic(now)?;
        let handed = self.exchange_packed()?;
        let sent = self.send_ready(memory);
        self.link.check()?;
        if let Some(error) = self.calls.take_broken() {
            return Err(error.into());
        }
        if let Some(error) = self.worker.failure() {
            return Err(self.name_server(error));
        }
        if self.worker.is_busy()
            && let Some(silence) = self.lost_server()
        {
            return Err(silence.into());
        }
        Ok(got > 0 || sent || handed)
    }

    /// Names the server that is silent.
    pub(super) fn name_server(&self, error: SessionError) -> WorkerError {
        let SessionError::Silent { waited } = error else { return error.into() };
        let ports = &self.link.ps;
        let share = self.worker.waits_at().map_or(0, |shard| ports.share_of(shard));
        let refused = self.io.refused().is_some();
        Silence { at: ports.base(share), refused, waited, joining: false }.into()
    }

    /// The server, or share of one, at whose port nobody has listened for [`LOST`].
    pub(super) fn lost_server(&self) -> Option<Silence> {
        let (port, since) = self.io.refused()?;
        let ports = &self.link.ps;
        let at = ports.position(port).map_or(port, |port| ports.base(ports.share(port).0));
        let waited = self.io.now().saturating_sub(since);
        (waited >= LOST).then_some(Silence { at, refused: true, waited, joining: false })
    }

    pub(super) fn receive(&mut self, memory: &mut Memory<'_>) -> Result<usize, WorkerError> {
        let started = Instant::now();
        let mut first = None;
        let now = self.io.now();
        let Self { io, worker, calls, compressor, link, joiners, .. } = self;
        let mut control = None;
        let Link { ps, replies, .. } = link;
        let got = io.recv_runs(&mut |run| {
            first.get_or_insert_with(Instant::now);
            let Some(port) = ps.find(run.from) else { return };
            let mut events = CallEvents { calls, compressor, memory, received: run.memory };
            let (share, is_base) = ps.share(port);
            let ecn = Ecn::of_bits(run.ecn);
            if run.datagrams().all(|packet| packet.get(1).is_some_and(|&kind| is_for_worker(kind))) {
                worker.handle_run(now, ecn, run.contents, run.segment, &mut events, replies);
                return;
            }
            for packet in run.datagrams() {
                let Some(&kind) = packet.get(1) else { continue };
                if kind & CONTROL == 0 {
                    worker.handle_with(now, ecn, packet, &mut events, replies);
                } else if is_base {
                    match joiners.handle(now, share, packet) {
                        // The session goes on, and so does what else was said of it.
                        Some(JoinEvent::Welcome(welcome, _))
                            if welcome.session == worker.parameters().cookie =>
                        {
                            worker.note_alive(now);
                        }
                        Some(JoinEvent::Here(members)) => worker.handle_members(now, members),
                        None
                        | Some(JoinEvent::Pending(..) | JoinEvent::PendingRacks(..) | JoinEvent::Bye) => {}
                        event => control = event,
                    }
                }
            }
        })?;
        let ended = Instant::now();
        let handled = first.map_or(Duration::ZERO, |first| ended - first);
        self.stats.compression += handled;
        self.stats.network += (ended - started).saturating_sub(handled);
        self.link.send_replies(&mut self.io);
        match control {
            Some(JoinEvent::Welcome(..)) => {
                self.worker.fail(SessionError::Reforming { worker: WorkerId::NONE });
            }
            Some(JoinEvent::Reforming(worker)) => self.worker.fail(SessionError::Reforming { worker }),
            Some(JoinEvent::Changed(change)) => self.worker.fail(SessionError::Changed { change }),
            Some(JoinEvent::Failed(error)) => return Err(error.into()),
            Some(
                JoinEvent::Here(_) | JoinEvent::Pending(..) | JoinEvent::PendingRacks(..) | JoinEvent::Bye,
            )
            | None => {}
        }
        Ok(got)
    }

    pub(super) fn join_traffic(&mut self, now: Duration) -> Result<(), WorkerError> {
        let mut buffer = [0; 64];
        while let Some((share, packet)) = self.joiners.poll(now, &mut buffer) {
            self.io.send_run(self.link.ps.base(share), packet, packet.len())?;
        }
        Ok(())
    }

    /// Fills packets as far as the window goes and groups are compressed.
    fn send_ready(&mut self, memory: &mut Memory<'_>) -> bool {
        let mut sent = false;
        let now = self.io.now();
        while let Some(place) = self.worker.next_data() {
            let Some((active, buffers)) = self.calls.get_with_buffers(place.call) else { break };
            let Some((group, _)) = active.find(place) else { break };
            let state = &active.groups[group];
            let Out::Ready(packed) = &state.out else { break };
            let left = state.packets - state.sent;
            let mut tx = self.link.tx(&mut self.io);
            let direct = active.is_direct(group);
            let count = match direct {
                false => {
                    // Where the packed indices of a partition begin; most packets are of that of the one before.
                    let (mut partition, mut begin) = (u32::MAX, 0);
                    let write = |at: PacketId, payload: &mut [u8]| {
                        if at.partition != partition {
                            let first = active.find(PacketId { packet: 0, ..at });
                            (partition, begin) = (at.partition, first.map_or(0, |(_, packet)| packet));
                        }
                        let first = (begin + at.packet as usize) * payload.len();
                        payload.copy_from_slice(&packed[first..first + payload.len()]);
                    };
                    self.worker.fill(now, &mut tx, left, write)
                }
                true => {
                    let x = memory.call(place.call).and_then(|memory| memory.x.get(state.range.clone()));
                    let Some(x) = x else { break };
                    let limit = self.compressor.raw_limit();
                    let write = |at: PacketId, payload: &mut [u8]| {
                        let measured = &active.parts[at.partition as usize];
                        let scale = self.compressor.raw_scale(measured.norm);
                        write_raw(&x[measured.place(state.range.start)], at, scale, limit, payload);
                    };
                    self.worker.fill(now, &mut tx, left, write)
                }
            };
            if count == 0 {
                break;
            }
            sent = true;
            if let Some(packed) = active.note_sent(group, count)
                && !direct
                && active.remote.is_none()
            {
                buffers.take_packed(packed);
                self.ready -= usize::from(active.groups[group].residual.is_none());
            }
        }
        sent
    }

    /// Hands out calls that are done, in their order.
    pub(super) fn settle(&mut self) {
        while let Some(mut active) = self.calls.pop_done() {
            let left = std::mem::take(&mut active.left);
            match (&active.error, active.feedback) {
                (None, Some(key)) => self.feedback.commit(key, left),
                _ => self.feedback.discard(left),
            }
            match active.error {
                None => {
                    self.stats.calls += 1;
                    self.stats.coordinates += active.length as u64;
                    self.note_lost(active.lost, active.length);
                }
                Some(_) => self.stats.failed += 1,
            }
            self.calls.deliver(active);
        }
    }

    /// So many coordinates of a call count as zero in its mean. Training should know when there are many.
    pub(super) fn note_lost(&mut self, lost: usize, of: usize) {
        self.stats.lost_coordinates += lost as u64;
        let now = self.io.now();
        if lost * MANY_LOST >= of && now >= self.reported + REPORT {
            self.reported = now;
            let part = 100.0 * lost as f64 / of as f64;
            tracing::warn!("{part:.1} % of a mean were given up and count as zero");
        }
    }
}
