//! Requests of one shard.

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::{Failure, Session, blocking};
use crate::counters::Reason;
use crate::model::{Model, SharedShard};
use crate::payload::{self, Broken};
use crate::shard::{Applied, ModelShard, Phase, PullAnswer, PushHead, Stamp};
use crate::step::LARGEST;
use crate::wire::{ADMIN, Answer, Frame, Request, split};

/// The longest time for which an answer to a patient pull is held back while the epoch's gradient is missing.
const HOLD: Duration = Duration::from_secs(5);
/// From so many coordinates on, work is kept off the threads that wait for packets.
const HEAVY: usize = 1 << 15;

/// Work that takes a while, so that other connections of this thread are served meanwhile.
fn heavy<T>(coordinates: usize, work: impl FnOnce() -> T) -> T {
    if coordinates < HEAVY { work() } else { tokio::task::block_in_place(work) }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::NotFinite => Reason::NotFinite.into(),
            // The peer is no worker of this version.
            Broken::Shape(_) => Self::Close(Reason::Malformed),
        }
    }
}

/// A shard, as one worker uses it.
pub(super) struct ShardRequests<'a> {
    session: &'a Session,
    model: Arc<Model>,
    number: usize,
}

impl Session {
    /// A shard of a model that the client is attached to.
    pub(super) fn shard(&self, model: Arc<Model>, number: usize) -> ShardRequests<'_> {
        ShardRequests { session: self, model, number }
    }
}

