//! A shard: a range of coordinates with its own clock. Bytes and the time go in, answers come out.
//!
//! A shard is empty until it is given a value. With correction it then waits for the full-batch gradient at its
//! snapshot; running, it takes m pushes, sets the next snapshot and waits again (Algorithms 1 and 3).
//!
//! **Delay.** The version of a shard is how many pushes it has taken. A pull reserves: the worker holds version D
//! until its push. With reservations in the order of D, number i from 0, the shard keeps t + i − D_i ≤ τ: a
//! push that would break this for an older reservation waits until that has been used or given up. A new
//! reservation has D = t and i ≤ workers − 1 ≤ τ, and the oldest can always be used, so nobody waits for ever,
//! and no push is applied with a delay above τ. A reservation is given up when its worker's connection ends or its
//! lease runs out; a push that comes later all the same is taken if its delay is still within τ. A worker whose lease
//! ran out gets no reservation until one of its pushes was taken: whoever pulls and never pushes delays others once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thc_codec::lattice::Lattice;
use thc_codec::norm;
use thc_codec::rounding::Rounding;

use crate::counters::Reason;
use crate::payload;
use crate::spec::{ModelBits, Spec};
use crate::step::{LARGEST, Proximal, couple, theta};

/// What a shard can do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has no value.
    Empty,
    /// It waits for the full-batch gradient at its snapshot.
    Waiting,
    /// It takes pushes.
    Running,
}

/// Everything of a shard that survives a restart.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// What it can do.
    pub phase: Phase,
    /// Epochs completed.
    pub epoch: u64,
    /// Pushes taken in this epoch: t.
    pub step: u64,
    /// Pushes taken in all.
    pub version: u64,
    /// x.
    pub x: Vec<f32>,
    /// x̃; empty if the model has no epochs.
    pub snapshot: Vec<f32>,
    /// ∇f(x̃); empty without correction.
    pub gradient: Vec<f32>,
    /// y of Algorithm 3; empty without momentum.
    pub y: Vec<f32>,
    /// Mean of x over the epoch; empty without momentum.
    pub mean: Vec<f32>,
    /// The last push of each worker, by number.
    pub sequences: BTreeMap<u16, u64>,
}

/// A worker's hold on a version.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    version: u64,
    until: Instant,
}

/// What a pull is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulled {
    /// No value yet.
    Empty,
    /// The epoch's gradient is missing.
    Waiting {
        /// Which epoch.
        epoch: u64,
    },
    /// A vector was written.
    Running(Stamp),
    /// The vector is that of the pull before.
    Unchanged(Stamp),
    /// The vector is the snapshot, which the worker has.
    Snapshot(Stamp),
}

/// Which state of a shard a vector is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Epochs completed.
    pub epoch: u64,
    /// Pushes taken in this epoch.
    pub step: u64,
    /// Pushes taken in all.
    pub version: u64,
}

/// A push, all but its vector.
#[derive(Clone, Copy, Debug)]
pub struct PushHead {
    /// Number of this push, per worker from 1.
    pub sequence: u64,
    /// Of the pull that it answers.
    pub stamp: Stamp,
    /// Factor of the model's rate.
    pub scale: f32,
}

/// What a push is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It was taken.
    Taken {
        /// After it.
        stamp: Stamp,
        /// Steps between its pull and itself.
        delay: u64,
        /// It was the last of its epoch.
        ended: bool,
    },
    /// It had been taken before.
    Repeated,
    /// It is refused.
    Refused(Reason),
    /// It must wait until something changes, or until then.
    Wait(Instant),
}

/// See the module.
#[derive(Debug)]
pub struct Shard {
    spec: Arc<Spec>,
    number: u32,
    state: State,
    reservations: BTreeMap<u16, Reservation>,
    disgraced: BTreeMap<u16, ()>,
    /// How long a reservation lasts.
    lease: Duration,
    /// Precision of the last pull.
    bits: u8,
    /// Delays of the pushes taken: how many of 0, 1, 2–3, 4–7, …
    pub(crate) delays: [u64; 16],
    /// Largest delay of a push that was taken.
    pub(crate) longest: u64,
    /// Reservations whose lease ran out.
    pub(crate) expired: u64,
}

