//! A call under way.

use super::buffer_pool::BufferPool;
use super::cut::{FAR, cut};
use super::group::{Out, PartitionGroup};
use crate::engine::compressor::{Compressor, Measured};
use crate::engine::loan::{Bytes, Sums};
use crate::engine::remote::Remote;
use crate::{Span, WorkerError};
use crossbeam_channel::Sender;
use std::collections::VecDeque;
use thc_codec::buffer::Buffer;
use thc_codec::partition::MAX_PARTITION;
use thc_protocol::worker::{CallError, PacketId};

/// The owner of a call's tensor, who gets its outcome.
pub(in crate::engine) enum Owner {
    /// The caller lends it, and takes the outcome from [`Engine::take_outcome`](crate::Engine::take_outcome).
    Lender,
    /// The engine, until the call is over.
    Engine { data: Vec<f32>, outcome: Sender<Result<Vec<f32>, WorkerError>> },
    /// The caller, which computes elsewhere.
    Remote(Remote),
}

/// The error feedback that this engine keeps of a call's tensor.
pub(in crate::engine) struct CallFeedback {
    pub key: u64,
    /// The error feedback after the call.
    pub left: Vec<Buffer>,
    /// True if residuals are kept until all results are in, because lost packets are added back to them.
    pub holds: bool,
}

/// The stage of a call.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Stage {
    /// The norms of its groups are being measured; tasks for `begun` of them have begun, and `done` are done.
    Measuring { begun: usize, done: usize },
    /// This worker's norms are known, and the maxima over all workers are not.
    Measured,
    /// The maxima are known. No group before `next` waits to be compressed.
    Compressing { next: usize },
}

pub(in crate::engine) struct Active {
    /// The caller's number of the call, in all sessions.
    pub ticket: u64,
    /// The tensor's key in NORMs.
    pub key: Option<u64>,
    pub length: usize,
    pub owner: Owner,
    pub feedback: Option<CallFeedback>,
    pub parts: Vec<Measured>,
    pub groups: Vec<PartitionGroup>,
    pub stage: Stage,
    /// Groups whose results are all in, and groups whose residual need be held no longer.
    pub to_finish: VecDeque<usize>,
    pub to_feed_back: VecDeque<usize>,
    /// Groups that are not done.
    pub open: usize,
    /// Coordinates that were given up: they count as zero in the mean.
    pub lost: usize,
    pub error: Option<CallError>,
}

impl Active {
    /// A call of a plan that the job can carry out, in groups of at most `window` coordinates or of one partition. Its
    /// tensor is lent.
    pub fn new(plan: &[Span], compressor: &Compressor, window: usize) -> Active {
        let length = plan.iter().map(|span| span.length).sum();
        let window = window.max(1 << compressor.block);
        let mut parts: Vec<Measured> = Vec::new();
        let mut groups: Vec<PartitionGroup> = Vec::new();
        for (choice, part) in cut(plan, compressor.block) {
            let end = part.offset + part.len;
            let start = match groups.last_mut() {
                Some(group)
                    if group.choice == choice
                        && group.range.start / window == part.offset / window
                        && group.range.start / MAX_PARTITION == part.offset / MAX_PARTITION =>
                {
                    group.extend(end, part.padded);
                    group.padded - part.padded
                }
                _ => {
                    let (form, range) = (compressor.form(choice), part.offset..end);
                    groups.push(PartitionGroup::new(parts.len(), choice, form, range, part.padded));
                    0
                }
            };
            let group = groups.len() as u32 - 1;
            parts.push(Measured { part, group, start, choice, norm: 0, left_out: false, far: length >= FAR });
        }
        Active {
            ticket: 0,
            key: None,
            length,
            owner: Owner::Lender,
            feedback: None,
            open: groups.len(),
            parts,
            groups,
            stage: Stage::Measuring { begun: 0, done: 0 },
            to_finish: VecDeque::new(),
            to_feed_back: VecDeque::new(),
            lost: 0,
            error: None,
        }
    }

    /// Keeps error feedback.
    pub fn keep(&mut self, feedback: CallFeedback) {
        self.key = Some(feedback.key);
        self.feedback = Some(feedback);
        self.make_packets();
    }

    /// Has a task make the packets of RAW groups as well, which are otherwise written from the tensor itself.
    pub fn make_packets(&mut self) {
        self.groups.iter_mut().for_each(|group| group.out = Out::Waiting);
    }

    pub fn is_remote(&self) -> bool {
        matches!(self.owner, Owner::Remote(_))
    }