impl ShardRequests<'_> {
    fn shared(&self) -> &SharedShard {
        &self.model.shards[self.number]
    }

    pub(super) fn length(&self) -> usize {
        self.model.spec.range(self.number).len()
    }

    fn enter(&self) -> Result<MutexGuard<'_, ModelShard>, Failure> {
        self.shared().enter().map_err(Failure::Close)
    }

    async fn save(&self) -> Result<(), Failure> {
        let (job, model, number) = (Arc::clone(&self.session.job), Arc::clone(&self.model), self.number);
        blocking(move || job.save(&model, number)).await
    }

    pub(super) fn attach(&self) -> Result<Frame, Failure> {
        let shard = self.enter()?;
        let (stamp, sequence) = (shard.stamp(), shard.sequence(self.session.worker));
        Ok(Frame::new(&Answer::Attached { stamp, sequence }))
    }

    pub(super) async fn answer(&self, frame: &[u8]) -> Result<Frame, Failure> {
        let trains = self.session.worker < ADMIN;
        match split(frame) {
            Some((Request::Pull { patient, held, snapshot }, [])) if trains => {
                self.pull(patient, held, snapshot).await
            }
            Some((Request::Push { incarnation, head }, vector)) if trains => {
                let delay = self.push(incarnation, &head, vector).await?;
                Ok(Frame::new(&Answer::Pushed { delay }))
            }
            Some((Request::Numbers { snapshot }, [])) => self.numbers(snapshot).await,
            Some((Request::Initialise, floats)) => self.give(None, floats).await,
            Some((Request::Begin { epoch }, floats)) => self.give(Some(epoch), floats).await,
            _ => Err(Failure::Close(Reason::Malformed)),
        }
    }

    async fn pull(
        &self,
        patient: bool,
        held: Option<(u64, Stamp)>,
        snapshot: Option<u64>,
    ) -> Result<Frame, Failure> {
        let Session { worker, incarnation, job, .. } = self.session;
        let held = held.filter(|(of, _)| of == incarnation).map(|(_, stamp)| stamp);
        let deadline = Instant::now() + HOLD;
        let mut changes = self.shared().changed.subscribe();
        loop {
            let now = Instant::now();
            let (answer, version) = self.enter()?.prepare(*worker, held, snapshot);
            if let PullAnswer::Waiting { epoch } = answer {
                let durable = self.model.is_durable(self.number, epoch);
                if (patient || !durable) && now < deadline {
                    let _ = timeout(deadline - now, changes.changed()).await;
                    continue;
                }
                if !durable {
                    return Err(Reason::Disk.into());
                }
            }
            let mut frame = Frame::new(&Answer::Pulled(answer));
            let head = frame.tail().len();
            if let Some(version) = version {
                // Rounded and packed without the shard, which others use meanwhile.
                heavy(self.length(), || version.write(frame.tail())).map_err(|_| Reason::NotFinite)?;
            }
            if !matches!(answer, PullAnswer::Empty | PullAnswer::Waiting { .. }) {
                let sent = frame.tail().len() - head;
                job.count(|stats| {
                    stats.pulls += 1;
                    stats.pulled_bytes += sent as u64;
                });
            }
            return Ok(frame);
        }
    }

    /// The delay of a push, or `None` if it had been taken before.
    async fn push(&self, incarnation: u64, head: &PushHead, vector: &[u8]) -> Result<Option<u64>, Failure> {
        let Session { worker, job, .. } = self.session;
        if !(head.scale.is_finite() && head.scale >= 0.0) {
            return Err(Reason::NotFinite.into());
        }
        let mut zeta = vec![0.0; self.length()];
        heavy(self.length(), || payload::decode(vector, &mut zeta))?;
        if incarnation != self.session.incarnation {
            // It may have been taken before the restart, and kept.
            let taken = head.sequence <= self.enter()?.sequence(*worker);
            return if taken { Ok(None) } else { Err(Reason::Incarnation.into()) };
        }
        let applied = heavy(self.length(), || Ok::<_, Failure>(self.enter()?.push(*worker, head, &zeta)))?;
        match applied {
            Applied::Taken { delay, ended, .. } => {
                job.count(|stats| {
                    stats.pushes += 1;
                    stats.pushed_bytes += vector.len() as u64;
                });
                self.shared().changed.send_replace(());
                if ended && self.model.spec.corrected {
                    self.save().await?;
                }
                Ok(Some(delay))
            }
            Applied::Repeated => Ok(None),
            Applied::Refused(reason) => Err(reason.into()),
        }
    }

    /// The numbers of the shard, or those of its snapshot, and which version they are.
    async fn numbers(&self, snapshot: bool) -> Result<Frame, Failure> {
        let deadline = Instant::now() + HOLD;
        let mut changes = self.shared().changed.subscribe();
        loop {
            let state = self.enter()?.state().clone();
            if state.phase == Phase::Empty {
                return Err(Reason::Empty.into());
            }
            if !snapshot || self.model.is_durable(self.number, state.epoch) {
                // A model without epochs has no snapshot but itself.
                let of_snapshot = snapshot && !state.snapshot.is_empty();
                let vector = if of_snapshot { &state.snapshot } else { &state.x };
                let mut frame = Frame::new(&Answer::Numbers { stamp: state.stamp() });
                heavy(self.length(), || payload::put_floats(vector, frame.tail()));
                return Ok(frame);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Reason::Disk.into());
            }
            let _ = timeout(left, changes.changed()).await;
        }
    }

    /// Takes a first value, or the gradient of an epoch, neither of which must be forgotten once it is answered.
    async fn give(&self, epoch: Option<u64>, floats: &[u8]) -> Result<Frame, Failure> {
        let mut vector = vec![0.0; self.length()];
        payload::take_floats(floats, &mut vector)?;
        if epoch.is_none() && !ModelShard::holds(&vector) {
            let text = format!("a value is above {LARGEST:e}, the most that a model holds");
            return Err(Failure::Refused(Reason::Range, text));
        }
        let taken = {
            let mut shard = self.enter()?;
            let taken = match epoch {
                None => shard.initialise(&vector),
                Some(epoch) => shard.begin(epoch, &vector),
            };
            if taken {
                self.model.count_value(self.number);
            }
            taken
        };
        if taken {
            self.shared().changed.send_replace(());
        }
        // Also if another worker was first, whose file may not be written yet.
        if self.model.owes(self.number) {
            self.save().await?;
        }
        Ok(Frame::new(&Answer::Given { taken }))
    }
}
