//! Calls under way: how far each is, and each group of its partitions.

use super::compressor::{Compressor, Measured, read_raw};
use super::memory::Memory;
use super::packed::{Bytes, Remote};
use super::task::Sums;
use crate::{Span, WorkerError};
use crossbeam_channel::{Sender, TrySendError};
use std::collections::VecDeque;
use std::ops::Range;
use thc_codec::buffer::Buffer;
use thc_codec::error::CodecError;
use thc_codec::partition::{self, MAX_PARTITION, Partition};
use thc_codec::requantize;
use thc_codec::sums::unpack_sums;
use thc_protocol::wire::{Choice, Form, Header, RAW_LEN, RAW_WORDS};
use thc_protocol::worker::{CallError, Events, PacketId};

/// Coordinates that are computed in one go where partitions are smaller: a hundred microseconds or less, and 64 packets of 8-bit
/// lanes, as many as go to the kernel in one piece. No group lies across a multiple of it, or of a larger partition's size.
pub(super) const GROUP: usize = 1 << 16;

/// A tensor as its spans cut it (P4): each partition, and how it travels.
pub(super) fn cut(plan: &[Span], block: u8) -> Vec<(Choice, Partition)> {
    let mut parts = Vec::new();
    let mut begin = 0;
    for &Span { length, choice } in plan {
        let end = begin + length;
        while begin < end {
            // No partition lies across a multiple of the largest.
            let piece = (MAX_PARTITION - begin % MAX_PARTITION).min(end - begin);
            let number = parts.len() as u32;
            parts.extend(partition::split(piece, block).map(|part| {
                let moved = Partition { index: number + part.index, offset: begin + part.offset, ..part };
                (choice, moved)
            }));
            begin += piece;
        }
    }
    parts
}

/// Where the outcome of a call goes: a handle, or [`super::Engine::take_outcome`].
pub type Outcome = Option<Sender<Result<Vec<f32>, WorkerError>>>;

/// How far a group is on its way out.
#[derive(Debug)]
pub(super) enum Out {
    /// Untouched.
    Waiting,
    /// Being compressed.
    Busy,
    /// Its packets are there to be sent, of RAW wherever they are sent from.
    Ready(Bytes),
    /// All sent.
    Sent,
}

/// Partitions that are computed together: neighbours that travel as the same, of [`GROUP`] coordinates or one alone.
#[derive(Debug)]
pub(super) struct PartitionGroup {
    pub parts: Range<usize>,
    pub choice: Choice,
    /// The form of its packets; none of RAW.
    pub form: Option<Form>,
    /// Coordinates of the tensor, and with padding.
    pub range: Range<usize>,
    pub padded: usize,
    pub out: Out,
    /// What was sent, less what that stands for, in the rotated domain, while lost packets may return to it.
    pub residual: Option<Buffer>,
    pub sums: Option<Sums>,
    /// Packets of partitions whose norm is not 0; how many of them are sent, and have results or never will.
    pub packets: usize,
    pub sent: usize,
    pub results: usize,
    /// What is still to be done with it: the way out, with error feedback, and the mean.
    pub to_do: u8,
}

impl PartitionGroup {
    /// Coordinates of a packet.
    pub fn per_packet(&self) -> usize {
        self.form.map_or(RAW_WORDS, Form::coordinates)
    }

    /// Bits of an index; RAW has a word for each coordinate.
    pub fn width(&self) -> usize {
        self.form.map_or(32, |form| usize::from(form.width()))
    }

    /// Bytes of a packet's results, sums in lanes.
    pub fn sums_len(&self) -> usize {
        self.form.map_or(RAW_LEN, Form::lanes_len)
    }
}