    /// Its memory, for as long as it is lent to tasks: the tensor, if the engine owns it, and its error feedback.
    pub fn take_memory(&mut self) -> (Option<Vec<f32>>, Vec<Buffer>) {
        let data = match &mut self.owner {
            Owner::Engine { data, .. } => Some(std::mem::take(data)),
            _ => None,
        };
        (data, self.feedback.as_mut().map(|feedback| std::mem::take(&mut feedback.left)).unwrap_or_default())
    }

    pub fn put_memory(&mut self, (tensor, left): (Option<Vec<f32>>, Vec<Buffer>)) {
        if let (Owner::Engine { data, .. }, Some(tensor)) = (&mut self.owner, tensor) {
            *data = tensor;
        }
        if let Some(feedback) = &mut self.feedback {
            feedback.left = left;
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.error.is_some() || self.open == 0
    }

    /// The group that a packet belongs to, and the packet's place in it.
    pub fn find(&self, place: PacketId) -> Option<(usize, usize)> {
        let &Measured { group, start, .. } = self.parts.get(place.partition as usize)?;
        let per_packet = self.groups[group as usize].per_packet();
        Some((group as usize, start / per_packet + place.packet as usize))
    }

    /// Returns whether the others went on without some of a group (P48 quorum).
    pub fn has_left_out(&self, group: usize) -> bool {
        self.parts[self.groups[group].parts.clone()].iter().any(|at| at.left_out)
    }

    /// Counts the coordinates of a packet that was given up.
    pub(super) fn count_lost(&mut self, place: PacketId) {
        let Some((group, _)) = self.find(place) else { return };
        let per_packet = self.groups[group].per_packet();
        let left =
            self.parts[place.partition as usize].part.len.saturating_sub(place.packet as usize * per_packet);
        self.lost += left.min(per_packet);
    }

    /// Counts a group whose norms are measured. Returns whether all are.
    pub fn count_measured(&mut self) -> bool {
        let Stage::Measuring { begun, done } = self.stage else { return false };
        let all = done + 1 == self.groups.len();
        self.stage = if all { Stage::Measured } else { Stage::Measuring { begun, done: done + 1 } };
        all
    }

    /// A group is sent, and its error feedback is complete.
    pub fn end_sending(&mut self, group: usize) {
        self.groups[group].out = Out::Done;
        self.open -= usize::from(self.groups[group].is_done());
    }

    /// The mean of a group is written.
    pub fn end_mean(&mut self, group: usize) {
        self.groups[group].has_mean = true;
        self.open -= usize::from(self.groups[group].is_done());
    }

    /// Counts packets of a group as sent. Returns the memory of its packets once all are.
    pub fn count_sent(&mut self, group: usize, count: usize) -> Option<Bytes> {
        let state = &mut self.groups[group];
        state.sent += count;
        if state.sent < state.packets {
            return None;
        }
        match std::mem::replace(&mut state.out, Out::Done) {
            Out::Ready { packets, residual: Some(residual) } => {
                state.out = Out::Held(residual);
                self.release(group);
                Some(packets)
            }
            out => {
                self.end_sending(group);
                if let Out::Ready { packets, .. } = out { Some(packets) } else { None }
            }
        }
    }

    /// Has the residual of a group fed back if all of it is sent and has results.
    fn release(&mut self, group: usize) {
        let state = &self.groups[group];
        if matches!(state.out, Out::Held(_)) && state.results == state.packets {
            self.to_feed_back.push_back(group);
        }
    }

    /// Returns whether `count` packets from this one on are a partition without padding whose mean this engine computes.
    pub(super) fn is_whole(&self, place: PacketId, count: usize) -> bool {
        let at = &self.parts[place.partition as usize];
        let per_packet = self.groups[at.group as usize].per_packet();
        let all = place.packet == 0 && count * per_packet == at.part.padded;
        all && at.part.len == at.part.padded && !self.is_remote()
    }

    /// The memory in which the results of a group's packets are gathered.
    pub fn sums(&mut self, group: usize, buffers: &mut BufferPool) -> &mut Sums {
        let state = &mut self.groups[group];
        let (all, len) = (state.padded / state.per_packet(), state.sums_len());
        state.sums.get_or_insert_with(|| buffers.sums(all, len))
    }

    /// Counts packets of a group that have their results, or will have none.
    pub fn count_results(&mut self, group: usize, packets: usize) {
        let state = &mut self.groups[group];
        state.results += packets;
        if state.results == state.packets {
            self.to_finish.push_back(group);
            self.release(group);
        }
    }
}
