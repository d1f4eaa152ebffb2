//! Datagrams that came in one piece.

use std::{net::IpAddr, sync::Arc};

use crate::{Origin, Peer};

/// Datagrams of one sender that came in a row.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Their sender.
    pub from: Peer,
    /// This host's address to which they were sent, if the socket looks for that.
    pub at: Option<IpAddr>,
    /// Their ECN bits: only what has the same comes in one piece.
    pub ecn: u8,
    /// One behind the other.
    pub contents: &'a [u8],
    /// Bytes of each; the last may have fewer. At least 1.
    pub segment: usize,
    /// The memory of which `contents` are a part, if it may be kept: cloning this keeps the datagrams for as
    /// long as needed without a copy, and later datagrams go to other memory.
    pub memory: Option<&'a Arc<Vec<u8>>>,
}

impl<'a> Run<'a> {
    /// A run of one datagram.
    pub fn single(origin: Origin, datagram: &'a [u8]) -> Run<'a> {
        let Origin { from, at, ecn } = origin;
        Run { from, at, ecn, contents: datagram, segment: datagram.len().max(1), memory: None }
    }

    /// Returns how they came.
    pub fn origin(&self) -> Origin {
        Origin { from: self.from, at: self.at, ecn: self.ecn }
    }

    /// Returns how many there are, at least one.
    pub fn len(&self) -> usize {
        self.contents.len().div_ceil(self.segment).max(1)
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// One of them by its number from 0 on, if there are as many.
    #[inline]
    pub fn datagram(&self, number: usize) -> Option<&'a [u8]> {
        let rest = self.contents.get(number * self.segment..)?;
        (number == 0 || !rest.is_empty()).then(|| &rest[..self.segment.min(rest.len())])
    }

    /// Each, in order. A datagram may be empty; then it is alone.
    #[inline]
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (first, rest) = self.contents.split_at(self.segment.min(self.contents.len()));
        std::iter::once(first).chain(rest.chunks(self.segment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn runs_have_all_their_datagrams() {
        let contents = [1, 2, 3, 4, 5, 6, 7];
        for (len, segment, expected) in [
            (0, 3, vec![0]),
            (2, 3, vec![2]),
            (3, 3, vec![3]),
            (4, 3, vec![3, 1]),
            (7, 3, vec![3, 3, 1]),
            (6, 2, vec![2, 2, 2]),
        ] {
            let run = Run {
                from: Peer::from((Ipv4Addr::LOCALHOST, 1)),
                at: None,
                ecn: 0,
                contents: &contents[..len],
                segment,
                memory: None,
            };
            let lens: Vec<usize> = run.datagrams().map(<[u8]>::len).collect();
            let numbered: Vec<&[u8]> = (0..10).map_while(|number| run.datagram(number)).collect();
            assert!(run.datagrams().eq(numbered) && run.datagram(10).is_none());
            assert_eq!((run.len(), lens), (expected.len(), expected));
            assert_eq!(run.datagrams().flatten().count(), len);
        }
    }
}
