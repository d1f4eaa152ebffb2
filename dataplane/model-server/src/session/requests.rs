//! Requests of one shard.

use super::answer::{Answer, Close, Served, refusal, require_field};
use crate::counters::{Reason, add};
use crate::job::Job;
use crate::model::{Model, SharedShard};
use crate::payload;
use crate::shard::{Applied, ModelShard, Phase, PullAnswer, PushHead};
use crate::step::LARGEST;
use crate::wire::{Body, Frame, kind, pulled, pushed};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long an answer to a patient pull is held back while the epoch's gradient is missing.
const HOLD: Duration = Duration::from_secs(5);
/// From so many coordinates on, work is kept off the threads that wait for packets.
const HEAVY: usize = 1 << 15;

/// Work that takes a while, so that other connections of this thread are served meanwhile.
fn heavy<T>(coordinates: usize, work: impl FnOnce() -> T) -> T {
    if coordinates < HEAVY { work() } else { tokio::task::block_in_place(work) }
}

/// A shard, as one worker uses it.
pub(super) struct ShardRequests<'a> {
    pub(super) job: &'a Job,
    pub(super) worker: u16,
    /// The number of this life of the server.
    pub(super) incarnation: u64,
    pub(super) model: &'a Arc<Model>,
    pub(super) number: usize,
}

