//! Calls under way, and the groups of their partitions.

mod active;
mod buffer_pool;
mod cut;
mod events;
mod group;

pub(super) use active::{Active, CallFeedback, Owner, Stage};
pub(super) use buffer_pool::BufferPool;
pub(super) use cut::{GROUP, group_len};
pub(super) use events::CallEvents;
pub(super) use group::{Out, PartitionGroup};

use super::memory::{CallMemory, Memory};
use super::task::{Kind, Task};
use crate::WorkerError;
use std::collections::VecDeque;
use thc_codec::error::CodecError;

/// Calls that this engine computes at a time. Others wait until older ones are done, so that what a turn costs does not grow
/// with the number of calls under way.
const AT_WORK: usize = 64;

/// All calls under way, oldest first.
#[derive(Default)]
pub(super) struct Calls {
    /// The number in the session of the first in the queue.
    first: u64,
    /// Calls so far, in all sessions.
    tickets: u64,
    /// The number in the session of the first call that was not handed over to be sent.
    unsubmitted: u64,
    /// Calls in the queue that are computed elsewhere.
    remote: usize,
    queue: VecDeque<Active>,
    outcomes: Vec<(u64, Result<(), WorkerError>)>,
    pub buffers: BufferPool,
    /// The first error in a result.
    broken: Option<CodecError>,
}

impl Calls {
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Takes a call in and returns its ticket.
    pub fn push(&mut self, active: Active) -> u64 {
        let ticket = self.tickets;
        self.tickets += 1;
        self.remote += usize::from(active.is_remote());
        self.queue.push_back(Active { ticket, ..active });
        ticket
    }

    /// The number in the session of the next call.
    pub fn next_number(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    /// Another session begins, with no call under way.
    pub fn count_anew(&mut self) {
        (self.first, self.unsubmitted) = (0, 0);
    }

    /// The next call to be submitted, once all its norms are known.
    pub fn next_measured(&self) -> Option<&Active> {
        let index = usize::try_from(self.unsubmitted.checked_sub(self.first)?).ok()?;
        self.queue.get(index).filter(|active| matches!(active.stage, Stage::Measured))
    }

    /// The call of this number was submitted.
    pub fn count_submitted(&mut self, number: u64) {
        debug_assert_eq!(number, self.unsubmitted);
        self.unsubmitted += 1;
    }

    /// The number of calls at work: the oldest, up to [`AT_WORK`] that this engine computes and that are not done.
    pub fn at_work(&self) -> usize {
        let mut own = 0;
        let at_work = self.queue.iter().take_while(|active| {
            own += usize::from(!active.is_remote() && !active.is_done());
            own <= AT_WORK
        });
        at_work.count()
    }

    /// The next task of a kind of the oldest call at work that has one.
    pub fn next_task<'d>(&mut self, kind: Kind, memory: &mut Memory<'d>) -> Option<Task<'d>> {
        (memory.first..)
            .zip(&mut memory.calls)
            .find_map(|(number, memory)| self.task_of(kind, number, memory))
    }

    /// The next task that rotates a group: of the oldest call whose maxima are not known, so that rotated groups take little
    /// memory.
    pub fn next_rotation<'d>(&mut self, memory: &mut Memory<'d>) -> Option<Task<'d>> {
        let waits = |active: &Active| matches!(active.stage, Stage::Measured);
        let at = self.queue.iter().take(memory.calls.len()).position(waits)?;
        let (number, memory) = (memory.first + at as u64, memory.calls.get_mut(at)?);
        self.task_of(Kind::Rotate, number, memory)
    }

    /// The number of calls that were submitted, in this session.
    pub fn submitted(&self) -> u64 {
        self.unsubmitted
    }

    /// The next task of a kind of this call.
    pub fn task_of<'d>(&mut self, kind: Kind, number: u64, memory: &mut CallMemory<'d>) -> Option<Task<'d>> {
        let (active, buffers) = self.get_with_buffers(number)?;
        if active.error.is_some() { None } else { active.task(kind, number, memory, buffers) }
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut Active> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.queue.get_mut(index)
    }

    /// A call, and memory for its groups.
    pub fn get_with_buffers(&mut self, number: u64) -> Option<(&mut Active, &mut BufferPool)> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        Some((self.queue.get_mut(index)?, &mut self.buffers))
    }

    /// Takes the first error in a result.
    pub fn take_broken(&mut self) -> Option<CodecError> {
        self.broken.take()
    }

    pub fn note(&mut self, result: Result<(), CodecError>) {
        if let Err(error) = result {
            self.broken.get_or_insert(error);
        }
    }

    /// All calls, oldest first.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Active)> {
        (self.first..).zip(&mut self.queue)
    }

    /// The calls that are computed elsewhere and have not failed, oldest first.
    pub fn remote(&mut self) -> impl Iterator<Item = &mut Active> {
        let queue = if self.remote == 0 { None } else { Some(&mut self.queue) };
        queue.into_iter().flatten().filter(|active| active.is_remote() && active.error.is_none())
    }

    /// Returns whether [`Self::pop_done`] would give one.
    pub fn has_done(&self) -> bool {
        self.queue.front().is_some_and(Active::is_done)
    }

    pub fn pop_done(&mut self) -> Option<Active> {
        if !self.has_done() {
            return None;
        }
        self.first += 1;
        let done = self.queue.pop_front();
        self.remote -= usize::from(done.as_ref().is_some_and(|active| active.is_remote()));
        done
    }

    /// Hands a call's outcome to its owner, and the mean with it if the engine has the tensor.
    pub fn deliver(&mut self, active: Active, result: Result<(), WorkerError>) {
        match active.owner {
            Owner::Lender => self.outcomes.push((active.ticket, result)),
            // The handle may have been dropped.
            Owner::Engine { data, outcome } => drop(outcome.send(result.map(|()| data))),
            Owner::Remote(remote) => remote.finish(result),
        }
    }

    pub fn fail_all(&mut self, error: &WorkerError) {
        while let Some(active) = self.queue.pop_front() {
            self.deliver(active, Err(error.clone()));
        }
        self.remote = 0;
    }

    pub fn take_outcome(&mut self, ticket: u64) -> Option<Result<(), WorkerError>> {
        let index = self.outcomes.iter().position(|(t, _)| *t == ticket)?;
        Some(self.outcomes.swap_remove(index).1)
    }
}