impl Shard {
    /// An empty shard.
    #[must_use]
    pub fn new(spec: Arc<Spec>, number: u32, lease: Duration) -> Self {
        let len = spec.range(number as usize).len();
        let zeros = |wanted: bool| if wanted { vec![0.0; len] } else { Vec::new() };
        let state = State {
            phase: Phase::Empty,
            epoch: 0,
            step: 0,
            version: 0,
            x: zeros(true),
            snapshot: zeros(spec.snapshots()),
            gradient: zeros(spec.corrected),
            y: zeros(spec.accelerated),
            mean: zeros(spec.accelerated),
            sequences: BTreeMap::new(),
        };
        Self::resumed(spec, number, lease, state)
    }

    /// A shard in a state that was kept. Its vectors must have the lengths of [`Self::new`].
    #[must_use]
    pub fn resumed(spec: Arc<Spec>, number: u32, lease: Duration, state: State) -> Self {
        Self {
            spec,
            number,
            state,
            reservations: BTreeMap::new(),
            disgraced: BTreeMap::new(),
            lease,
            bits: 0,
            delays: [0; 16],
            longest: 0,
            expired: 0,
        }
    }

    /// What survives a restart.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Which state it is in.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        let State { epoch, step, version, .. } = self.state;
        Stamp { epoch, step, version }
    }

    /// Precision of the last pull, 0 before the first.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// The number of the last push of a worker.
    #[must_use]
    pub fn sequence(&self, worker: u16) -> u64 {
        self.state.sequences.get(&worker).copied().unwrap_or(0)
    }

    /// Whether it may hold these numbers.
    #[must_use]
    pub fn holds(x: &[f32]) -> bool {
        norm::max_abs(x) <= LARGEST
    }

    /// Gives an empty shard its value, which it must be able to hold: whether it was empty.
    pub fn initialise(&mut self, x: &[f32]) -> bool {
        if self.state.phase != Phase::Empty || !Self::holds(x) {
            return false;
        }
        self.state.x.copy_from_slice(x);
        for copy in [&mut self.state.snapshot, &mut self.state.y] {
            if !copy.is_empty() {
                copy.copy_from_slice(x);
            }
        }
        self.begin_epoch();
        true
    }

    /// The state between two epochs, after the snapshot was set.
    fn begin_epoch(&mut self) {
        let State { x, snapshot, y, mean, epoch, .. } = &mut self.state;
        if self.spec.accelerated {
            // x₀ = θ·y₀ + (1 − θ)·x̃ (line 3), in the form of line 8.
            mean.fill(0.0);
            let weight = theta(*epoch);
            for ((x, y), snapshot) in x.iter_mut().zip(&*y).zip(&*snapshot) {
                *x = snapshot + weight * (y - snapshot);
            }
        }
        self.state.step = 0;
        self.state.phase = if self.spec.corrected { Phase::Waiting } else { Phase::Running };
    }

    /// Gives the full-batch gradient of an epoch: whether it was missing.
    pub fn begin(&mut self, epoch: u64, gradient: &[f32]) -> bool {
        if self.state.phase != Phase::Waiting || self.state.epoch != epoch {
            return false;
        }
        self.state.gradient.copy_from_slice(gradient);
        self.state.phase = Phase::Running;
        true
    }

    /// Forgets what a worker holds: its connection has ended.
    pub fn release(&mut self, worker: u16) {
        self.reservations.remove(&worker);
    }

    fn expire(&mut self, now: Instant) {
        let (reservations, disgraced) = (&mut self.reservations, &mut self.disgraced);
        let before = reservations.len();
        reservations.retain(|worker, reservation| {
            let valid = reservation.until > now;
            if !valid {
                disgraced.insert(*worker, ());
            }
            valid
        });
        self.expired += (before - reservations.len()) as u64;
    }

    /// Appends the model to `out`, in the precision of the spec, unless the worker has it: `known` is the stamp of
    /// its last pull, and `snapshot` the epoch of its snapshot.
    ///
    /// # Errors
    /// A model that is no longer finite.
    pub fn pull(
        &mut self,
        worker: u16,
        known: Option<Stamp>,
        snapshot: Option<u64>,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Result<Pulled, thc_codec::CodecError> {
        match self.state.phase {
            Phase::Empty => return Ok(Pulled::Empty),
            Phase::Waiting => return Ok(Pulled::Waiting { epoch: self.state.epoch }),
            Phase::Running => {}
        }
        self.expire(now);
        let stamp = self.stamp();
        let pulled = if known == Some(stamp) {
            Pulled::Unchanged(stamp)
        } else if stamp.step == 0
            && self.spec.snapshots()
            && !self.spec.accelerated
            && snapshot == Some(stamp.epoch)
        {
            Pulled::Snapshot(stamp)
        } else {
            self.write(worker, out)?;
            Pulled::Running(stamp)
        };
        if !self.disgraced.contains_key(&worker) {
            let reservation = Reservation { version: stamp.version, until: now + self.lease };
            self.reservations.insert(worker, reservation);
        }
        Ok(pulled)
    }

    /// Step 7 of Algorithm 1. The same worker gets the same rounding of the same version.
    fn write(&mut self, worker: u16, out: &mut Vec<u8>) -> Result<(), thc_codec::CodecError> {
        let x = &self.state.x;
        let round = self.state.version << 16 | u64::from(worker);
        let rounding = Rounding::new(self.spec.seed, round, self.number);
        match self.choose()? {
            Some(lattice) => {
                self.bits = lattice.bits();
                payload::encode_on(x, &lattice, rounding, out)?;
            }
            None => {
                self.bits = 32;
                payload::encode_full(x, out);
            }
        }
        Ok(())
    }

    /// The lattice of pulls, `None` for floats.
    fn choose(&self) -> Result<Option<Lattice>, thc_codec::CodecError> {
        let x = &self.state.x;
        let max = norm::max_abs(x);
        match self.spec.bits {
            ModelBits::Fixed(32) => Ok(None),
            ModelBits::Fixed(bits) => Lattice::reaching(max, bits).map(Some),
            ModelBits::Condition(mu) => {
                let allowed = f64::from(self.weight() * mu) * self.drift();
                for bits in thc_codec::lattice::BITS {
                    let lattice = Lattice::reaching(max, bits)?;
                    if lattice.variance(x) <= allowed {
                        return Ok(Some(lattice));
                    }
                }
                Ok(None)
            }
        }
    }

    /// Of μ: θ for accelerated models (condition (4)).
    fn weight(&self) -> f32 {
        if self.spec.accelerated { theta(self.state.epoch) } else { 1.0 }
    }

    /// ‖x − x̃‖², 0 without snapshots.
    fn drift(&self) -> f64 {
        let difference: Vec<f32> =
            self.state.x.iter().zip(&self.state.snapshot).map(|(x, s)| x - s).collect();
        f64::from(norm::l2(&difference)).powi(2)
    }

    /// The least μ for which condition (2) holds with `bits`, and E‖Q(x) − x‖²: Figs. 2 and 5 of the paper.
    ///
    /// # Errors
    /// `bits` out of range, and a model that is no longer finite.
    pub fn condition(&self, bits: u8) -> Result<(f64, f64), thc_codec::CodecError> {
        let variance = Lattice::spanning(&self.state.x, bits)?.variance(&self.state.x);
        Ok((variance / self.drift(), variance))
    }

    /// Takes the gradient `zeta` of a worker.
    pub fn push(&mut self, worker: u16, head: &PushHead, zeta: &[f32], now: Instant) -> Applied {
        let all = 0..self.state.x.len();
        self.push_part(worker, head, zeta, std::slice::from_ref(&all), now)
    }

    /// Takes a gradient that has only these coordinates, in this order. The others are not in the step, whose
    /// proximal part would move them even without a gradient.
    pub fn push_part(
        &mut self,
        worker: u16,
        head: &PushHead,
        zeta: &[f32],
        spans: &[Range<usize>],
        now: Instant,
    ) -> Applied {
        if head.sequence <= self.sequence(worker) {
            return Applied::Repeated;
        }
        let stamp = self.stamp();
        match self.state.phase {
            Phase::Empty => return Applied::Refused(Reason::Empty),
            Phase::Waiting => return Applied::Refused(Reason::Epoch),
            Phase::Running => {}
        }
        if self.spec.corrected && head.stamp.epoch != stamp.epoch {
            return Applied::Refused(Reason::Epoch);
        }
        let Some(delay) = stamp.version.checked_sub(head.stamp.version) else {
            return Applied::Refused(Reason::Future);
        };
        if let Some(limit) = self.spec.delay.map(u64::from) {
            self.expire(now);
            if delay > limit {
                return Applied::Refused(Reason::Late);
            }
            // Older reservations, and equally old ones of workers before this one, must survive the step.
            let own = (head.stamp.version, worker);
            let mut order: Vec<_> = self.reservations.iter().map(|(w, r)| (r.version, *w, r.until)).collect();
            order.sort_unstable_by_key(|(version, worker, _)| (*version, *worker));
            let older = order.iter().take_while(|(version, worker, _)| (*version, *worker) < own);
            for (i, (version, _, until)) in older.enumerate() {
                if stamp.version + 1 + i as u64 - version > limit {
                    // Its own does not run out meanwhile: it is not silent, its push is here.
                    if let Some(own) = self.reservations.get_mut(&worker) {
                        own.until = own.until.max(*until + self.lease);
                    }
                    return Applied::Wait(*until);
                }
            }
        }
        if !self.advance(zeta, spans, head.scale) {
            return Applied::Refused(Reason::Range);
        }
        self.reservations.remove(&worker);
        self.disgraced.remove(&worker);
        self.state.sequences.insert(worker, head.sequence);
        let bucket = if delay == 0 { 0 } else { delay.ilog2() as usize + 1 };
        self.delays[bucket.min(self.delays.len() - 1)] += 1;
        self.longest = self.longest.max(delay);
        let ended = self.spec.epoch.is_some_and(|m| self.state.step >= u64::from(m.get()));
        if ended {
            self.end_epoch();
        }
        Applied::Taken { stamp: self.stamp(), delay, ended }
    }

    /// Makes the step, unless it would take a number out of range: whether it did.
    fn advance(&mut self, zeta: &[f32], spans: &[Range<usize>], scale: f32) -> bool {
        let State { x, snapshot, gradient, y, mean, epoch, step, version, .. } = &mut self.state;
        let weight = if self.spec.accelerated { theta(*epoch) } else { 1.0 };
        let step_of = Proximal::new(&self.spec.prox, self.spec.rate * scale / weight);
        let v = if self.spec.accelerated { &mut *y } else { &mut *x };
        let gradient = |span: &Range<usize>| gradient.get(span.clone()).unwrap_or(&[]);
        let mut at = 0;
        let parts = spans.iter().map(|span| {
            let zeta = &zeta[at..at + span.len()];
            at += span.len();
            (span, zeta)
        });
        let parts: Vec<_> = parts.collect();
        if !parts.iter().all(|(span, zeta)| step_of.keeps(&v[(*span).clone()], zeta, gradient(span))) {
            return false;
        }
        for (span, zeta) in parts {
            step_of.advance(&mut v[span.clone()], zeta, gradient(span));
        }
        if self.spec.accelerated {
            // Between numbers that are in range.
            couple(x, y, snapshot, mean, weight, *step);
        }
        *step += 1;
        *version += 1;
        true
    }

    /// Sets the next snapshot: the last x, or with momentum the mean.
    fn end_epoch(&mut self) {
        let State { x, snapshot, mean, .. } = &mut self.state;
        snapshot.copy_from_slice(if self.spec.accelerated { mean } else { x });
        self.state.epoch += 1;
        self.begin_epoch();
        if self.spec.corrected {
            // What is under way belongs to the epoch that has ended.
            self.reservations.clear();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::spec::Prox;
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    const LEASE: Duration = Duration::from_secs(10);

    fn shard(spec: &Spec) -> Shard {
        let mut shard = Shard::new(Arc::new(spec.clone()), 0, LEASE);
        let x: Vec<f32> = (0..spec.coordinates).map(|i| (i as f32).sin()).collect();
        assert!(shard.initialise(&x));
        assert!(!shard.initialise(&x));
        shard
    }

    fn pull(shard: &mut Shard, worker: u16, now: Instant) -> Stamp {
        match shard.pull(worker, None, None, now, &mut Vec::new()).unwrap() {
            Pulled::Running(stamp) | Pulled::Snapshot(stamp) | Pulled::Unchanged(stamp) => stamp,
            other => panic!("{other:?}"),
        }
    }

    fn push(shard: &mut Shard, worker: u16, stamp: Stamp, now: Instant) -> Applied {
        let sequence = shard.sequence(worker) + 1;
        let zeta = vec![0.125; shard.state().x.len()];
        shard.push(worker, &PushHead { sequence, stamp, scale: 1.0 }, &zeta, now)
    }

    #[test]
    fn an_epoch_needs_its_gradient_and_ends_after_m_pushes() {
        let now = Instant::now();
        let mut shard = shard(&Spec::corrected(20, 0.5, NonZeroU32::new(2).unwrap()));
        let pulled = shard.pull(0, None, None, now, &mut Vec::new()).unwrap();
        assert_eq!(pulled, Pulled::Waiting { epoch: 0 });
        assert_eq!(push(&mut shard, 0, Stamp::default(), now), Applied::Refused(Reason::Epoch));
        assert!(!shard.begin(1, &[1.0; 20]));
        assert!(shard.begin(0, &[1.0; 20]));
        assert!(!shard.begin(0, &[1.0; 20]));
        // x = x̃: a flag, for those who have x̃.
        let mut out = Vec::new();
        let pulled = shard.pull(0, None, Some(0), now, &mut out).unwrap();
        assert!(matches!(pulled, Pulled::Snapshot(_)) && out.is_empty());
        let before = shard.state().x.clone();
        let stamp = pull(&mut shard, 0, now);
        assert!(matches!(push(&mut shard, 0, stamp, now), Applied::Taken { ended: false, delay: 0, .. }));
        assert_eq!(shard.state().x[3], before[3] - 0.5 * (0.125 + 1.0));
        let known = shard.stamp();
        let pulled = shard.pull(0, Some(known), Some(0), now, &mut out).unwrap();
        assert!(matches!(pulled, Pulled::Unchanged(_)) && out.is_empty());
        // The second push of worker 0 ends the epoch; that of worker 1 is too late for it.
        let late = pull(&mut shard, 1, now);
        let stamp = pull(&mut shard, 0, now);
        assert!(matches!(push(&mut shard, 0, stamp, now), Applied::Taken { ended: true, .. }));
        assert_eq!(push(&mut shard, 1, late, now), Applied::Refused(Reason::Epoch));
        assert_eq!(shard.state().phase, Phase::Waiting);
        assert_eq!(shard.state().snapshot, shard.state().x);
        assert_eq!(shard.stamp(), Stamp { epoch: 1, step: 0, version: 2 });
        assert!(shard.begin(1, &[0.0; 20]));
        assert_eq!(push(&mut shard, 1, late, now), Applied::Refused(Reason::Epoch));
    }

    #[test]
    fn repeated_and_impossible_pushes_change_nothing() {
        let now = Instant::now();
        let mut shard = shard(&Spec::sgd(20, 0.5));
        let stamp = pull(&mut shard, 3, now);
        let head = PushHead { sequence: 1, stamp, scale: 1.0 };
        assert!(matches!(shard.push(3, &head, &[1.0; 20], now), Applied::Taken { .. }));
        let after = shard.state().clone();
        assert_eq!(shard.push(3, &head, &[1.0; 20], now), Applied::Repeated);
        let future = PushHead { sequence: 2, stamp: Stamp { version: 5, ..stamp }, scale: 1.0 };
        assert_eq!(shard.push(3, &future, &[1.0; 20], now), Applied::Refused(Reason::Future));
        assert_eq!(shard.state(), &after);
        let mut empty = Shard::new(Arc::new(Spec::sgd(20, 0.5)), 0, LEASE);
        assert_eq!(empty.push(3, &head, &[1.0; 20], now), Applied::Refused(Reason::Empty));
    }

    #[test]
    fn a_step_out_of_range_changes_nothing() {
        let now = Instant::now();
        let epoch = NonZeroU32::new(3).unwrap();
        for spec in [
            Spec::sgd(20, 0.5),
            Spec::corrected(20, 0.5, epoch),
            Spec { accelerated: true, ..Spec::corrected(20, 0.5, epoch) },
        ] {
            let mut shard = shard(&spec);
            shard.begin(0, &[1.0; 20]);
            let stamp = pull(&mut shard, 0, now);
            let before = shard.state().clone();
            let mut zeta = vec![0.0; 20];
            zeta[7] = f32::MAX;
            for (scale, wanted) in [(1.0, Reason::Range), (f32::MAX, Reason::Range)] {
                let head = PushHead { sequence: 1, stamp, scale };
                assert_eq!(shard.push(0, &head, &zeta, now), Applied::Refused(wanted));
                assert_eq!(shard.state(), &before);
            }
            let head = PushHead { sequence: 1, stamp, scale: 1.0 };
            assert!(matches!(shard.push(0, &head, &[0.5; 20], now), Applied::Taken { .. }));
        }
        let mut empty = Shard::new(Arc::new(Spec::sgd(20, 0.5)), 0, LEASE);
        assert!(!empty.initialise(&[f32::MAX; 20]) && empty.state().phase == Phase::Empty);
    }

    #[test]
    fn what_has_no_gradient_is_not_in_the_step() {
        let now = Instant::now();
        let prox = Prox { l1: 0.1, l2: 1.0, bounds: None };
        let epoch = NonZeroU32::new(3).unwrap();
        for spec in [
            Spec { prox, ..Spec::sgd(20, 0.5) },
            Spec { prox, ..Spec::corrected(20, 0.5, epoch) },
            Spec { prox, accelerated: true, ..Spec::corrected(20, 0.5, epoch) },
        ] {
            let (mut part, mut whole) = (shard(&spec), shard(&spec));
            let before = part.state().x.clone();
            whole.begin(0, &[0.0; 20]);
            let stamp = pull(&mut whole, 0, now);
            assert!(matches!(push(&mut whole, 0, stamp, now), Applied::Taken { .. }));
            part.begin(0, &[0.0; 20]);
            let stamp = pull(&mut part, 0, now);
            let head = PushHead { sequence: 1, stamp, scale: 1.0 };
            let spans = [2..5, 9..10];
            let applied = part.push_part(0, &head, &[0.125; 4], &spans, now);
            assert!(matches!(applied, Applied::Taken { .. }));
            for i in 0..20 {
                let inside = spans.iter().any(|span| span.contains(&i));
                let wanted = if inside { whole.state().x[i] } else { before[i] };
                assert_eq!(part.state().x[i], wanted, "coordinate {i}");
            }
            // All of a shard may be left out; its clock goes on.
            let head = PushHead { sequence: 2, stamp, scale: 1.0 };
            let kept = part.state().x.clone();
            assert!(matches!(part.push_part(0, &head, &[], &[], now), Applied::Taken { delay: 1, .. }));
            assert_eq!((&part.state().x, part.state().version), (&kept, 2));
        }
    }

    #[test]
    fn others_wait_for_a_worker_that_would_fall_behind() {
        let now = Instant::now();
        let mut shard = shard(&Spec { delay: Some(2), workers: 3, ..Spec::sgd(20, 0.5) });
        let slow = pull(&mut shard, 2, now);
        for _ in 0..2 {
            let stamp = pull(&mut shard, 0, now);
            assert!(matches!(push(&mut shard, 0, stamp, now), Applied::Taken { .. }));
        }
        // A third step would give the slow one a delay of 3.
        let stamp = pull(&mut shard, 0, now);
        assert_eq!(push(&mut shard, 0, stamp, now), Applied::Wait(now + LEASE));
        assert!(matches!(push(&mut shard, 2, slow, now), Applied::Taken { delay: 2, .. }));
        assert!(matches!(push(&mut shard, 0, stamp, now), Applied::Taken { delay: 1, .. }));
        // One that never pushes holds the others up once, for its lease.
        let silent = pull(&mut shard, 2, now);
        let mut waited = 0;
        let mut now = now;
        for _ in 0..20 {
            let stamp = pull(&mut shard, 0, now);
            while let Applied::Wait(until) = push(&mut shard, 0, stamp, now) {
                waited += 1;
                now = until;
                pull(&mut shard, 2, now);
            }
        }
        assert_eq!((waited, shard.expired), (1, 1));
        assert_eq!(push(&mut shard, 2, silent, now), Applied::Refused(Reason::Late));
        // It is heard again when it is in time, and then has reservations again.
        let stamp = pull(&mut shard, 2, now);
        assert!(matches!(push(&mut shard, 2, stamp, now), Applied::Taken { .. }));
        pull(&mut shard, 2, now);
        assert!(shard.reservations.contains_key(&2));
        shard.release(2);
        assert!(!shard.reservations.contains_key(&2));
    }

    #[test]
    fn bits_are_the_fewest_that_keep_the_condition() {
        let now = Instant::now();
        for mu in [0.001, 0.1, 2.0, 50.0] {
            let epoch = NonZeroU32::new(100).unwrap();
            let mut shard =
                shard(&Spec { bits: ModelBits::Condition(mu), ..Spec::corrected(500, 0.05, epoch) });
            // At the snapshot itself nothing but the floats keeps it.
            shard.begin(0, &vec![0.1; 500]);
            pull(&mut shard, 0, now);
            assert_eq!(shard.bits(), 32);
            for _ in 0..30 {
                let stamp = pull(&mut shard, 0, now);
                assert!(matches!(push(&mut shard, 0, stamp, now), Applied::Taken { .. }));
                pull(&mut shard, 0, now);
                let bits = shard.bits();
                if bits <= 16 {
                    assert!(shard.condition(bits).unwrap().0 <= f64::from(mu));
                }
                if bits > 2 {
                    assert!(shard.condition(bits.min(17) - 1).unwrap().0 > f64::from(mu));
                }
            }
            assert!(shard.bits() <= 16);
        }
    }

    #[test]
    fn momentum_is_algorithm_3() {
        let now = Instant::now();
        let (m, rate) = (3, 0.25);
        let prox = Prox { l1: 0.01, l2: 0.1, bounds: None };
        let mut spec = Spec::corrected(20, rate, NonZeroU32::new(m).unwrap());
        spec = Spec { accelerated: true, prox, bits: ModelBits::Fixed(32), ..spec };
        let mut shard = shard(&spec);
        let mut tilde = shard.state().x.clone();
        let mut y = tilde.clone();
        for s in 1..=3_u64 {
            let gradient: Vec<f32> = (0..20).map(|i| (i as f32 + s as f32).cos()).collect();
            assert!(shard.begin(s - 1, &gradient));
            let theta = 2.0 / (s as f32 + 2.0);
            let mut mean = vec![0.0; 20];
            for t in 0..m {
                let stamp = pull(&mut shard, 0, now);
                assert!(matches!(push(&mut shard, 0, stamp, now), Applied::Taken { .. }));
                for i in 0..20 {
                    let eta = rate / theta;
                    let z = y[i] - eta * (0.125 + gradient[i]);
                    let soft = z.signum() * (z.abs() - eta * 0.01).max(0.0);
                    y[i] = soft / (1.0 + eta * 0.1);
                    let x = tilde[i] + theta * (y[i] - tilde[i]);
                    mean[i] += x / m as f32;
                    if t + 1 < m {
                        assert!((shard.state().x[i] - x).abs() < 1e-5);
                    }
                }
            }
            tilde.copy_from_slice(&mean);
            for i in 0..20 {
                assert!((shard.state().snapshot[i] - tilde[i]).abs() < 1e-5);
                assert!((shard.state().y[i] - y[i]).abs() < 1e-5);
                let next = 2.0 / (s as f32 + 3.0);
                assert!((shard.state().x[i] - (next * y[i] + (1.0 - next) * tilde[i])).abs() < 1e-5);
            }
        }
    }

    proptest! {
        /// Whatever workers do, no push is taken with a delay above τ, and somebody can always go on.
        #[test]
        fn delays_stay_within_the_bound(
            workers in 1_u16..6,
            extra in 0_u32..4,
            moves in prop::collection::vec((0_u16..6, any::<bool>()), 0..300),
        ) {
            let now = Instant::now();
            let limit = u32::from(workers) - 1 + extra;
            let mut shard = shard(&Spec { delay: Some(limit), workers, ..Spec::sgd(20, 0.01) });
            let mut held: BTreeMap<u16, Stamp> = BTreeMap::new();
            for (worker, eager) in moves {
                let worker = worker % workers;
                match held.get(&worker) {
                    None => {
                        held.insert(worker, pull(&mut shard, worker, now));
                    }
                    Some(stamp) if eager => match push(&mut shard, worker, *stamp, now) {
                        Applied::Taken { delay, .. } => {
                            prop_assert!(delay <= u64::from(limit));
                            held.remove(&worker);
                        }
                        Applied::Wait(_) => {
                            let (oldest, stamp) =
                                held.iter().min_by_key(|(w, s)| (s.version, **w)).map(|(w, s)| (*w, *s)).unwrap();
                            let applied = push(&mut shard, oldest, stamp, now);
                            prop_assert!(matches!(applied, Applied::Taken { .. }), "{:?}", applied);
                            held.remove(&oldest);
                        }
                        other => prop_assert!(false, "{:?}", other),
                    },
                    Some(_) => {}
                }
            }
        }
    }
}
