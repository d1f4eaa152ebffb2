//! Calls under way: where their data lies, how far each partition is.

use super::codec::{self, Codec};
use crate::WorkerError;
use crossbeam_channel::Sender;
use std::collections::VecDeque;
use thc_codec::buffer::Buffer;
use thc_codec::error::CodecError;
use thc_codec::partition::{self, MIN_PARTITION, Partition};
use thc_protocol::wire::{Mode, RAW_WORDS};
use thc_protocol::worker::{CallError, Events, Place};

/// Data lent for one step: the call's number and its coordinates.
pub struct Borrowed<'a>(Option<(u64, &'a mut [f32])>);

impl<'a> Borrowed<'a> {
    /// Nothing is lent.
    #[must_use]
    pub fn none() -> Borrowed<'static> {
        Borrowed(None)
    }

    /// Lends the data of a call.
    pub fn new(call: u64, data: &'a mut [f32]) -> Borrowed<'a> {
        Borrowed(Some((call, data)))
    }

    pub(super) fn get(&self, call: u64) -> Option<&[f32]> {
        self.0.as_ref().filter(|(number, _)| *number == call).map(|(_, data)| &**data)
    }

    pub(super) fn get_mut(&mut self, call: u64) -> Option<&mut [f32]> {
        self.0.as_mut().filter(|(number, _)| *number == call).map(|(_, data)| &mut **data)
    }
}

/// Where the outcome of a call goes: a handle, or [`super::Engine::take_outcome`].
pub type Outcome = Option<Sender<Result<Vec<f32>, WorkerError>>>;

/// How far a partition is on its way out.
#[derive(Debug)]
pub(super) enum Stage {
    /// Untouched.
    Waiting,
    /// Transformed; what has been sent of it is already the residual.
    Rotated(Buffer),
    /// All sent; the residual is to go into the error feedback.
    Residual(Buffer),
    /// Nothing of it is left here.
    Sent,
}

#[derive(Debug)]
pub(super) struct PartWork {
    pub part: Partition,
    pub packets: u32,
    pub stage: Stage,
    /// What is to become its error feedback when the call is done.
    pub left: Option<Buffer>,
    /// The maximum of the norms, f32 bits, once known.
    pub norm: u32,
    pub sent: u32,
    pub results: u32,
    /// All results are in, or none will come.
    pub complete: bool,
    pub finished: bool,
}

impl PartWork {
    pub fn all_sent(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Sent) {
            Stage::Rotated(scratch) => Stage::Residual(scratch),
            other => other,
        };
    }

    fn done(&self) -> bool {
        self.finished && matches!(self.stage, Stage::Sent)
    }
}

pub(super) struct Active {
    pub mode: Mode,
    pub feedback: Option<u64>,
    pub length: usize,
    pub owned: Option<Vec<f32>>,
    pub parts: Vec<PartWork>,
    /// Whether residuals stay until all results are in, because what is lost returns to them.
    pub holds: bool,
    /// The last partition's results if it is padded.
    pub tail: Vec<f32>,
    pub error: Option<CallError>,
    outcome: Outcome,
}

impl Active {
    #[allow(clippy::too_many_arguments, reason = "what makes a call")]
    pub fn new(
        mode: Mode,
        feedback: Option<u64>,
        may_lose: bool,
        length: usize,
        block: u8,
        owned: Option<Vec<f32>>,
        outcome: Outcome,
    ) -> Active {
        let parts: Vec<PartWork> = partition::split(length, block)
            .map(|part| PartWork {
                part,
                packets: 0,
                stage: if mode == Mode::Raw { Stage::Sent } else { Stage::Waiting },
                left: None,
                norm: 0,
                sent: 0,
                results: 0,
                complete: false,
                finished: false,
            })
            .collect();
        let padded = mode == Mode::Compressed && parts.last().is_some_and(|w| w.part.len < w.part.padded);
        Active {
            mode,
            feedback,
            length,
            owned,
            parts,
            holds: may_lose && feedback.is_some(),
            tail: if padded { vec![0.0; MIN_PARTITION] } else { Vec::new() },
            error: None,
            outcome,
        }
    }

    fn done(&self) -> bool {
        self.error.is_some() || self.parts.iter().all(PartWork::done)
    }
}

/// All calls under way, oldest first.
#[derive(Default)]
pub(super) struct Calls {
    first: u64,
    queue: VecDeque<Active>,
    outcomes: Vec<(u64, Result<(), WorkerError>)>,
    /// Memory of partitions that need no sending after all.
    reclaimed: Vec<Buffer>,
    /// Why results could not be read.
    broken: Option<CodecError>,
}

impl Calls {
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn push(&mut self, number: u64, active: Active) {
        if self.queue.is_empty() {
            self.first = number;
        }
        self.queue.push_back(active);
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut Active> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.queue.get_mut(index)
    }

    /// The keys of the error feedback that calls under way use.
    pub fn feedback_in_use(&self) -> impl Iterator<Item = u64> {
        self.queue.iter().filter_map(|active| active.feedback)
    }

    /// Why results could not be read, once.
    pub fn take_broken(&mut self) -> Option<CodecError> {
        self.broken.take()
    }

    pub fn events<'a, 'b>(&'a mut self, codec: &'a Codec, lent: &'a mut Borrowed<'b>) -> CallEvents<'a, 'b> {
        CallEvents { calls: self, codec, lent }
    }

    /// Whether this partition is to be transformed before it can be sent.
    pub fn awaits_transform(&mut self, place: Place) -> bool {
        let part = self.get_mut(place.call).and_then(|active| active.parts.get(place.partition as usize));
        part.is_some_and(|work| matches!(work.stage, Stage::Waiting))
    }

