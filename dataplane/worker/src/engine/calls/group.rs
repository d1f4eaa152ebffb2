//! Partitions that are computed together.

use crate::engine::loan::{Bytes, Held, Sums};
use std::ops::Range;
use thc_codec::buffer::Buffer;
use thc_protocol::wire::{Choice, Form, RAW_LEN, RAW_WORDS};

/// The state of a group's packets and of its new error feedback.
#[derive(Debug)]
pub(in crate::engine) enum Out {
    /// RAW without error feedback: its packets are written from the tensor itself.
    Direct,
    /// Its packets are not made yet.
    Waiting,
    /// A task rotates it, before its range is known.
    Rotating,
    /// Its rotated coordinates, which wait for the range.
    Rotated(Buffer),
    /// A task compresses it.
    Compressing,
    /// Its packets can be sent. The residual in the rotated domain is kept if lost packets may be added back to it.
    Ready { packets: Bytes, residual: Option<Buffer> },
    /// All packets are sent, and the residual is kept until all results are in.
    Held(Buffer),
    /// A task turns the residual into error feedback.
    FeedingBack,
    /// All packets are sent, and the error feedback is complete.
    Done,
}

/// Neighbouring partitions with the same choice, of [`GROUP`](super::GROUP) coordinates together, or a single larger one.
#[derive(Debug)]
pub(in crate::engine) struct PartitionGroup {
    pub parts: Range<usize>,
    pub choice: Choice,
    /// The form of its packets; `None` for RAW.
    pub form: Option<Form>,
    /// Coordinates of the tensor, without and with padding.
    pub range: Range<usize>,
    pub padded: usize,
    pub out: Out,
    pub sums: Option<Sums>,
    /// Results that stay where they were received, by partition; they are not in `sums`.
    pub held: Vec<(u32, Held)>,
    /// Packets of partitions whose norm is not 0; how many of them are sent, and have results or never will.
    pub packets: usize,
    pub sent: usize,
    pub results: usize,
    /// True if its mean is written.
    pub has_mean: bool,
}

impl PartitionGroup {
    /// A group of one partition, to which [`Self::extend`] adds others.
    pub fn new(part: usize, choice: Choice, form: Option<Form>, range: Range<usize>, padded: usize) -> Self {
        PartitionGroup {
            parts: part..part + 1,
            choice,
            form,
            range,
            padded,
            out: if form.is_none() { Out::Direct } else { Out::Waiting },
            sums: None,
            held: Vec::new(),
            packets: 0,
            sent: 0,
            results: 0,
            has_mean: false,
        }
    }

    /// Adds the next partition, which ends at this coordinate.
    pub fn extend(&mut self, end: usize, padded: usize) {
        self.parts.end += 1;
        self.range.end = end;
        self.padded += padded;
    }

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

    /// The residual to which lost packets are added back, if there is one.
    pub fn residual_mut(&mut self) -> Option<&mut Buffer> {
        match &mut self.out {
            Out::Ready { residual: Some(residual), .. } | Out::Held(residual) => Some(residual),
            _ => None,
        }
    }

    /// Returns whether no task has begun to compress the group.
    pub fn is_uncompressed(&self) -> bool {
        matches!(self.out, Out::Waiting | Out::Rotating | Out::Rotated(_))
    }

    pub fn is_done(&self) -> bool {
        self.has_mean && matches!(self.out, Out::Done)
    }
}
