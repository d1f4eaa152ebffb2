//! The memory of indices and sums, which the engine owns or a caller lends.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use thc_protocol::wire::HEADER_LEN;

/// Memory that a caller lends. The engine returns it by dropping it, or with the sums in it.
pub trait Loan: AsRef<[u8]> + AsMut<[u8]> + Send {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send> Loan for T {}

/// Bytes of a group of partitions: memory of the engine, or a caller's.
pub(super) enum Bytes {
    Own(Vec<u8>),
    Lent(Box<dyn Loan>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Lent(bytes) => (**bytes).as_ref(),
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Lent(bytes) => (**bytes).as_mut(),
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// Results of a group: one after the other as on the wire, and the number of workers in each, 0 if it is
/// lost.
#[derive(Debug)]
pub(super) struct Sums {
    pub bytes: Bytes,
    pub counts: Vec<u16>,
}

/// The results of a partition as received: all its packets, one after the other, in memory that is not written while this
/// exists.
#[derive(Debug)]
pub(super) struct Held {
    memory: Arc<Vec<u8>>,
    /// From the first sum to the last, headers between included.
    place: Range<usize>,
    /// Bytes of a packet's sums, and from those to the next packet's.
    pub layout: (usize, usize),
    /// The number of workers in each result.
    pub count: u16,
}

impl Held {
    /// The results of packets of `segment` bytes, if these lie in that memory.
    pub fn new(memory: &Arc<Vec<u8>>, packets: &[u8], segment: usize, count: u16) -> Option<Held> {
        let at = packets.as_ptr().addr().checked_sub(memory.as_ptr().addr())?;
        memory.get(at..at + packets.len())?;
        let place = at + HEADER_LEN..at + packets.len();
        Some(Held { memory: Arc::clone(memory), place, layout: (segment - HEADER_LEN, segment), count })
    }

    /// The bytes that [`Self::layout`] describes.
    pub fn sums(&self) -> &[u8] {
        &self.memory[self.place.clone()]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_lies_in_its_memory() {
        let memory = Arc::new((0..200).collect::<Vec<u8>>());
        let held = Held::new(&memory, &memory[30..90], 30, 2).unwrap();
        assert_eq!((held.layout, held.count), ((10, 30), 2));
        assert_eq!((held.sums()[..10].to_vec(), held.sums().len()), ((50..60).collect(), 40));
        assert_eq!(held.sums()[30..], (80..90).collect::<Vec<u8>>());
        assert!(Held::new(&memory, &memory.to_vec()[30..90], 30, 2).is_none());
    }
}
