//! A call under way.

use super::buffer_pool::{BufferPool, MeanSender, Owned};
use super::cut::cut;
use crate::Span;
use crate::engine::compressor::{Compressor, Measured};
use crate::engine::loan::{Bytes, Held, Sums};
use crate::engine::remote::Remote;
use std::collections::VecDeque;
use std::ops::Range;
use thc_codec::buffer::Buffer;
use thc_codec::partition::MAX_PARTITION;
use thc_protocol::wire::{Choice, Form, RAW_LEN, RAW_WORDS};
use thc_protocol::worker::{CallError, PacketId};

/// How far a group is on its way out.
#[derive(Debug)]
pub(in crate::engine) enum Out {
    /// Untouched.
    Waiting,
    /// Being compressed.
    Busy,
    /// Its packets are there to be sent, of RAW wherever they are sent from.
    Ready(Bytes),
    /// All sent.
    Sent,
}

/// Partitions that are computed together: neighbours with the same choice, of [`GROUP`] coordinates together,
/// or a single one.
#[derive(Debug)]
pub(in crate::engine) struct PartitionGroup {
    pub parts: Range<usize>,
    pub choice: Choice,
    /// The form of its packets; none of RAW.
    pub form: Option<Form>,
    /// Coordinates of the tensor, and with padding.
    pub range: Range<usize>,
    pub padded: usize,
    pub out: Out,
    /// The residual in the rotated domain, while what lost packets carried may be added back to it.
    pub residual: Option<Buffer>,
    pub sums: Option<Sums>,
    /// Results that stay where they were received, by partition; they are not in `sums`.
    pub held: Vec<(u32, Held)>,
    /// Packets of partitions whose norm is not 0; how many of them are sent, and have results or never will.
    pub packets: usize,
    pub sent: usize,
    pub results: usize,
    /// What is still to be done with it: compressing and sending, with error feedback, and the mean.
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

pub(in crate::engine) struct Active {
    /// What the caller knows it by, in whatever session.
    pub ticket: u64,
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
    /// Whether residuals are kept until all results are in, because what is lost is added back to them.
    pub holds: bool,
    /// Groups whose norms have been asked for, and have been found.
    pub asked: usize,
    pub measured: usize,
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
    /// Where it goes when it is over, if it is owned; what is lent has [`super::super::Engine::take_outcome`].
    pub(super) outcome: Option<MeanSender>,
}

impl Active {
    /// A call whose plan the job can carry out, in groups of so many coordinates or of one partition.
    pub fn new(plan: &[Span], compressor: &Compressor, window: usize) -> Active {
        let length = plan.iter().map(|span| span.length).sum();
        let window = window.max(1 << compressor.block);
        let mut parts: Vec<Measured> = Vec::new();
        let mut groups: Vec<PartitionGroup> = Vec::new();
        let mut group_of = Vec::new();
        for (choice, part) in cut(plan, compressor.block) {
            let end = part.offset + part.len;
            let start = match groups.last_mut() {
                Some(group)
                    if group.choice == choice
                        && group.range.start / window == part.offset / window
                        && group.range.start / MAX_PARTITION == part.offset / MAX_PARTITION =>
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
                        held: Vec::new(),
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
            key: None,
            feedback: None,
            length,
            owned: None,
            left: Vec::new(),
            open: groups.len(),
            lost: 0,
            parts,
            group_of,
            groups,
            holds: false,
            asked: 0,
            measured: 0,
            has_norms: false,
            compressed: 0,
            to_finish: VecDeque::new(),
            to_feed_back: VecDeque::new(),
            error: None,
            remote: None,
            outcome: None,
        }
    }

    /// Takes the tensor over from the caller.
    pub fn own(&mut self, Owned { data, outcome }: Owned) {
        (self.owned, self.outcome) = (Some(data), Some(outcome));
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

    /// Its memory, for as long as it is lent: the tensor, and its error feedback.
    pub fn take_memory(&mut self) -> (Option<Vec<f32>>, Vec<Buffer>) {
        (self.owned.take(), std::mem::take(&mut self.left))
    }

    pub fn put_memory(&mut self, memory: (Option<Vec<f32>>, Vec<Buffer>)) {
        (self.owned, self.left) = memory;
    }

    pub(super) fn is_done(&self) -> bool {
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
    pub(super) fn note_lost(&mut self, place: PacketId) {
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

    /// So many more packets of a group were sent. Returns its packed indices if all are now sent.
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

    /// Whether so many packets from this one on are a partition without padding whose mean this engine
    /// computes.
    pub(super) fn is_whole(&self, place: PacketId, count: usize) -> bool {
        let at = &self.parts[place.partition as usize];
        let per_packet = self.groups[self.group_of[place.partition as usize] as usize].per_packet();
        let all = place.packet == 0 && count * per_packet == at.part.padded;
        all && at.part.len == at.part.padded && self.remote.is_none()
    }

    /// Where the results of a group's packets are gathered.
    pub fn sums(&mut self, group: usize, buffers: &mut BufferPool) -> &mut Sums {
        let state = &mut self.groups[group];
        let (all, len) = (state.padded / state.per_packet(), state.sums_len());
        state.sums.get_or_insert_with(|| buffers.sums(all, len))
    }

    /// So many more packets of a group have their results, or will have none.
    pub fn note_results(&mut self, group: usize, packets: usize) {
        let state = &mut self.groups[group];
        state.results += packets;
        if state.results == state.packets {
            self.to_finish.push_back(group);
            self.release(group);
        }
    }
}
