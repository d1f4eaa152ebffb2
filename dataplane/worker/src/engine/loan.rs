//! Memory of indices and sums: the engine's own, or a caller's for a while.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

/// Memory that a caller hands over for a while; it comes back by being dropped, or with the sums in it.
pub trait Loan: AsRef<[u8]> + AsMut<[u8]> + Send {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send> Loan for T {}

/// Bytes of a group of partitions: memory of the engine, or a caller's.
pub(super) enum Bytes {
    Own(Vec<u8>),
    Lent(Box<dyn Loan>),
    /// Memory of the engine that others read, too.
    Shared(Arc<Vec<u8>>),
}

impl Bytes {
    /// A range for others to read, and where it begins in what they get: of a caller's memory a copy.
    pub fn share(&mut self, range: Range<usize>) -> (Arc<Vec<u8>>, usize) {
        let shared = match self {
            Bytes::Own(bytes) => Arc::new(std::mem::take(bytes)),
            Bytes::Lent(bytes) => return (Arc::new((**bytes).as_ref()[range].to_vec()), 0),
            Bytes::Shared(bytes) => return (Arc::clone(bytes), range.start),
        };
        *self = Bytes::Shared(Arc::clone(&shared));
        (shared, range.start)
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Lent(bytes) => (**bytes).as_ref(),
            Bytes::Shared(bytes) => bytes,
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Lent(bytes) => (**bytes).as_mut(),
            Bytes::Shared(bytes) => Arc::make_mut(bytes).as_mut_slice(),
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// Results of a group: one after the other as they are on the wire, and of how many workers each is, 0 if it is lost.
#[derive(Debug)]
pub(super) struct Sums {
    pub bytes: Bytes,
    pub counts: Vec<u16>,
}
