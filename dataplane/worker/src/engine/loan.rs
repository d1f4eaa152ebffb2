//! Memory of indices and sums: the engine's own, or a caller's for a while.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Memory that a caller hands over for a while; it comes back by being dropped, or with the sums in it.
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

/// Results of a group: one after the other as they are on the wire, and of how many workers each is, 0 if it is lost.
#[derive(Debug)]
pub(super) struct Sums {
    pub bytes: Bytes,
    pub counts: Vec<u16>,
}
