//! The transforms, one partition each: out, back, and into the error feedback. Those of one call that are
//! ready run side by side on the engine's threads.

use super::active::{Active, Borrowed, PartWork, Stage};
use super::{Engine, SCRATCH};
use crate::WorkerError;
use std::time::Instant;
use thc_codec::buffer::Buffer;
use thc_codec::error::CodecError;
use thc_codec::rht;
use thc_codec::signs::SignKey;
use thc_protocol::wire::Mode;
use thc_protocol::worker::Place;
use thc_transport::PacketIo;

/// Threads beside the caller's, if there are to be any.
pub(super) fn pool(threads: usize) -> Result<Option<rayon::ThreadPool>, WorkerError> {
    if threads <= 1 {
        return Ok(None);
    }
    let built = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|i| format!("thc-transform-{i}"))
        .build()
        .map_err(|error| WorkerError::Io(format!("cannot start {threads} threads: {error}")))?;
    Ok(Some(built))
}

/// What is to be done with a partition, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The network waits for it: x + e through the forward transform.
    RotateNow,
    /// All results are in: back through the inverse transform.
    Finish,
    /// What quantization lost, back through the inverse transform (Algorithm 3, line 21).
    FeedBack,
    /// As `RotateNow`, ahead of time.
    Rotate,
}

/// One transform and the memory it works on.
struct Task<'a> {
    kind: Kind,
    index: usize,
    padded: usize,
    key: SignKey,
    /// The partition's coordinates: read by a rotation, written when finished.
    data: &'a mut [f32],
    /// Its error feedback before the call, if it keeps any.
    kept: Option<&'a [f32]>,
    /// Where its error feedback after the call goes.
    left: Option<Buffer>,
    /// The results of a padded partition.
    tail: Option<&'a mut [f32]>,
    /// Whether the result is zero.
    zero: bool,
    /// RAW results were written where they belong as they came.
    raw: bool,
    scratch: Option<Buffer>,
    result: Result<(), CodecError>,
}

impl Task<'_> {
    fn run(&mut self) {
        self.result = match (self.kind, &mut self.scratch) {
            (Kind::RotateNow | Kind::Rotate, Some(scratch)) => {
                let rotated = &mut scratch[..self.padded];
                match self.kept {
                    Some(kept) => rht::forward_sum(self.data, kept, rotated, self.key),
                    None => {
                        rotated[..self.data.len()].copy_from_slice(self.data);
                        rotated[self.data.len()..].fill(0.0);
                        rht::forward(rotated, self.key)
                    }
                }
            }
            (Kind::FeedBack, Some(scratch)) => match &mut self.left {
                Some(left) => {
                    rht::inverse_into(&mut scratch[..self.padded], &mut left[..self.data.len()], self.key)
                }
                None => Ok(()),
            },
            (Kind::Finish, _) if self.zero => {
                self.data.fill(0.0);
                Ok(())
            }
            (Kind::Finish, _) if self.raw => Ok(()),
            (Kind::Finish, _) => match &mut self.tail {
                Some(tail) => rht::inverse_into(tail, self.data, self.key),
                None => rht::inverse(self.data, self.key),
            },
            (_, None) => Ok(()),
        };
    }
}

/// The transforms that a call is ready for, the most urgent first; at most one for each partition, and
/// rotations only into `free` pieces of memory.
fn choose(active: &Active, urgent: Option<Place>, free: usize) -> Vec<(Kind, usize)> {
    let urgent = urgent.map(|place| place.partition as usize);
    let kind = |index, work: &PartWork| match work.stage {
        Stage::Waiting if urgent == Some(index) => Some(Kind::RotateNow),
        _ if work.complete && !work.finished => Some(Kind::Finish),
        Stage::Residual(_) if active.holds && !work.complete => None,
        Stage::Residual(_) => Some(Kind::FeedBack),
        Stage::Waiting => Some(Kind::Rotate),
        Stage::Rotated(_) | Stage::Sent => None,
    };
    let mut kinds: Vec<(Kind, usize)> =
        active.parts.iter().enumerate().filter_map(|(i, work)| Some((kind(i, work)?, i))).collect();
    kinds.sort_unstable();
    let mut rotations = 0;
    kinds.retain(|(kind, _)| {
        let rotates = matches!(kind, Kind::RotateNow | Kind::Rotate);
        rotations += usize::from(rotates);
        !rotates || rotations <= free
    });
    kinds
}

