//! The control thread: JOINs and LEAVEs come in, sessions begin and end (P22–P25).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use thc_protocol::session::{Action, Registry};
use thc_protocol::wire::{Header, Kind, RefuseReason, Refused};
use thc_protocol::{JobId, MAX_WORKERS, WorkerId};
use thc_transport::Peer;

use crate::control_port::ControlPacket;
use crate::forwarding::SharedForwarding;
use crate::liveness::Watch;
use crate::p4runtime::Clients;
use crate::rows::{RowChange, StaticRows};
use crate::shards::Shards;
use crate::state::{ServerState, SessionView};
use thc_config::job::cookie;
use thc_config::values::plural;

/// The period in which the thread checks which workers live, and whether the server stops.
const TICK: Duration = Duration::from_millis(50);
/// The period in which members hear that one of them is gone.
const NOTIFY: Duration = Duration::from_millis(200);
/// The log lines about coming and leaving workers that are written at once, and the time between further ones,
/// since anybody can cause them.
const LINES: u32 = 100;
const LINE_EVERY: Duration = Duration::from_secs(1);

/// The control thread's state.
pub struct Control {
    registry: Registry,
    /// The controllers that take the packets, if no static job does.
    controllers: Option<Arc<Clients>>,
    packets: Receiver<ControlPacket>,
    forwarding: SharedForwarding,
    rows: StaticRows,
    shards: Shards,
    shared: Arc<ServerState>,
    watch: Watch,
    started: Instant,
    views: BTreeMap<JobId, SessionView>,
    /// True if members were reported as gone at the last look.
    reported_absence: bool,
    lines: Lines,
}

/// Lines that may still be logged, and how many were not.
#[derive(Debug, Default)]
struct Lines {
    /// When the allowance is whole again.
    whole: Duration,
    left_out: u64,
    /// Refusals that were logged within [`LINE_EVERY`].
    refusals: Vec<((JobId, WorkerId), Duration)>,
}

impl Lines {
    /// Returns whether a line may be logged now, and logs before it how many were left out.
    fn allow(&mut self, now: Duration) -> bool {
        if self.whole.saturating_sub(now) + LINE_EVERY > LINE_EVERY * LINES {
            self.left_out += 1;
            return false;
        }
        self.whole = self.whole.max(now) + LINE_EVERY;
        if self.left_out > 0 {
            tracing::info!(
                "{} lines about workers that come, go or are refused were left out",
                self.left_out
            );
            self.left_out = 0;
        }
        true
    }

    /// As [`Self::allow`], and at most one line in [`LINE_EVERY`] for each worker, which may ask again and again.
    fn allow_refusal(&mut self, now: Duration, worker: (JobId, WorkerId)) -> bool {
        self.refusals.retain(|(_, at)| now.saturating_sub(*at) < LINE_EVERY);
        let is_new = self.refusals.iter().all(|(logged, _)| *logged != worker);
        let is_allowed = is_new && self.allow(now);
        if is_allowed {
            self.refusals.push((worker, now));
        }
        is_allowed
    }
}

impl Control {
    /// The control thread of the jobs in `registry`: takes packets from `packets` and writes sessions as rows
    /// of `forwarding`. The `shards` send answers. Without jobs, packets go to `controllers`.
    #[must_use]
    pub fn new(
        registry: Registry,
        controllers: Option<Arc<Clients>>,
        packets: Receiver<ControlPacket>,
        forwarding: SharedForwarding,
        shards: Shards,
        shared: Arc<ServerState>,
    ) -> Control {
        let watch = Watch::new(&shared.liveness);
        let views = shared.liveness.jobs().iter().map(|&job| (job, SessionView::default())).collect();
        Control {
            registry,
            controllers,
            packets,
            forwarding,
            rows: StaticRows::default(),
            shards,
            shared,
            watch,
            started: Instant::now(),
            views,
            lines: Lines::default(),
            reported_absence: false,
        }
    }