pub(super) struct Active {
    /// What the caller knows it by, in whatever session.
    pub ticket: u64,
    /// As what it travels; the first table is that of the session.
    pub plan: Vec<Span>,
    /// The tensor as it was, where it may have to be reduced again (P43).
    pub inputs: Option<Vec<f32>>,
    /// Whether the tensor is to be as it was, before anything else.
    pub stale: bool,
    /// What NORMs name the tensor by.
    pub key: Option<u64>,
    /// The key of the error feedback that this engine keeps of it.
    pub feedback: Option<u64>,
    pub length: usize,
    pub owned: Option<Vec<f32>>,
    /// What its error feedback is to be when it is done.
    pub left: Vec<Buffer>,
    pub parts: Vec<Measured>,
    /// The group of each partition.
    pub group_of: Vec<u32>,
    pub groups: Vec<PartitionGroup>,
    /// Whether residuals stay until all results are in, because what is lost returns to them.
    pub holds: bool,
    /// Groups whose norms have been asked for, and have been found; whether they were handed over to be sent.
    pub asked: usize,
    pub measured: usize,
    pub submitted: bool,
    /// Whether the maxima are known.
    pub has_norms: bool,
    /// Groups that have been, or are being, compressed.
    pub compressed: usize,
    /// Groups whose results are all in, and groups whose residual need be held no longer.
    pub to_finish: VecDeque<usize>,
    pub to_feed_back: VecDeque<usize>,
    /// Groups that are not done.
    pub open: usize,
    /// Coordinates that were given up: they count as zero in the mean.
    pub lost: usize,
    pub error: Option<CallError>,
    /// Who makes its indices, if it is not this engine.
    pub remote: Option<Remote>,
    outcome: Outcome,
}

impl Active {
    /// A call whose plan the job can do, in groups of so many coordinates or one partition.
    pub fn new(
        plan: &[Span],
        compressor: &Compressor,
        window: usize,
        owned: Option<Vec<f32>>,
        outcome: Outcome,
    ) -> Active {
        let length = plan.iter().map(|span| span.length).sum();
        let window = window.max(1 << compressor.block);
        let mut parts: Vec<Measured> = Vec::new();
        let mut groups: Vec<PartitionGroup> = Vec::new();
        let mut group_of = Vec::new();
        for (choice, part) in cut(plan, compressor.block) {
            let end = part.offset + part.len;
            let start = match groups.last_mut() {
                Some(group)
                    if group.choice == choice && group.range.start / window == part.offset / window =>
                {
                    group.parts.end += 1;
                    group.range.end = end;
                    group.padded += part.padded;
                    group.padded - part.padded
                }
                _ => {
                    let form = compressor.form(choice);
                    groups.push(PartitionGroup {
                        parts: parts.len()..parts.len() + 1,
                        choice,
                        form,
                        range: part.offset..end,
                        padded: part.padded,
                        out: if form.is_none() { Out::Ready(Bytes::Own(Vec::new())) } else { Out::Waiting },
                        residual: None,
                        sums: None,
                        packets: 0,
                        sent: 0,
                        results: 0,
                        to_do: 2,
                    });
                    0
                }
            };
            parts.push(Measured { part, start, choice, norm: 0, left_out: false });
            group_of.push(groups.len() as u32 - 1);
        }
        Active {
            ticket: 0,
            plan: plan.to_vec(),
            inputs: None,
            stale: false,
            key: None,
            feedback: None,
            length,
            owned,
            left: Vec::new(),
            open: groups.len(),
            lost: 0,
            parts,
            group_of,
            groups,
            holds: false,
            asked: 0,
            measured: 0,
            submitted: false,
            has_norms: false,
            compressed: 0,
            to_finish: VecDeque::new(),
            to_feed_back: VecDeque::new(),
            error: None,
            remote: None,
            outcome,
        }
    }

    /// Keeps error feedback under `key`, to be written to `left`.
    pub fn keep(&mut self, key: u64, left: Vec<Buffer>, holds: bool) {
        (self.key, self.feedback) = (Some(key), Some(key));
        self.left = left;
        self.holds = holds;
        // What goes RAW goes with its error feedback, and is written beside the tensor.
        self.groups.iter_mut().for_each(|group| group.out = Out::Waiting);
    }

    /// Whether a group's packets are written from the tensor itself.
    pub fn is_direct(&self, group: usize) -> bool {
        self.feedback.is_none() && self.remote.is_none() && self.groups[group].form.is_none()
    }

    /// The same call at the beginning of another session, with the tensor as it was (P43). What it has made so far is of no use.
    pub fn anew(mut self, plan: &[Span], compressor: &Compressor, window: usize, holds: bool) -> Active {
        let (ticket, stale) = (self.ticket, self.inputs.is_some());
        let mut again = Active::new(plan, compressor, window, self.owned.take(), self.outcome.take());
        (again.ticket, again.inputs, again.stale) = (ticket, self.inputs, stale);
        match self.feedback {
            Some(key) => again.keep(key, self.left, holds),
            None => again.key = self.key,
        }
        again
    }