impl<I: PacketIo> Engine<I> {
    /// The most urgent transforms of the oldest call that has any, as many as there are threads.
    pub(super) fn transform(&mut self, lent: &mut Borrowed<'_>) -> bool {
        let started = Instant::now();
        let next = self.worker.next_data();
        let urgent = next.filter(|&place| self.calls.awaits_transform(place));
        let threads = self.config.threads.max(1);
        let free = (SCRATCH + threads + self.held).saturating_sub(self.scratch_out);
        let found = self.calls.live().find_map(|(number, active)| {
            let kinds = choose(active, urgent.filter(|place| place.call == number), free);
            (!kinds.is_empty()).then_some((number, kinds))
        });
        let Some((number, mut kinds)) = found else { return false };
        kinds.truncate(threads);
        let Some(active) = self.calls.get_mut(number) else { return false };
        let Active { parts, owned, tail, feedback, mode, length, .. } = active;
        // A call whose data is not lent in this step rests.
        let lent = lent.get_mut(number).filter(|data| data.len() == *length);
        let Some(mut data) = owned.as_deref_mut().or(lent) else { return false };
        let mut tail = (!tail.is_empty()).then_some(tail.as_mut_slice());
        let fed_back = kinds.iter().filter(|(kind, _)| *kind == Kind::FeedBack && feedback.is_some());
        let mut left: Vec<_> =
            fed_back.map(|&(_, i)| (i, Some(self.feedback.take(parts[i].part.padded)))).collect();
        let mut tasks: Vec<Task<'_>> = Vec::with_capacity(kinds.len());
        for (index, work) in parts.iter_mut().enumerate() {
            let (region, rest) =
                std::mem::take(&mut data).split_at_mut_checked(work.part.len).unwrap_or_default();
            data = rest;
            let Some(&(kind, _)) = kinds.iter().find(|(_, i)| *i == index) else { continue };
            let scratch = match kind {
                Kind::RotateNow | Kind::Rotate => {
                    self.scratch_out += 1;
                    Some(self.scratch.pop().unwrap_or_else(|| Buffer::zeroed(1 << self.codec.block)))
                }
                Kind::FeedBack => match std::mem::replace(&mut work.stage, Stage::Sent) {
                    Stage::Residual(scratch) => Some(scratch),
                    _ => None,
                },
                Kind::Finish => None,
            };
            let left = left.iter_mut().find(|(i, _)| *i == index).and_then(|(_, buffer)| buffer.take());
            tasks.push(Task {
                kind,
                index,
                padded: work.part.padded,
                key: self.codec.sign_key(number, work.part.index),
                data: region,
                kept: feedback.and_then(|key| self.feedback.get(key, &work.part)),
                left,
                tail: tail.take_if(|_| work.part.len < work.part.padded),
                zero: work.norm == 0,
                raw: *mode == Mode::Raw,
                scratch,
                result: Ok(()),
            });
        }
        match &self.pool {
            Some(pool) if tasks.len() > 1 => pool.scope(|scope| {
                for task in &mut tasks {
                    scope.spawn(|_| task.run());
                }
            }),
            _ => tasks.iter_mut().for_each(Task::run),
        }
        let done: Vec<_> = tasks
            .into_iter()
            .map(|task| (task.kind, task.index, task.scratch, task.left, task.result))
            .collect();
        let mut result = Ok(());
        for (kind, index, scratch, left, outcome) in done {
            result = result.and(outcome);
            let work = &mut parts[index];
            match (kind, scratch) {
                (Kind::RotateNow | Kind::Rotate, Some(scratch)) => work.stage = Stage::Rotated(scratch),
                (Kind::FeedBack, Some(scratch)) => {
                    work.left = left;
                    self.scratch.push(scratch);
                    self.scratch_out -= 1;
                }
                _ => work.finished = true,
            }
        }
        self.stats.compression += started.elapsed();
        match result {
            Ok(()) => self.settle(),
            Err(error) => self.fail(error.into()),
        }
        true
    }
}
