//! Where a step writes: in place if nobody else has the numbers, and else into memory that was given up before.
//!
//! Pulls, savings and spares share the numbers of a version and read them without the shard's lock. A step that comes meanwhile writes the
//! next version elsewhere. It takes what it does not change from the old numbers piece by piece, each while it is in the cache anyway,
//! so nothing is copied as a whole and, once there are buffers, nothing is allocated under the lock.

use std::ops::Range;
use std::sync::Arc;

use super::state::SharedVector;
use crate::spec::Spec;

/// Coordinates of a piece: those of all vectors of a step fit a first-level cache together.
pub(super) const PIECE: usize = 1 << 11;

/// Most vectors of a shard that are kept to be written again: as many as it has itself, which are all read while a state is
/// written, or two, which pulls of two versions read.
pub(crate) fn buffer_limit(spec: &Spec) -> usize {
    spec.vectors().into_iter().map(usize::from).sum::<usize>().max(2)
}

/// Vectors of one shard, all of one length, that were given up.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Some may still be read.
    given_up: Vec<SharedVector>,
    most: usize,
    /// How many were allocated.
    #[cfg(test)]
    pub allocated: usize,
}

impl Buffers {
    /// An empty store of buffers.
    pub fn new(spec: &Spec) -> Self {
        Self {
            given_up: Vec::new(),
            most: buffer_limit(spec),
            #[cfg(test)]
            allocated: 0,
        }
    }

    /// Memory that nobody reads.
    fn take(&mut self, len: usize) -> SharedVector {
        let free = self.given_up.iter_mut().position(|numbers| Arc::get_mut(numbers).is_some());
        if let Some(free) = free {
            return self.given_up.swap_remove(free);
        }
        #[cfg(test)]
        {
            self.allocated += 1;
        }
        Arc::new(vec![0.0; len])
    }

    /// Opens a vector for writing. [`Writing::end`] must follow, and [`Self::give_up`] with what it returns.
    pub fn open<'a>(&mut self, place: &'a mut SharedVector) -> Writing<'a> {
        let shared = !place.is_empty() && Arc::get_mut(place).is_none();
        let old = shared.then(|| {
            let next = self.take(place.len());
            std::mem::replace(place, next)
        });
        Writing { place, old, copied: 0 }
    }

    /// Keeps the memory of old numbers, rather of those that nobody reads any more.
    pub fn give_up(&mut self, old: Option<SharedVector>) {
        let Some(old) = old else { return };
        if self.given_up.len() == self.most {
            let read = self.given_up.iter_mut().position(|numbers| Arc::get_mut(numbers).is_none());
            match read {
                Some(read) => drop(self.given_up.swap_remove(read)),
                None => return,
            }
        }
        self.given_up.push(old);
    }
}

/// A vector that is being written, from its beginning to its end.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    place: &'a mut SharedVector,
    /// The numbers before, if others have them.
    old: Option<SharedVector>,
    /// How many of them are in place already.
    copied: usize,
}

impl Writing<'_> {
    /// The numbers of a range, which lies behind those of the calls before; none if the vector is empty.
    pub fn piece(&mut self, range: Range<usize>) -> &mut [f32] {
        if self.place.is_empty() {
            return &mut [];
        }
        // Nobody else has it: a reference, no copy.
        let numbers = Arc::make_mut(self.place);
        if let Some(old) = &self.old {
            numbers[self.copied..range.end].copy_from_slice(&old[self.copied..range.end]);
            self.copied = range.end;
        }
        &mut numbers[range]
    }

    /// Takes over what is left of the old numbers, and returns them.
    pub fn end(mut self) -> Option<SharedVector> {
        let len = self.place.len();
        self.piece(len..len);
        self.old
    }
}

/// Pieces of a range, in order.
pub(super) fn pieces(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(PIECE).map(move |begin| begin..end.min(begin + PIECE))
}