    /// Its memory, for as long as it is lent.
    pub fn take_memory(&mut self) -> (Option<Vec<f32>>, Vec<Buffer>) {
        (self.owned.take(), std::mem::take(&mut self.left))
    }

    pub fn put_memory(&mut self, (owned, left): (Option<Vec<f32>>, Vec<Buffer>)) {
        self.owned = owned;
        self.left = left;
    }

    fn done(&self) -> bool {
        self.error.is_some() || self.open == 0
    }

    /// The group that a packet belongs to, and the packet's place in it.
    pub fn find(&self, place: PacketId) -> Option<(usize, usize)> {
        let start = self.parts.get(place.partition as usize)?.start;
        let group = *self.group_of.get(place.partition as usize)? as usize;
        Some((group, start / self.groups[group].per_packet() + place.packet as usize))
    }

    /// Whether the others went on without some of a group (P48).
    pub fn has_left_out(&self, group: usize) -> bool {
        self.parts[self.groups[group].parts.clone()].iter().any(|at| at.left_out)
    }

    /// A packet was given up.
    fn note_lost(&mut self, place: PacketId) {
        let Some((group, _)) = self.find(place) else { return };
        let per_packet = self.groups[group].per_packet();
        let left =
            self.parts[place.partition as usize].part.len.saturating_sub(place.packet as usize * per_packet);
        self.lost += left.min(per_packet);
    }

    /// One of the two things that are to be done with a group is done.
    pub fn tick_off(&mut self, group: usize) {
        let to_do = &mut self.groups[group].to_do;
        *to_do -= 1;
        self.open -= usize::from(*to_do == 0);
    }

    /// So many more packets of a group were sent. Returns its packed indices when these were all.
    pub fn note_sent(&mut self, group: usize, count: usize) -> Option<Bytes> {
        let state = &mut self.groups[group];
        state.sent += count;
        if state.sent < state.packets {
            return None;
        }
        let out = std::mem::replace(&mut state.out, Out::Sent);
        if state.residual.is_none() {
            self.tick_off(group);
        } else {
            self.release(group);
        }
        match out {
            Out::Ready(packed) => Some(packed),
            _ => None,
        }
    }

    /// If all of a group is sent and has its results, its residual is fed back.
    fn release(&mut self, group: usize) {
        let state = &self.groups[group];
        if state.residual.is_some() && matches!(state.out, Out::Sent) && state.results == state.packets {
            self.to_feed_back.push_back(group);
        }
    }

    /// One more packet of a group has its result, or will have none.
    fn note_result(&mut self, group: usize) {
        let state = &mut self.groups[group];
        state.results += 1;
        if state.results == state.packets {
            self.to_finish.push_back(group);
            self.release(group);
        }
    }
}

/// Memory for packed indices and results, kept for later groups.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    packed: Vec<Vec<u8>>,
    sums: Vec<(Vec<u8>, Vec<u16>)>,
    work: Vec<Buffer>,
    inputs: Vec<Vec<f32>>,
}

impl Shelf {
    /// Of so many bytes.
    pub fn packed(&mut self, bytes: usize) -> Vec<u8> {
        let mut packed = self.packed.pop().unwrap_or_default();
        packed.resize(bytes, 0);
        packed
    }

    /// For so many results of so many bytes.
    fn sums(&mut self, packets: usize, len: usize) -> Sums {
        let (mut bytes, mut counts) = self.sums.pop().unwrap_or_default();
        bytes.resize(packets * len, 0);
        counts.clear();
        counts.resize(packets, 0);
        Sums { bytes: Bytes::Own(bytes), counts }
    }

    /// At least so many coordinates.
    pub fn work(&mut self, coordinates: usize) -> Buffer {
        let fits = self.work.iter().position(|buffer| buffer.len() >= coordinates);
        fits.map_or_else(|| Buffer::zeroed(coordinates), |at| self.work.swap_remove(at))
    }

