//! The memory that calls under way work on: gradients that become means, and error feedback. It stays in
//! place; pieces of it are lent to the threads that compute, and come back.

use std::collections::BTreeMap;
use std::ops::Range;
use thc_codec::buffer::Buffer;

/// A call's data, which is lent while an engine works: the call's number and its coordinates.
pub struct Borrowed<'a>(Option<(u64, &'a mut [f32])>);

impl<'a> Borrowed<'a> {
    /// Nothing is lent.
    #[must_use]
    pub fn empty() -> Borrowed<'static> {
        Borrowed(None)
    }

    /// Lends the data of a call.
    pub fn new(call: u64, data: &'a mut [f32]) -> Borrowed<'a> {
        Borrowed(Some((call, data)))
    }

    /// The call and its data.
    pub(super) fn get(&mut self) -> Option<(u64, &mut [f32])> {
        self.0.as_mut().map(|(call, data)| (*call, &mut **data))
    }
}

/// The pieces of a tensor that are not lent to tasks, by their first coordinate.
#[derive(Default)]
pub(super) struct Pieces<'d>(BTreeMap<usize, &'d mut [f32]>);

impl<'d> Pieces<'d> {
    pub fn single(data: &'d mut [f32]) -> Pieces<'d> {
        Pieces(BTreeMap::from([(0, data)]))
    }

    /// Pieces that follow each other without gaps.
    pub fn consecutive(pieces: impl Iterator<Item = &'d mut [f32]>) -> Pieces<'d> {
        let mut next = 0;
        let placed = pieces.map(|piece| {
            let at = next;
            next += piece.len();
            (at, piece)
        });
        Pieces(placed.collect())
    }

    /// Takes a range out, if one piece has all of it.
    pub fn take(&mut self, range: Range<usize>) -> Option<&'d mut [f32]> {
        let at = self.place(&range)?;
        let piece = self.0.remove(&at)?;
        let (before, rest) = piece.split_at_mut(range.start - at);
        let (taken, after) = rest.split_at_mut(range.len());
        for (at, piece) in [(at, before), (range.end, after)] {
            if !piece.is_empty() {
                self.0.insert(at, piece);
            }
        }
        Some(taken)
    }

    /// Puts a range back.
    pub fn put(&mut self, at: usize, piece: &'d mut [f32]) {
        self.0.insert(at, piece);
    }

    pub fn get(&self, range: Range<usize>) -> Option<&[f32]> {
        let at = self.place(&range)?;
        self.0.get(&at)?.get(range.start - at..range.end - at)
    }

    pub fn get_mut(&mut self, range: Range<usize>) -> Option<&mut [f32]> {
        let at = self.place(&range)?;
        self.0.get_mut(&at)?.get_mut(range.start - at..range.end - at)
    }

    /// The first coordinate of the piece that has all of a range.
    fn place(&self, range: &Range<usize>) -> Option<usize> {
        let (&at, piece) = self.0.range(..=range.start).next_back()?;
        (range.end <= at + piece.len()).then_some(at)
    }
}

/// The memory of one call.
#[derive(Default)]
pub(super) struct CallMemory<'d> {
    /// The tensor. Nothing while it is not lent: then the call rests.
    pub x: Pieces<'d>,
    /// Its error feedback before the call, in chunks; none if it keeps none.
    pub kept: &'d [Buffer],
    /// Its error feedback after the call.
    pub left: Pieces<'d>,
}

/// The memory of the calls at work, the oldest first ([`Calls::at_work`](super::calls::Calls::at_work)).
#[derive(Default)]
pub(super) struct Memory<'d> {
    pub first: u64,
    pub calls: Vec<CallMemory<'d>>,
}

impl<'d> Memory<'d> {
    pub fn call(&mut self, call: u64) -> Option<&mut CallMemory<'d>> {
        self.calls.get_mut(usize::try_from(call.checked_sub(self.first)?).ok()?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn pieces_go_out_and_come_back() {
        let mut data: Vec<f32> = (0..100u8).map(f32::from).collect();
        let mut pieces = Pieces::single(&mut data);
        let taken = pieces.take(10..20).unwrap();
        assert_eq!((taken[0], taken.len()), (10.0, 10));
        assert!(
            pieces.take(15..16).is_none() && pieces.get(5..11).is_none() && pieces.take(95..101).is_none()
        );
        assert_eq!(pieces.get(20..22), Some(&[20.0, 21.0][..]));
        pieces.get_mut(99..100).unwrap()[0] = -1.0;
        taken[9] = -2.0;
        pieces.put(10, taken);
        assert_eq!(pieces.take(0..10).unwrap().len(), 10);
        assert_eq!(pieces.take(10..20).unwrap()[9], -2.0);
        assert_eq!(pieces.take(20..100).unwrap()[79], -1.0);
        assert!(pieces.take(0..1).is_none() && Pieces::default().take(0..0).is_none());
        let (mut a, mut b) = ([1.0; 3], [2.0; 4]);
        let mut chunks = Pieces::consecutive([&mut a[..], &mut b[..]].into_iter());
        assert_eq!(chunks.take(3..7).unwrap(), [2.0; 4]);
        assert!(chunks.take(1..4).is_none());
    }
}
