//! A call of a collective.

use super::piece::{Group, PIECE};
use crate::Span;
use crate::engine::compressor::Measured;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use thc_codec::buffer::Buffer;
use thc_codec::error::CodecError;
use thc_codec::signs::mix;
use thc_protocol::wire::Choice;

/// An all-reduce under way.
pub struct CollectiveCall {
    pub(super) number: u64,
    pub(super) tag: i32,
    pub(super) length: usize,
    pub(super) parts: Vec<Measured>,
    pub(super) groups: Vec<Group>,
    /// The groups of each piece.
    pub(super) pieces: Vec<Range<usize>>,
    pub(super) feedback: Option<Fed>,
    /// Words of each group.
    pub(super) words: Vec<usize>,
}

/// The error feedback of a call, by pieces.
pub(super) struct Fed {
    pub(super) key: u64,
    pub(super) before: Arc<Vec<Buffer>>,
    pub(super) after: Vec<Mutex<Buffer>>,
}

impl CollectiveCall {
    /// The number of the tensor's pieces.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Words of a piece, known once the call is settled.
    #[must_use]
    pub fn words(&self, piece: usize) -> usize {
        let groups = self.pieces.get(piece).cloned().unwrap_or_default();
        self.words.get(groups).unwrap_or_default().iter().sum()
    }

    /// The groups of a piece, and the words of each. `x` is the length of the caller's memory for the piece.
    pub(super) fn piece_groups(&self, piece: usize, x: usize) -> Result<(&[Group], &[usize]), CodecError> {
        let groups = self.pieces.get(piece).cloned().unwrap_or_default();
        CodecError::check_len("the piece", self.length.saturating_sub(piece * PIECE).min(PIECE), x)?;
        Ok((&self.groups[groups.clone()], &self.words[groups]))
    }
}

/// A hash of a call, 1 to 2^31 − 1, by which ranks notice that they call differently.
pub(super) fn tag(number: u64, plan: &[Span], feedback: Option<u64>) -> i32 {
    let choice = |span: &Span| match span.choice {
        Choice::Raw => 0,
        Choice::Table(id) => u64::from(id.0),
    };
    let spans = plan.iter().flat_map(|span| [span.length as u64, choice(span)]);
    let named = feedback.map_or([0, 0], |key| [1, key]);
    let hash =
        [number].into_iter().chain(named).chain(spans).fold(0, |hash, word| mix(hash ^ word).wrapping_add(1));
    ((mix(hash) >> 33) as i32).max(1)
}
