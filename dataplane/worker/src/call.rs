//! One all-reduce: the form in which its coordinates travel, and the key of its error feedback.

use std::borrow::Cow;
use thc_protocol::wire::{Choice, Mode};

/// A piece of a tensor, and how it travels: as indices of one of the job's tables, or RAW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Coordinates, at least 1.
    pub length: usize,
    /// The form in which they travel.
    pub choice: Choice,
}

/// The form in which the coordinates of a tensor travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan<'a> {
    /// All of them alike: as indices of the job's first table, or RAW.
    Whole(Mode),
    /// Span by span: spans follow each other from the first coordinate on, and make up the whole tensor. A span
    /// is padded to whole packets by fewer than 1024 coordinates, so it should be longer than that.
    Spans(&'a [Span]),
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Plan::Whole(Mode::Compressed)
    }
}

/// One all-reduce, beside its data. All workers must make the same calls, in the same order, for tensors of the
/// same length; it is checked. The default is a compressed call without error feedback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call<'a> {
    /// The form in which the coordinates travel.
    pub plan: Plan<'a>,
    /// Error feedback is kept under this key between calls (Algorithm 3); `None`: none is. All workers
    /// must give the same key for the same tensor; it is checked. Feedback survives a change of plans: a span that
    /// travels as [`Choice::Raw`] includes it and leaves none. [`Plan::Whole`] of [`Mode::Raw`] leaves it alone.
    pub feedback: Option<u64>,
}

impl<'a> Call<'a> {
    /// The spans of a tensor of `length` coordinates; `first` is the job's first table.
    pub(crate) fn spans(&self, length: usize, first: Choice) -> Cow<'a, [Span]> {
        match self.plan {
            Plan::Spans(spans) => Cow::Borrowed(spans),
            Plan::Whole(Mode::Compressed) => Cow::Owned(vec![Span { length, choice: first }]),
            Plan::Whole(Mode::Raw) => Cow::Owned(vec![Span { length, choice: Choice::Raw }]),
        }
    }

    /// The key of the error feedback that takes part.
    pub(crate) fn key(&self) -> Option<u64> {
        if self.plan == Plan::Whole(Mode::Raw) { None } else { self.feedback }
    }
}