    /// A copy of a tensor.
    pub fn copy(&mut self, x: &[f32]) -> Vec<f32> {
        let mut copy = self.inputs.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(x);
        copy
    }

    pub fn take_packed(&mut self, packed: Bytes) {
        if let Bytes::Own(packed) = packed {
            self.packed.push(packed);
        }
    }

    pub fn take_sums(&mut self, Sums { bytes, counts }: Sums) {
        if let Bytes::Own(bytes) = bytes {
            self.sums.push((bytes, counts));
        }
    }

    pub fn take_work(&mut self, work: Buffer) {
        if !work.is_empty() {
            self.work.push(work);
        }
    }
}

/// A call whose caller may not have its error yet.
enum Unheeded {
    /// Whether it has.
    Packed(Box<dyn Fn() -> bool + Send>),
    Handle(Sender<Result<Vec<f32>, WorkerError>>),
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

    /// All calls that are not done, to be begun again in another session, in their order.
    pub fn begin_again(&mut self) -> Vec<Active> {
        (self.first, self.limit) = (self.start, None);
        self.queue.drain(..).collect()
    }

    /// Takes one of those in.
    pub fn push_again(&mut self, active: Active) {
        self.queue.push_back(active);
    }

    /// Calls of the session that have been begun.
    pub fn begun(&self) -> u64 {
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
    pub fn all(&mut self) -> impl Iterator<Item = (u64, &mut Active)> {
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
        self.limit.is_none_or(|limit| self.first < limit) && self.queue.front().is_some_and(Active::done)
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
            self.shelf.inputs.push(inputs);
        }
        let result = active.error.map_or(Ok(()), |error| Err(WorkerError::Call(error)));
        if let Some(remote) = active.remote {
            return remote.done(result);
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
    pub fn fail_one(&mut self, active: Active, error: WorkerError) {
        match (active.remote, active.outcome) {
            (Some(remote), _) => remote.done(Err(error)),
            (None, Some(outcome)) => {
                let _ = outcome.send(Err(error));
            }
            (None, None) => self.outcomes.push((active.ticket, Err(error))),
        }
    }

    /// The same; and no call is taken in before its caller has the error: it would come before this one begun again.
    pub fn fail_until_heeded(&mut self, active: Active, error: WorkerError) {
        self.unheeded.push(match (&active.remote, &active.outcome) {
            (Some(remote), _) => Unheeded::Packed(remote.heard()),
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

/// Applies the protocol's events to the calls.
pub(super) struct CallEvents<'a, 'd> {
    pub calls: &'a mut Calls,
    pub compressor: &'a Compressor,
    pub memory: &'a mut Memory<'d>,
}

impl CallEvents<'_, '_> {
    /// The results of one packet of indices, with the header of their RESULT, or that there will be none.
    fn absorb(&mut self, place: PacketId, result: Option<&Header>, sums: &[u8]) {
        let Calls { first, queue, shelf, .. } = &mut *self.calls;
        let index = place.call.checked_sub(*first).and_then(|index| usize::try_from(index).ok());
        let Some(active) = index.and_then(|index| queue.get_mut(index)) else { return };
        let Some((group, packet)) = active.find(place) else { return };
        let state = &mut active.groups[group];
        let (all, len) = (state.padded / state.per_packet(), state.sums_len());
        let Sums { bytes, counts } = state.sums.get_or_insert_with(|| shelf.sums(all, len));
        let (Some(bytes), Some(known)) =
            (bytes.get_mut(packet * len..(packet + 1) * len), counts.get_mut(packet))
        else {
            return;
        };
        *known = result.map_or(0, |result| result.count);
        let unpacked = match (result, state.form) {
            (None, _) => {
                bytes.fill(0);
                Ok(())
            }
            // P44.
            (Some(_), Some(form)) if form.is_packed() => {
                unpack_sums(form.lane().bits(), form.sums(), sums, bytes)
            }
            // P45.
            (Some(result), Some(form)) if form.is_told() => {
                let key = requantize::key(result.job.0, result.round.0, result.slot.0);
                requantize::restore(form.lane().bits(), key, sums, bytes)
            }
            _ => {
                bytes.copy_from_slice(sums);
                Ok(())
            }
        };
        active.note_result(group);
        self.calls.note(unpacked);
    }

    /// One packet of RAW results, or its loss, reaches its place.
    fn write(&mut self, place: PacketId, with: impl FnOnce(&Compressor, &Measured, &mut [f32])) {
        let Some(active) = self.calls.get_mut(place.call) else { return };
        let Some(at) = active.parts.get(place.partition as usize) else { return };
        let Some((group, _)) = active.find(place) else { return };
        let first = (place.packet as usize * RAW_WORDS).min(at.part.len);
        let last = (first + RAW_WORDS).min(at.part.len);
        let x = self.memory.of(place.call);
        let Some(x) = x.and_then(|memory| memory.x.get_mut(at.part.offset + first..at.part.offset + last))
        else {
            return;
        };
        with(self.compressor, at, x);
        active.note_result(group);
    }

    /// Whether a packet's results go straight to the tensor.
    fn is_raw(&mut self, place: PacketId) -> bool {
        let active = self.calls.get_mut(place.call).filter(|active| active.remote.is_none());
        let at = active.and_then(|active| active.parts.get(place.partition as usize));
        at.is_some_and(|at| at.choice == Choice::Raw)
    }

    /// A packet is in no sum: the residual of what it carried is all of it.
    fn give_back(&mut self, place: PacketId, sent: Option<&[u8]>) {
        let Some(active) = self.calls.get_mut(place.call).filter(|active| active.holds) else { return };
        let (Some(sent), Some((group, packet))) = (sent, active.find(place)) else { return };
        let at = active.parts[place.partition as usize];
        let per_packet = active.groups[group].per_packet();
        let Some(residual) = &mut active.groups[group].residual else { return };
        let Some(x) = residual.get_mut(packet * per_packet..(packet + 1) * per_packet) else { return };
        let result = self.compressor.add_sent(&at, sent, x);
        self.calls.note(result);
    }
}

impl Events for CallEvents<'_, '_> {
    fn left_out(&mut self, call: u64, partition: u32) {
        let Some(active) = self.calls.get_mut(call) else { return };
        let at = &mut active.parts[partition as usize];
        at.left_out = true;
        active.lost += at.part.len;
    }

    fn norms(&mut self, call: u64, maxima: &mut dyn Iterator<Item = u32>) {
        let Some(active) = self.calls.get_mut(call) else { return };
        active.has_norms = true;
        for (at, norm) in active.parts.iter_mut().zip(maxima) {
            at.norm = norm;
        }
        if let Some(remote) = &active.remote
            && let Err(error) = remote.norms(self.compressor, &active.parts)
        {
            self.calls.broken.get_or_insert(error);
            return;
        }
        for index in 0..active.groups.len() {
            let group = &mut active.groups[index];
            let per_packet = group.per_packet();
            let sent = active.parts[group.parts.clone()].iter().filter(|at| at.norm != 0);
            group.packets = sent.map(|at| at.part.padded / per_packet).sum();
            if group.packets > 0 {
                continue;
            }
            // What others went on without goes to the error feedback before it becomes zero.
            if active.feedback.is_none() || !active.has_left_out(index) {
                active.to_finish.push_back(index);
            }
            // Its error feedback stays as it is, but it has to be where that of the others will be.
            if active.feedback.is_none() {
                active.groups[index].out = Out::Sent;
                active.tick_off(index);
            }
        }
    }

    fn result(&mut self, place: PacketId, result: &Header, sums: &[u8]) {
        if self.is_raw(place) {
            self.write(place, |compressor, at, x| {
                read_raw(sums, result.count, compressor.raw_scale(at.norm), x);
            });
        } else {
            self.absorb(place, Some(result), sums);
        }
    }

    fn lost(&mut self, place: PacketId, sent: Option<&[u8]>) {
        if let Some(active) = self.calls.get_mut(place.call) {
            active.note_lost(place);
        }
        if self.is_raw(place) {
            return self.write(place, |_, _, x| x.fill(0.0));
        }
        self.give_back(place, sent);
        self.absorb(place, None, &[]);
    }

    fn late(&mut self, place: PacketId, sent: Option<&[u8]>) {
        self.give_back(place, sent);
    }

    fn failed(&mut self, call: u64, error: CallError) {
        if let Some(active) = self.calls.get_mut(call) {
            active.error = Some(error);
        }
    }
}
