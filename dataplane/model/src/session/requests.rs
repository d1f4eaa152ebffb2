//! Requests of one shard.

use super::{Answer, End, Ended, HELD, Session, malformed, refusal};
use crate::book::{Cell, Model};
use crate::counters::{Reason, add};
use crate::payload;
use crate::shard::{Applied, Phase, PushHead, Shard};
use crate::step::LARGEST;
use crate::wire::{Body, Frame, kind, pulled, pushed};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;
use tokio::time::timeout;

/// A shard, as one worker uses it.
pub(super) struct At<'a> {
    pub(super) session: &'a Session,
    pub(super) model: &'a Arc<Model>,
    pub(super) number: usize,
}

impl At<'_> {
    fn cell(&self) -> &Cell {
        &self.model.cells[self.number]
    }

    pub(super) fn length(&self) -> usize {
        self.model.spec.range(self.number).len()
    }

    pub(super) fn enter(&self) -> Ended<MutexGuard<'_, Shard>> {
        self.cell().enter().map_err(|reason| Some(End(reason)))
    }

    /// Writes the shard's file, away from the threads that serve.
    async fn save(&self) -> Result<(), (Reason, String)> {
        let (model, number) = (Arc::clone(self.model), self.number);
        let saved = tokio::task::spawn_blocking(move || model.save(number)).await;
        match saved {
            Ok(Ok(written)) => {
                add(&self.session.job.counters.saves, u64::from(written));
                Ok(())
            }
            Ok(Err(error)) => {
                tracing::error!("{error}");
                Err((Reason::Disk, "the server cannot write its state: see its log".to_owned()))
            }
            Err(_) => Err((Reason::Disk, "the server is stopping".to_owned())),
        }
    }

    pub(super) async fn pull(&self, mut body: Body<'_>) -> Ended<Answer> {
        let patient = malformed(body.u8())? == 1;
        let known = malformed(body.u64())?;
        let stamp = malformed(body.stamp())?;
        let snapshot = malformed(body.u64())?;
        malformed(body.end())?;
        let known = (known == self.session.book.incarnation).then_some(stamp);
        let snapshot = snapshot.checked_sub(1);
        let held = Instant::now() + HELD;
        let counters = &self.session.job.counters;
        loop {
            let changed = self.cell().changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = Instant::now();
            let head = 1 + 24;
            let mut frame = Frame::new(kind::PULLED).raw(&[0; 25]);
            let at = frame.tail().len() - head;
            let pulled = self.enter()?.pull(self.session.worker, known, snapshot, now, frame.tail());
            let (code, stamp) = match pulled {
                Ok(crate::shard::Pulled::Empty) => (pulled::EMPTY, Default::default()),
                Ok(crate::shard::Pulled::Waiting { epoch }) => {
                    let durable = self.model.is_durable(self.number, epoch);
                    if (patient || !durable) && now < held {
                        let _ = timeout(held - now, changed).await;
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
                Ok(crate::shard::Pulled::Running(stamp)) => (pulled::VECTOR, stamp),
                Ok(crate::shard::Pulled::Unchanged(stamp)) => (pulled::UNCHANGED, stamp),
                Ok(crate::shard::Pulled::Snapshot(stamp)) => (pulled::SNAPSHOT, stamp),
                Err(_) => {
                    return Ok(Err((
                        Reason::NotFinite,
                        "the model is no longer finite: begin anew with a lower rate".to_owned(),
                    )));
                }
            };
            let sent = frame.tail().len() - at - head;
            let stamped = Frame::new(0).u8(code).stamp(stamp).finish();
            frame.tail()[at..at + head].copy_from_slice(&stamped[5..]);
            if matches!(code, pulled::VECTOR | pulled::UNCHANGED | pulled::SNAPSHOT) {
                add(&counters.pulls, 1);
                add(&counters.flags, u64::from(sent == 0));
                add(&counters.pulled_bytes, sent as u64);
            }
            return Ok(Ok(frame));
        }
    }

    pub(super) async fn push(&self, mut body: Body<'_>) -> Ended<Answer> {
        let counters = &self.session.job.counters;
        let sequence = malformed(body.u64())?;
        let incarnation = malformed(body.u64())?;
        let stamp = malformed(body.stamp())?;
        let scale = malformed(body.f32())?;
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
        let spans = match payload::decode_push(body.0, &mut zeta) {
            Ok(spans) => spans,
            Err(payload::Broken::NotFinite) => return refused(Reason::NotFinite),
            // Whoever sends this is no worker of this version.
            Err(payload::Broken::Shape(_)) => return Err(Some(End(Reason::Malformed))),
        };
        if incarnation != self.session.book.incarnation {
            // It may have been taken before the restart, and kept.
            let shard = self.enter()?;
            if sequence <= shard.sequence(self.session.worker) {
                add(&counters.repeated, 1);
                return reply(pushed::REPEATED, shard.stamp(), 0);
            }
            drop(shard);
            return refused(Reason::Incarnation);
        }
        let head = PushHead { sequence, stamp, scale };
        let mut waited = false;
        loop {
            let changed = self.cell().changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = Instant::now();
            let applied = self.enter()?.push_part(self.session.worker, &head, &zeta, &spans, now);
            match applied {
                Applied::Taken { stamp, delay, ended } => {
                    add(&counters.pushes, 1);
                    add(&counters.pushed_bytes, body.0.len() as u64);
                    add(&counters.epochs, u64::from(ended));
                    self.cell().changed.notify_waiters();
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

    pub(super) async fn snapshot(&self, body: Body<'_>) -> Ended<Answer> {
        malformed(body.end())?;
        let held = Instant::now() + HELD;
        loop {
            let changed = self.cell().changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let frame = {
                let shard = self.enter()?;
                let state = shard.state();
                if state.phase == Phase::Empty {
                    return Ok(refusal(Reason::Empty));
                }
                // A model without epochs has no snapshot but itself.
                let vector = if state.snapshot.is_empty() { &state.x } else { &state.snapshot };
                self.model.is_durable(self.number, state.epoch).then(|| {
                    let mut frame = Frame::new(kind::SNAPPED).u64(state.epoch);
                    payload::put_floats(vector, frame.tail());
                    frame
                })
            };
            if let Some(frame) = frame {
                add(&self.session.job.counters.snapshots, 1);
                return Ok(Ok(frame));
            }
            let now = Instant::now();
            if now >= held {
                return Ok(refusal(Reason::Disk));
            }
            let _ = timeout(held - now, changed).await;
        }
    }

    /// INIT and BEGIN: a vector of floats that must not be forgotten once it is answered.
    pub(super) async fn give(&self, kind: u8, mut body: Body<'_>) -> Ended<Answer> {
        let epoch = malformed(body.u64())?;
        let mut vector = vec![0.0; self.length()];
        match payload::take_floats(body.0, &mut vector) {
            Ok(()) => {}
            Err(payload::Broken::NotFinite) => return Ok(refusal(Reason::NotFinite)),
            Err(payload::Broken::Shape(_)) => return Err(Some(End(Reason::Malformed))),
        }
        if kind == kind::INIT && !Shard::holds(&vector) {
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
                self.model.given(self.number);
            }
            taken
        };
        if taken {
            self.cell().changed.notify_waiters();
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
