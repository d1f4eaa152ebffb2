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
}

impl Burst {
    /// Room for one, with nothing in it.
    pub fn new() -> Box<Burst> {
        Box::new(Burst {
            pieces: vec![0; BATCH_SIZE * PIECE_STRIDE],
            meta: [RecvMeta::default(); BATCH_SIZE],
            received: 0,
        })
    }

    /// Receives in place of what it holds; without an error there is at least one piece then.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<()> {
        self.received = 0;
        let mut pieces = self.pieces.chunks_exact_mut(PIECE_STRIDE);
        let mut buffers: [IoSliceMut<'_>; BATCH_SIZE] = std::array::from_fn(|_| {
            IoSliceMut::new(pieces.next().map_or(&mut [][..], |piece| &mut piece[..PIECE]))
        });
        self.received = socket.state.recv(socket.as_quinn(), &mut buffers, &mut self.meta)?;
        Ok(())
    }

    /// What it holds, in order of arrival.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        let pieces = self.pieces.chunks_exact(PIECE_STRIDE);
        self.meta[..self.received].iter().zip(pieces).map(|(meta, piece)| Run {
            from: canonical(meta.addr),
            at: meta.dst_ip.map(|address| address.to_canonical()),
            ecn: meta.ecn.map_or(0, |ecn| ecn as u8),
            contents: &piece[..meta.len],
            segment: if meta.stride == 0 { meta.len.max(1) } else { meta.stride },
        })
    }
}
