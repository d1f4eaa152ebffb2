//! What one receive call brings.

use std::io::{self, IoSliceMut};

use quinn_udp::{BATCH_SIZE, RecvMeta};

use super::socket::UdpSocket;
use crate::{Run, datagram::canonical};

/// Room for one received piece: the kernel merges at most 64 KiB.
const PIECE: usize = 64 << 10;
/// Distance between pieces in memory. A little more than [`PIECE`], because pieces a power of two
/// apart would start in the same cache sets and short datagrams evict each other.
const PIECE_STRIDE: usize = PIECE + 17 * 64;

/// Pieces that the kernel has handed over together.
pub(super) struct Burst {
    /// [`PIECE_STRIDE`] apart.
    pieces: Vec<u8>,
    meta: [RecvMeta; BATCH_SIZE],
    received: usize,
    /// Pieces that have been dealt with, bit by bit.
    taken: u64,
}

const _: () = assert!(BATCH_SIZE <= u64::BITS as usize);

impl Burst {
    /// Room for one, with nothing in it.
    pub fn new() -> Box<Burst> {
        Box::new(Burst {
            pieces: vec![0; BATCH_SIZE * PIECE_STRIDE],
            meta: [RecvMeta::default(); BATCH_SIZE],
            received: 0,
            taken: 0,
        })
    }

    /// Receives in place of what it holds; without an error there is at least one piece then.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<()> {
        (self.received, self.taken) = (0, 0);
        let mut pieces = self.pieces.chunks_exact_mut(PIECE_STRIDE);
        let mut buffers: [IoSliceMut<'_>; BATCH_SIZE] = std::array::from_fn(|_| {
            IoSliceMut::new(pieces.next().map_or(&mut [][..], |piece| &mut piece[..PIECE]))
        });
        self.received = socket.state.recv(socket.as_quinn(), &mut buffers, &mut self.meta)?;
        Ok(())
    }

    /// What it holds and has not been [taken](Self::take), in order of arrival.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        let pieces = self.pieces.chunks_exact(PIECE_STRIDE);
        let left = move |i: usize| self.taken >> i & 1 == 0;
        let all = self.meta[..self.received].iter().zip(pieces).enumerate();
        all.filter(move |(i, _)| left(*i)).map(|(_, (meta, piece))| Run {
            from: canonical(meta.addr),
            at: meta.dst_ip.map(|address| address.to_canonical()),
            ecn: meta.ecn.map_or(0, |ecn| ecn as u8),
            contents: &piece[..meta.len],
            segment: if meta.stride == 0 { meta.len.max(1) } else { meta.stride },
        })
    }

    /// Offers what has just been received, in order of arrival; what `takes` takes is not there any more. Returns whether anything is.
    pub fn take(&mut self, mut takes: impl FnMut(&Run<'_>) -> bool) -> bool {
        let mut taken = 0;
        for (run, i) in self.runs().zip(0..) {
            taken |= u64::from(takes(&run)) << i;
        }
        self.taken = taken;
        taken.count_ones() < self.received as u32
    }
}