    /// Runs until the server stops.
    pub fn run(mut self) {
        let (mut refreshed, mut notified) = (Duration::ZERO, Duration::ZERO);
        while !self.shared.stop.load(Ordering::Relaxed) {
            let packet = match self.packets.recv_timeout(TICK) {
                Ok(packet) => Some(packet),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let now = self.started.elapsed();
            if now.saturating_sub(refreshed) >= TICK {
                self.watch.refresh(&self.shared.liveness, now);
                refreshed = now;
            }
            if let Some(packet) = packet {
                self.handle(now, &packet);
            }
            self.poll(now);
            if now.saturating_sub(notified) >= NOTIFY {
                notified = now;
                self.notify_absence(now);
            }
        }
    }

    /// P25: notifies members of those at whose ports no program listens any more.
    fn notify_absence(&mut self, now: Duration) {
        let gone = self.shared.refused();
        if gone.is_empty() && !self.reported_absence {
            return;
        }
        self.reported_absence = !gone.is_empty();
        let notices = if self.controllers.is_some() {
            // ICMP reaches this server alone, so it does not wait for its controller.
            self.forwarding.lock().absence_notices(&gone)
        } else {
            let actions = self.registry.unreachable(&gone).into_iter();
            let sends = actions.filter_map(|action| match action {
                Action::Send(to, bytes) => Some((to, bytes)),
                _ => None,
            });
            sends.collect()
        };
        for (to, bytes) in notices {
            self.send(now, None, to, bytes);
        }
    }

    fn handle(&mut self, now: Duration, packet: &ControlPacket) {
        self.shared.control.packets.fetch_add(1, Ordering::Relaxed);
        if let Some(controllers) = &self.controllers {
            controllers.packet_in(packet);
            return;
        }
        let Ok((header, _)) = Header::parse(packet.bytes()) else { return };
        let (watch, liveness) = (&self.watch, &self.shared.liveness);
        let actions = self.registry.handle(
            now,
            packet.source(),
            packet.bytes(),
            |job, worker| watch.silence(liveness, job, worker, now),
            cookie::random,
        );
        // At a rack: packets of its root are about none of its own workers.
        let header = if header.kind == Kind::Join || header.kind == Kind::Leave {
            header
        } else {
            Header { worker: WorkerId::NONE, ..header }
        };
        let removed = actions.iter().any(|action| matches!(action, Action::Remove(_)));
        if removed && header.kind == Kind::Join && self.lines.allow(now) {
            tracing::info!("job {}: re-forming, because worker {} joins anew", header.job, header.worker);
        }
        if removed && header.kind == Kind::Refused && self.lines.allow(now) {
            tracing::info!("job {}: re-forming, because the root's session is over", header.job);
        }
        self.record(now, &header, packet.source(), removed);
        self.act(now, actions, packet);
        if let Some(view) = self.views.get(&header.job) {
            self.shared.show(header.job, *view);
        }
    }

    /// Does what is due by time: to the root, if this server is a rack, and for sessions that wait at a share.
    fn poll(&mut self, now: Duration) {
        let (watch, liveness) = (&self.watch, &self.shared.liveness);
        let alive = |job, worker| watch.silence(liveness, job, worker, now);
        for action in self.registry.poll(now, alive) {
            match action {
                Action::Send(to, bytes) => self.send(now, None, to, bytes),
                action => drop(self.change(now, action, None)),
            }
        }
        for (&job, view) in &mut self.views {
            if let Some((joined, running)) = self.registry.status(job)
                && (view.joined, view.running) != (joined, running)
            {
                (view.joined, view.running) = (joined, running);
                self.shared.show(job, *view);
            }
        }
    }

    fn act(&mut self, now: Duration, actions: Vec<Action>, packet: &ControlPacket) {
        // Changes are made before packets are sent that report them.
        let (sends, changes): (Vec<_>, Vec<_>) =
            actions.into_iter().partition(|action| matches!(action, Action::Send(..)));
        let resuming = claims(packet.bytes());
        let followed = changes.into_iter().all(|action| self.change(now, action, resuming));
        // If not, the server is about to stop.
        if followed {
            for action in sends {
                if let Action::Send(to, bytes) = action {
                    // Others are answered where they asked: the shards know.
                    let from = packet.destination().filter(|_| to == packet.source());
                    self.send(now, from, to, bytes);
                }
            }
        }
    }

    /// Has the shards follow a change. Returns whether all did.
    fn change(&mut self, now: Duration, action: Action, resuming: Option<u32>) -> bool {
        match action {
            Action::Install(config, members) => {
                let (job, workers) = (config.job, config.workers);
                let what =
                    if resuming == Some(config.cookie.0) { "goes on after a restart" } else { "formed" };
                self.forwarding.lock().set_level(job, config.level);
                let begun = self.views.get(&job).map_or(0, |view| view.begun) + 1;
                let followed =
                    self.write(self.rows.session(self.index(job), begun as u32, &config, &members));
                if followed {
                    if self.lines.allow(now) {
                        let workers = plural(workers.into(), "worker");
                        tracing::info!("job {job}: session {what}, {workers}");
                    }
                    self.views.entry(job).or_default().begun = begun;
                }
                followed
            }
            Action::Move(job, worker, at) => {
                if self.lines.allow(now) {
                    tracing::info!("job {job}: worker {worker} has moved to {}", at.addr);
                }
                self.write(self.rows.member(job, worker, at.addr))
            }
            Action::Remove(job) => self.write(self.rows.end(self.index(job), job, MAX_WORKERS as u8)),
            Action::RootDiffers(job, change) => {
                if self.lines.allow(now) {
                    tracing::error!(
                        "job {job}: the root has another job than this rack ({change}): configure both alike"
                    );
                }
                true
            }
            Action::RootRefuses(job, reason) => {
                if self.lines.allow(now) {
                    tracing::error!("job {job}: the root does not let this rack in: {reason}");
                }
                true
            }
            Action::Send(..) => true,
        }
    }

    /// The place of a job among all, which is also that of its counters.
    fn index(&self, job: JobId) -> u16 {
        let place = self.shared.liveness.jobs().iter().position(|&known| known == job);
        place.unwrap_or_default() as u16
    }

    /// Writes rows. Returns whether the shards followed.
    fn write(&self, changes: impl IntoIterator<Item = RowChange>) -> bool {
        let mut forwarding = self.forwarding.lock();
        for change in changes {
            forwarding.exchange(change);
        }
        forwarding.commit()
    }

    fn send(&mut self, now: Duration, from: Option<IpAddr>, to: Peer, bytes: Vec<u8>) {
        if let Ok((header, payload)) = Header::parse(&bytes)
            && header.kind == Kind::Refused
            && let Some(refused) = Refused::parse(payload)
            && refused.reason != RefuseReason::Reforming
        {
            let before = self.shared.control.refused.fetch_add(1, Ordering::Relaxed);
            // Anybody can make this happen, so it must not fill the log.
            if self.lines.allow_refusal(now, (header.job, refused.worker)) {
                tracing::warn!(
                    "job {}: refused worker {} at {to}: {} (refusal {})",
                    header.job,
                    refused.worker,
                    refused.reason,
                    before + 1,
                );
            }
        }
        self.shards.send(from, to, bytes);
    }

    /// Records and logs the state of a job's session after a packet.
    fn record(&mut self, now: Duration, header: &Header, from: Peer, removed: bool) {
        let (Some((joined, running)), Some(view)) =
            (self.registry.status(header.job), self.views.get_mut(&header.job))
        else {
            return;
        };
        let new = joined & !view.joined & header.worker.bit() != 0;
        let gone = view.joined & !joined & header.worker.bit() != 0;
        let kind = if view.joined == joined && view.running == running { None } else { Some(header.kind) };
        view.joined = joined;
        view.running = running;
        let Some(kind) = kind.filter(|_| self.lines.allow(now)) else { return };
        if removed && !running && kind == Kind::Leave {
            tracing::info!("job {}: session ended, all workers have left", header.job);
        } else if gone && kind == Kind::Leave {
            tracing::info!("job {}: worker {} has left", header.job, header.worker);
        } else if new && kind == Kind::Join {
            tracing::info!(
                "job {}: worker {} joined from {from}, {} of {} have joined",
                header.job,
                header.worker,
                joined.count_ones(),
                self.registry.workers(header.job).unwrap_or_default(),
            );
        }
    }
}

/// The session cookie that a JOIN claims.
fn claims(packet: &[u8]) -> Option<u32> {
    let (header, payload) = Header::parse(packet).ok()?;
    let join = (header.kind == Kind::Join).then(|| thc_protocol::wire::Join::parse(payload))??;
    Some(join.session.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_those_left_out_are_counted() {
        let mut lines = Lines::default();
        let shown = (0..30_000).filter(|ms| lines.allow(Duration::from_millis(*ms))).count();
        assert!((129..=131).contains(&shown), "{shown}");
        assert!(lines.left_out > 0);
    }

    #[test]
    fn a_worker_that_is_refused_again_and_again_has_a_line_a_second() {
        let mut lines = Lines::default();
        let mut shown = |worker| {
            let allowed =
                |ms: &u64| lines.allow_refusal(Duration::from_millis(*ms), (JobId(1), WorkerId(worker)));
            (0..3000).filter(allowed).count()
        };
        assert_eq!((shown(0), shown(1)), (3, 3));
    }
}