    /// The calls that have not failed, oldest first.
    pub fn live(&mut self) -> impl Iterator<Item = (u64, &mut Active)> {
        (self.first..).zip(&mut self.queue).filter(|(_, active)| active.error.is_none())
    }

    pub fn reclaim(&mut self) -> impl Iterator<Item = Buffer> {
        self.reclaimed.drain(..)
    }

    pub fn pop_done(&mut self) -> Option<(u64, Active)> {
        if !self.queue.front()?.done() {
            return None;
        }
        let active = self.queue.pop_front()?;
        self.first += 1;
        Some((self.first - 1, active))
    }

    pub fn deliver(&mut self, number: u64, active: Active) {
        let result = active.error.map_or(Ok(()), |error| Err(WorkerError::Call(error)));
        match (active.outcome, active.owned) {
            (Some(outcome), Some(data)) => {
                // Nobody waits any more if the handle was dropped.
                let _ = outcome.send(result.map(|()| data));
            }
            _ => self.outcomes.push((number, result)),
        }
    }

    pub fn fail_all(&mut self, error: &WorkerError) {
        while let Some(active) = self.queue.pop_front() {
            match active.outcome {
                Some(outcome) => {
                    let _ = outcome.send(Err(error.clone()));
                }
                None => self.outcomes.push((self.first, Err(error.clone()))),
            }
            self.first += 1;
        }
    }

    pub fn take_outcome(&mut self, number: u64) -> Option<Result<(), WorkerError>> {
        let index = self.outcomes.iter().position(|(n, _)| *n == number)?;
        Some(self.outcomes.swap_remove(index).1)
    }
}

/// Applies the protocol's events to the calls.
pub(super) struct CallEvents<'a, 'b> {
    calls: &'a mut Calls,
    codec: &'a Codec,
    lent: &'a mut Borrowed<'b>,
}

impl CallEvents<'_, '_> {
    /// One packet of results, or its loss, reaches its place.
    fn write(
        &mut self,
        place: Place,
        with: impl FnOnce(&Codec, &PartWork, &mut [f32]) -> Result<(), CodecError>,
    ) {
        let Some(active) = self.calls.get_mut(place.call) else { return };
        let Active { mode, parts, owned, tail, .. } = active;
        let Some(work) = parts.get_mut(place.partition as usize) else { return };
        let part = work.part;
        let data = owned.as_deref_mut().or(self.lent.get_mut(place.call)).unwrap_or(&mut []);
        let Some(region) = data.get_mut(part.offset..part.offset + part.len) else { return };
        let out = match mode {
            Mode::Raw => {
                let first = (place.packet as usize * RAW_WORDS).min(part.len);
                &mut region[first..(first + RAW_WORDS).min(part.len)]
            }
            Mode::Compressed => {
                let n = self.codec.lane.coordinates();
                let whole = if part.len == part.padded { region } else { tail.as_mut_slice() };
                let Some(out) = whole.get_mut(place.packet as usize * n..(place.packet as usize + 1) * n)
                else {
                    return;
                };
                out
            }
        };
        let result = with(self.codec, work, out);
        work.results += 1;
        work.complete = work.results == work.packets;
        self.note(result);
    }

    /// A packet is in no sum: the residual of what it carried is all of it.
    fn give_back(&mut self, place: Place, sent: Option<&[u8]>) {
        let Some(active) = self.calls.get_mut(place.call).filter(|active| active.holds) else { return };
        let (Some(sent), Some(work)) = (sent, active.parts.get_mut(place.partition as usize)) else { return };
        let round = self.codec.round(place, work.norm, work.part.padded);
        let (Stage::Rotated(scratch) | Stage::Residual(scratch)) = &mut work.stage else { return };
        let result = round.and_then(|round| round.add_sent(place, sent, scratch));
        self.note(result);
    }

    fn note(&mut self, result: Result<(), CodecError>) {
        if let Err(error) = result {
            self.calls.broken.get_or_insert(error);
        }
    }
}

impl Events for CallEvents<'_, '_> {
    fn norms(&mut self, call: u64, maxima: &mut dyn Iterator<Item = u32>) {
        let Some(active) = self.calls.get_mut(call) else { return };
        let mut freed = Vec::new();
        for (work, norm) in active.parts.iter_mut().zip(maxima) {
            work.norm = norm;
            if norm == 0 {
                work.complete = true;
                // Nothing of it is sent, so its error feedback stays as it is.
                if let Stage::Rotated(scratch) = std::mem::replace(&mut work.stage, Stage::Sent) {
                    freed.push(scratch);
                }
            }
        }
        self.calls.reclaimed.append(&mut freed);
    }

    fn result(&mut self, place: Place, count: u8, sums: &[u8]) {
        let mode = self.calls.get_mut(place.call).map(|active| active.mode);
        self.write(place, |codec, work, out| match mode {
            Some(Mode::Raw) => {
                codec::read_raw(sums, count, codec.raw_scale(work.norm), out);
                Ok(())
            }
            _ => codec.dequantize(sums, count, work, out),
        });
    }

    fn lost(&mut self, place: Place, sent: Option<&[u8]>) {
        self.give_back(place, sent);
        self.write(place, |_, _, out| {
            out.fill(0.0);
            Ok(())
        });
    }

    fn late(&mut self, place: Place, sent: Option<&[u8]>) {
        self.give_back(place, sent);
    }

    fn failed(&mut self, call: u64, error: CallError) {
        let Some(active) = self.calls.get_mut(call) else { return };
        active.error = Some(error);
        let mut freed = Vec::new();
        for work in &mut active.parts {
            if let Stage::Rotated(scratch) = std::mem::replace(&mut work.stage, Stage::Sent) {
                freed.push(scratch);
            }
        }
        self.calls.reclaimed.append(&mut freed);
    }
}
