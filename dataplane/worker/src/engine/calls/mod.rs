//! Calls under way: how far each is, and each group of its partitions.

mod active;
mod cut;
mod events;
mod shelf;

pub(super) use active::{Active, Out, PartitionGroup};
pub(super) use cut::{GROUP, group_len};
pub(super) use events::CallEvents;
use shelf::MeanSender;
pub(super) use shelf::{Owned, Shelf};

use crate::WorkerError;
use crossbeam_channel::TrySendError;
use std::collections::VecDeque;
use thc_codec::error::CodecError;

/// A call whose caller may not have its error yet.
enum Unheeded {
    /// Whether it has.
    Packed(Box<dyn Fn() -> bool + Send>),
    Handle(MeanSender),
    Ticket(u64),
}

/// All calls under way, oldest first.
#[derive(Default)]
pub(super) struct Calls {
    /// The number in the session of the first in the queue.
    first: u64,
    /// The number of a session's first call.
    pub start: u64,
    /// Calls so far, in all sessions.
    tickets: u64,
    /// No call of the session from this number on is done yet, whatever has come (P43).
    pub limit: Option<u64>,
    queue: VecDeque<Active>,
    outcomes: Vec<(u64, Result<(), WorkerError>)>,
    /// Calls that have failed because members have changed, and whose callers may not know it yet.
    unheeded: Vec<Unheeded>,
    pub shelf: Shelf,
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
        self.queue.push_back(Active { ticket, ..active });
        ticket
    }

    /// All calls that are not done, in their order, to begin again in another session.
    pub fn begin_again(&mut self) -> Vec<Active> {
        (self.first, self.limit) = (self.start, None);
        self.queue.drain(..).collect()
    }

    /// Takes one of those in.
    pub fn push_again(&mut self, active: Active) {
        self.queue.push_back(active);
    }

    /// Calls of the session that have been begun.
    pub fn begun_calls(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut Active> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.queue.get_mut(index)
    }

    /// A call, and memory for its groups.
    pub fn get_with_shelf(&mut self, number: u64) -> Option<(&mut Active, &mut Shelf)> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        Some((self.queue.get_mut(index)?, &mut self.shelf))
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

    /// The same, and the memory for their groups.
    pub fn all_with_shelf(&mut self) -> (impl Iterator<Item = (u64, &mut Active)>, &mut Shelf) {
        ((self.first..).zip(&mut self.queue), &mut self.shelf)
    }

    /// The calls that have not failed, oldest first, and the memory for their groups.
    pub fn live(&mut self) -> (impl Iterator<Item = (u64, &mut Active)>, &mut Shelf) {
        let live = (self.first..).zip(&mut self.queue).filter(|(_, active)| active.error.is_none());
        (live, &mut self.shelf)
    }

    /// Whether [`Self::pop_done`] would give one.
    pub fn has_done(&self) -> bool {
        self.limit.is_none_or(|limit| self.first < limit) && self.queue.front().is_some_and(Active::is_done)
    }

    pub fn pop_done(&mut self) -> Option<Active> {
        if !self.has_done() {
            return None;
        }
        self.first += 1;
        self.queue.pop_front()
    }

    pub fn deliver(&mut self, mut active: Active) {
        if let Some(inputs) = active.inputs.take() {
            self.shelf.take_inputs(inputs);
        }
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

    /// The same; besides, no call is accepted before the caller has the error, since it would come before
    /// this one when that begins again.
    pub fn fail_until_heeded(&mut self, active: Active, error: WorkerError) {
        self.unheeded.push(match (&active.remote, &active.outcome) {
            (Some(remote), _) => Unheeded::Packed(remote.unread_check()),
            (None, Some(outcome)) => Unheeded::Handle(outcome.clone()),
            (None, None) => Unheeded::Ticket(active.ticket),
        });
        self.fail_one(active, error);
    }

    /// All begin anew in another session: nobody begins one of those again.
    pub fn forget_unheeded(&mut self) {
        self.unheeded.clear();
    }

    /// Whether all callers have heard of that.
    pub fn is_heeded(&mut self) -> bool {
        let Self { unheeded, outcomes, .. } = self;
        unheeded.retain(|call| match call {
            Unheeded::Packed(heard) => !heard(),
            // It is full until the caller takes its error, or gives its handle up.
            Unheeded::Handle(outcome) => {
                let again = || outcome.try_send(Err(WorkerError::Closed));
                !outcome.is_empty() && matches!(again(), Err(TrySendError::Full(_)))
            }
            Unheeded::Ticket(ticket) => outcomes.iter().any(|(other, _)| other == ticket),
        });
        unheeded.is_empty()
    }

    pub fn fail_all(&mut self, error: &WorkerError) {
        while let Some(active) = self.queue.pop_front() {
            self.fail_one(active, error.clone());
            self.first += 1;
        }
    }

    pub fn take_outcome(&mut self, ticket: u64) -> Option<Result<(), WorkerError>> {
        let index = self.outcomes.iter().position(|(t, _)| *t == ticket)?;
        Some(self.outcomes.swap_remove(index).1)
    }
}