impl ShardRequests<'_> {
    fn own_shard(&self) -> &SharedShard {
        &self.model.shards[self.number]
    }

    pub(super) fn length(&self) -> usize {
        self.model.spec.range(self.number).len()
    }

    pub(super) fn enter(&self) -> Served<MutexGuard<'_, ModelShard>> {
        self.own_shard().enter().map_err(|reason| Some(Close(reason)))
    }

    /// Writes the shard's file, away from the threads that serve.
    async fn save(&self) -> Result<(), (Reason, String)> {
        let (model, number) = (Arc::clone(self.model), self.number);
        let saved = tokio::task::spawn_blocking(move || model.save(number)).await;
        match saved {
            Ok(Ok(written)) => {
                add(&self.job.counters.saves, u64::from(written));
                Ok(())
            }
            Ok(Err(error)) => {
                tracing::error!("{error}");
                Err((Reason::Disk, "the server cannot write its state: see its log".to_owned()))
            }
            Err(_) => Err((Reason::Disk, "the server is stopping".to_owned())),
        }
    }

    pub(super) async fn pull(&self, mut body: Body<'_>) -> Served<Answer> {
        let patient = require_field(body.u8())? == 1;
        let known = require_field(body.u64())?;
        let stamp = require_field(body.stamp())?;
        let snapshot = require_field(body.u64())?;
        require_field(body.end())?;
        let known = (known == self.incarnation).then_some(stamp);
        let snapshot = snapshot.checked_sub(1);
        let deadline = Instant::now() + HOLD;
        let counters = &self.job.counters;
        loop {
            let changed = self.own_shard().changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = Instant::now();
            let (answer, version) = self.enter()?.reserve(self.worker, known, snapshot, now);
            let (code, stamp) = match answer {
                PullAnswer::Empty => (pulled::EMPTY, Default::default()),
                PullAnswer::Waiting { epoch } => {
                    let durable = self.model.is_durable(self.number, epoch);
                    if (patient || !durable) && now < deadline {
                        let _ = timeout(deadline - now, changed).await;
                        continue;
                    }
                    if !durable {
                        return Ok(Err((
                            Reason::Disk,
                            "the end of an epoch cannot be written: see the server's log".to_owned(),
                        )));
                    }
                    (pulled::WAITING, crate::shard::Stamp { epoch, ..Default::default() })
                }
                PullAnswer::Running(stamp) => (pulled::VECTOR, stamp),
                PullAnswer::Unchanged(stamp) => (pulled::UNCHANGED, stamp),
                PullAnswer::Snapshot(stamp) => (pulled::SNAPSHOT, stamp),
            };
            let mut frame = Frame::new(kind::PULLED).u8(code).stamp(stamp);
            let head = frame.tail().len();
            // Rounded and packed without the shard, which others use meanwhile.
            let written =
                version.map_or(Ok(()), |version| heavy(self.length(), || version.write(frame.tail())));
            if written.is_err() {
                return Ok(Err((
                    Reason::NotFinite,
                    "the model is no longer finite: begin anew with a lower rate".to_owned(),
                )));
            }
            let sent = frame.tail().len() - head;
            if matches!(code, pulled::VECTOR | pulled::UNCHANGED | pulled::SNAPSHOT) {
                add(&counters.pulls, 1);
                add(&counters.flags, u64::from(sent == 0));
                add(&counters.pulled_bytes, sent as u64);
            }
            return Ok(Ok(frame));
        }
    }

    pub(super) async fn push(&self, mut body: Body<'_>) -> Served<Answer> {
        let counters = &self.job.counters;
        let sequence = require_field(body.u64())?;
        let incarnation = require_field(body.u64())?;
        let stamp = require_field(body.stamp())?;
        let scale = require_field(body.f32())?;
        let reply =
            |code: u8, stamp, delay: u64| Ok(Ok(Frame::new(kind::PUSHED).u8(code).stamp(stamp).u64(delay)));
        let refused = |reason: Reason| {
            counters.refuse(reason);
            let stamp = self.enter()?.stamp();
            reply(reason as u8, stamp, 0)
        };
        if !(scale.is_finite() && scale >= 0.0) {
            return refused(Reason::NotFinite);
        }
        let mut zeta = vec![0.0; self.length()];
        match heavy(self.length(), || payload::decode(body.0, &mut zeta)) {
            Ok(()) => {}
            Err(payload::Broken::NotFinite) => return refused(Reason::NotFinite),
            // The peer is no worker of this version.
            Err(payload::Broken::Shape(_)) => return Err(Some(Close(Reason::Malformed))),
        }
        if incarnation != self.incarnation {
            // It may have been taken before the restart, and kept.
            let shard = self.enter()?;
            if sequence <= shard.sequence(self.worker) {
                add(&counters.repeated, 1);
                return reply(pushed::REPEATED, shard.stamp(), 0);
            }
            drop(shard);
            return refused(Reason::Incarnation);
        }
        let head = PushHead { sequence, stamp, scale };
        let mut waited = false;
        loop {
            let changed = self.own_shard().changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = Instant::now();
            let applied = heavy(self.length(), || {
                Ok::<_, Option<Close>>(self.enter()?.push(self.worker, &head, &zeta, now))
            })?;
            match applied {
                Applied::Taken { stamp, delay, ended } => {
                    add(&counters.pushes, 1);
                    add(&counters.pushed_bytes, body.0.len() as u64);
                    add(&counters.epochs, u64::from(ended));
                    self.own_shard().changed.notify_waiters();
                    if ended
                        && self.model.spec.corrected
                        && let Err(error) = self.save().await
                    {
                        return Ok(Err(error));
                    }
                    return reply(pushed::TAKEN, stamp, delay);
                }
                Applied::Repeated => {
                    add(&counters.repeated, 1);
                    let stamp = self.enter()?.stamp();
                    return reply(pushed::REPEATED, stamp, 0);
                }
                Applied::Refused(reason) => return refused(reason),
                Applied::Wait(until) => {
                    if !waited {
                        add(&counters.waits, 1);
                        waited = true;
                    }
                    let _ = timeout(until.saturating_duration_since(now), changed).await;
                }
            }
        }
    }

    pub(super) async fn snapshot(&self, body: Body<'_>) -> Served<Answer> {
        require_field(body.end())?;
        let deadline = Instant::now() + HOLD;
        loop {
            let changed = self.own_shard().changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let state = self.enter()?.state().clone();
            if state.phase == Phase::Empty {
                return Ok(refusal(Reason::Empty));
            }
            // A model without epochs has no snapshot but itself.
            let vector = if state.snapshot.is_empty() { &state.x } else { &state.snapshot };
            let frame = self.model.is_durable(self.number, state.epoch).then(|| {
                let mut frame = Frame::new(kind::SNAPPED).u64(state.epoch);
                payload::put_floats(vector, frame.tail());
                frame
            });
            if let Some(frame) = frame {
                add(&self.job.counters.snapshots, 1);
                return Ok(Ok(frame));
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(refusal(Reason::Disk));
            }
            let _ = timeout(deadline - now, changed).await;
        }
    }

    /// The numbers themselves, and which version they are.
    pub(super) async fn exact(&self, body: Body<'_>) -> Served<Answer> {
        require_field(body.end())?;
        let state = self.enter()?.state().clone();
        if state.phase == Phase::Empty {
            return Ok(refusal(Reason::Empty));
        }
        let mut frame = Frame::new(kind::NUMBERS).stamp(state.stamp());
        heavy(self.length(), || payload::put_floats(&state.x, frame.tail()));
        Ok(Ok(frame))
    }

    /// INIT and BEGIN: a vector of floats that must not be forgotten once it is answered.
    pub(super) async fn give(&self, kind: u8, mut body: Body<'_>) -> Served<Answer> {
        let epoch = require_field(body.u64())?;
        let mut vector = vec![0.0; self.length()];
        match payload::take_floats(body.0, &mut vector) {
            Ok(()) => {}
            Err(payload::Broken::NotFinite) => return Ok(refusal(Reason::NotFinite)),
            Err(payload::Broken::Shape(_)) => return Err(Some(Close(Reason::Malformed))),
        }
        if kind == kind::INIT && !ModelShard::holds(&vector) {
            return Ok(Err((
                Reason::Range,
                format!("a value is above {LARGEST:e}, the most that a model holds"),
            )));
        }
        let taken = {
            let mut shard = self.enter()?;
            let taken =
                if kind == kind::INIT { shard.initialise(&vector) } else { shard.begin(epoch, &vector) };
            if taken {
                self.model.count_value(self.number);
            }
            taken
        };
        if taken {
            self.own_shard().changed.notify_waiters();
        }
        // Also if another worker was first, whose file may not be written yet.
        if self.model.owes(self.number)
            && let Err(error) = self.save().await
        {
            return Ok(Err(error));
        }
        let stamp = self.enter()?.stamp();
        Ok(Ok(Frame::new(kind::DONE).u8(u8::from(taken)).stamp(stamp)))
    }
}
