//! Calls under way: how far each is, and each group of its partitions.

mod active;
mod buffer_pool;
mod cut;
mod events;

pub(super) use active::{Active, Out, PartitionGroup};
pub(super) use buffer_pool::{BufferPool, Owned};
pub(super) use cut::{GROUP, group_len};
pub(super) use events::CallEvents;

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
    /// The number of a session's first call.
    pub start: u64,
    /// Calls so far, in all sessions.
    tickets: u64,
    /// The number in the session of the first call that was not handed over to be sent.
    unsubmitted: u64,
    /// Calls in the queue that are computed elsewhere.
    remote: usize,
    queue: VecDeque<Active>,
    outcomes: Vec<(u64, Result<(), WorkerError>)>,
    pub buffers: BufferPool,
    /// Why results could not be read.
    broken: Option<CodecError>,
}

impl Calls {
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Takes a call in and returns what the caller knows it by.
    pub fn push(&mut self, active: Active) -> u64 {
        let ticket = self.tickets;
        self.tickets += 1;
        self.remote += usize::from(active.remote.is_some());
        self.queue.push_back(Active { ticket, ..active });
        ticket
    }

    /// The number in the session of the next call.
    pub fn next_number(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    /// Another session begins, with no call under way.
    pub fn count_anew(&mut self) {
        (self.first, self.unsubmitted) = (self.start, self.start);
    }

    /// The next call to be submitted, once all its norms are known.
    pub fn next_measured(&self) -> Option<&Active> {
        let index = usize::try_from(self.unsubmitted.checked_sub(self.first)?).ok()?;
        self.queue.get(index).filter(|active| active.measured == active.groups.len())
    }

    /// The call of this number was submitted.
    pub fn count_submitted(&mut self, number: u64) {
        debug_assert_eq!(number, self.unsubmitted);
        self.unsubmitted += 1;
    }

    /// How many calls are at work: the oldest, up to [`AT_WORK`] that this engine computes and that are not done.
    pub fn at_work(&self) -> usize {
        let mut own = 0;
        let at_work = self.queue.iter().take_while(|active| {
            own += usize::from(active.remote.is_none() && !active.is_done());
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

    /// The keys of the error feedback that calls under way use.
    pub fn feedback_in_use(&self) -> impl Iterator<Item = u64> {
        self.queue.iter().filter_map(|active| active.feedback)
    }

    /// Why results could not be read, once.
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
        queue.into_iter().flatten().filter(|active| active.remote.is_some() && active.error.is_none())
    }

    /// Whether [`Self::pop_done`] would give one.
    pub fn has_done(&self) -> bool {
        self.queue.front().is_some_and(Active::is_done)
    }

    pub fn pop_done(&mut self) -> Option<Active> {
        if !self.has_done() {
            return None;
        }
        self.first += 1;
        let done = self.queue.pop_front();
        self.remote -= usize::from(done.as_ref().is_some_and(|active| active.remote.is_some()));
        done
    }

    pub fn deliver(&mut self, active: Active) {
        let result = active.error.map_or(Ok(()), |error| Err(WorkerError::Call(error)));
        if let Some(remote) = active.remote {
            return remote.finish(result);
        }
        match (active.outcome, active.owned) {
            (Some(outcome), Some(data)) => {
                // Nobody waits any more if the handle was dropped.
                let _ = outcome.send(result.map(|()| data));
            }
            _ => self.outcomes.push((active.ticket, result)),
        }
    }

    /// Ends one call alone.
    fn fail_one(&mut self, active: Active, error: WorkerError) {
        match (active.remote, active.outcome) {
            (Some(remote), _) => remote.finish(Err(error)),
            (None, Some(outcome)) => {
                let _ = outcome.send(Err(error));
            }
            (None, None) => self.outcomes.push((active.ticket, Err(error))),
        }
    }

    pub fn fail_all(&mut self, error: &WorkerError) {
        while let Some(active) = self.queue.pop_front() {
            self.fail_one(active, error.clone());
        }
        self.remote = 0;
    }

    pub fn take_outcome(&mut self, ticket: u64) -> Option<Result<(), WorkerError>> {
        let index = self.outcomes.iter().position(|(t, _)| *t == ticket)?;
        Some(self.outcomes.swap_remove(index).1)
    }
}
