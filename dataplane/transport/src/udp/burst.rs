//! The datagrams of one receive call.

use std::{
    io::{self, IoSliceMut},
    mem,
    sync::Arc,
};

use quinn_udp::{BATCH_SIZE, RecvMeta};

use super::socket::UdpSocket;
use crate::{Run, datagram::canonical};

/// Room for one received piece: the kernel merges at most 64 KiB.
const PIECE: usize = 64 << 10;
/// Memory of a piece. A little more than [`PIECE`], because pieces a power of two
/// apart would start in the same cache sets and short datagrams evict each other.
const PIECE_MEMORY: usize = PIECE + 17 * 64;
/// A shorter piece is sooner copied than kept.
const SHARED_LEAST: usize = 8 << 10;

/// The memory of a piece: its own, or shared with a receiver of packets that keeps its content.
enum Piece {
    Own(Vec<u8>),
    Shared(Arc<Vec<u8>>),
}

impl Piece {
    fn new() -> Piece {
        Piece::Own(vec![0; PIECE_MEMORY])
    }
}

/// Pieces that the kernel has handed over together.
pub(super) struct Burst {
    pieces: [Piece; BATCH_SIZE],
    /// Memory that a receiver keeps, or has kept until lately.
    kept: Vec<Arc<Vec<u8>>>,
    meta: [RecvMeta; BATCH_SIZE],
    received: usize,
}

impl Burst {
    /// Room for one, with nothing in it.
    pub fn new() -> Burst {
        Burst {
            pieces: std::array::from_fn(|_| Piece::new()),
            kept: Vec::new(),
            meta: [RecvMeta::default(); BATCH_SIZE],
            received: 0,
        }
    }

    /// Replaces its content by what it receives; without an error there is then at least one piece.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<()> {
        self.reclaim();
        self.received = 0;
        let mut buffers = self.pieces.each_mut().map(|piece| match piece {
            Piece::Own(memory) => IoSliceMut::new(&mut memory[..PIECE]),
            // There is none.
            Piece::Shared(_) => IoSliceMut::new(&mut []),
        });
        self.received = socket.state.recv(socket.as_quinn(), &mut buffers, &mut self.meta)?;
        Ok(())
    }

    /// Has memory of its own again for what was received last.
    fn reclaim(&mut self) {
        for piece in &mut self.pieces[..self.received] {
            if matches!(piece, Piece::Own(_)) {
                continue;
            }
            let Piece::Shared(shared) = mem::replace(piece, Piece::Own(Vec::new())) else { continue };
            *piece = match Arc::try_unwrap(shared) {
                Ok(memory) => Piece::Own(memory),
                Err(shared) => {
                    let back = self.kept.iter().rposition(|memory| Arc::strong_count(memory) == 1);
                    let back = back.and_then(|at| Arc::into_inner(self.kept.swap_remove(at)));
                    self.kept.push(shared);
                    back.map_or_else(Piece::new, Piece::Own)
                }
            };
        }
    }

    /// Allows the memory of what has just been received to be kept, if that is much.
    pub fn share(&mut self) {
        for (piece, meta) in self.pieces.iter_mut().zip(&self.meta[..self.received]) {
            if let Piece::Own(memory) = piece
                && meta.len >= SHARED_LEAST
            {
                *piece = Piece::Shared(Arc::new(mem::take(memory)));
            }
        }
    }

    /// Returns the runs received last, in order of arrival.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        self.meta[..self.received].iter().zip(&self.pieces).map(|(meta, piece)| {
            let (contents, memory) = match piece {
                Piece::Own(memory) => (&memory[..meta.len], None),
                Piece::Shared(memory) => (&memory[..meta.len], Some(memory)),
            };
            Run {
                from: canonical(meta.addr),
                at: meta.dst_ip.map(|address| address.to_canonical()),
                ecn: meta.ecn.map_or(0, |ecn| ecn as u8),
                contents,
                segment: if meta.stride == 0 { meta.len.max(1) } else { meta.stride },
                memory,
            }
        })
    }
}
