//! Calls that are computed elsewhere, such as on a GPU: norms and packed indices come in, sums go out.
//!
//! Memory changes owners and is never shared. The caller hands in the memory with the indices of a piece when they are
//! computed, and gets it back when the piece's packets are written. It hands in the memory for the sums with the call,
//! and gets it back when all sums are in it. The engine copies DATA from the caller's memory into packets, and RESULTs
//! from packets into the caller's memory.

use super::Engine;
use super::calls::{Active, Calls, GROUP, Out, Owner, PartitionGroup, Stage};
use super::compressor::{CallKeys, Compressor, Measured, Numbers};
use super::loan::{Bytes, Loan, Sums};
use super::remote::{Finished, News, Remote};
use super::session::Session;
use crate::{Call, Span, WorkerError};
use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};
use std::ops::Range;
use thc_codec::partition::Partition;
use thc_protocol::wire::Choice;
use thc_transport::RetainedTx;

/// A partition of a packed call.
#[derive(Clone, Copy, Debug)]
pub struct PackedPart {
    /// Its number in the call, from which its signs and roundings derive, and the coordinates of the tensor that it holds.
    pub part: Partition,
    /// The form in which it travels.
    pub choice: Choice,
    /// The piece that it belongs to.
    pub piece: usize,
}

/// Neighbouring partitions with the same choice, which are handed over together.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Its partitions.
    pub parts: Range<usize>,
    /// Bytes of its indices, as they lie in DATA packets one after the other, or words of RAW.
    pub indices: usize,
    /// Bytes of its sums, as they lie in results.
    pub sums: usize,
    /// Packets, each way, those of partitions whose norm is 0 among them.
    pub packets: usize,
}

/// The partitions and pieces of a packed call.
#[derive(Clone, Debug)]
pub struct PackedLayout {
    /// Partitions, in their order.
    pub parts: Vec<PackedPart>,
    /// Pieces, in their order.
    pub pieces: Vec<Piece>,
}

/// Coordinates of a piece.
fn piece_of(log: u8) -> usize {
    GROUP.max(1 << log.min(28))
}

impl PackedLayout {
    /// The layout of a call of this plan, which must fit the job.
    pub(super) fn new(plan: &[Span], compressor: &Compressor, piece: u8) -> PackedLayout {
        PackedLayout::from_call(&Active::new(plan, compressor, piece_of(piece)))
    }

    fn from_call(active: &Active) -> PackedLayout {
        let groups = (0..).zip(&active.groups);
        let parts = groups.flat_map(|(piece, group)| {
            let made = move |at: &Measured| PackedPart { part: at.part, choice: at.choice, piece };
            active.parts[group.parts.clone()].iter().map(made)
        });
        let pieces = active.groups.iter().map(|group| {
            let packets = group.padded / group.per_packet();
            let (parts, indices) = (group.parts.clone(), group.padded * group.width() / 8);
            Piece { parts, indices, sums: packets * group.sums_len(), packets }
        });
        PackedLayout { parts: parts.collect(), pieces: pieces.collect() }
    }
}

/// A packed call under way: the caller's end.
pub struct Packed {
    number: u64,
    keys: CallKeys,
    pieces: Sender<(usize, Box<dyn Loan>)>,
    news: Receiver<News>,
    over: Option<Result<(), WorkerError>>,
}

impl Packed {
    /// The call's number in the session.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The keys from which its signs and this worker's roundings derive.
    #[must_use]
    pub fn keys(&self) -> CallKeys {
        self.keys
    }

    /// Returns whether the next [`Self::numbers`] or [`Self::receive`] would return at once.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.over.is_some() || !self.news.is_empty()
    }

    fn next(&mut self) -> Result<Option<News>, WorkerError> {
        if let Some(over) = &self.over {
            return over.clone().map(|()| None);
        }
        match self.news.recv().unwrap_or(News::Done(Err(WorkerError::Closed))) {
            News::Done(result) => {
                self.over = Some(result.clone());
                result.map(|()| None)
            }
            news => Ok(Some(news)),
        }
    }

    /// Waits for the norms of all workers, and returns the parameters with which to compress each partition.
    /// Call it first, and once.
    ///
    /// # Errors
    /// As [`Group::call`](crate::Group::call).
    pub fn numbers(&mut self) -> Result<Vec<Numbers>, WorkerError> {
        match self.next()? {
            Some(News::Norms(numbers)) => Ok(numbers),
            _ => Err(WorkerError::Closed),
        }
    }

    /// Hands over the indices of a piece, in any order. A piece whose norms are all 0 needs none. Indices that come after the
    /// call is over are dropped.
    pub fn send(&self, piece: usize, indices: Box<dyn Loan>) {
        let _ = self.pieces.send((piece, indices));
    }

    /// Waits for the results of another piece; `None` when all are in and the call is over.
    ///
    /// # Errors
    /// As [`Group::call`](crate::Group::call).
    pub fn receive(&mut self) -> Result<Option<Finished>, WorkerError> {
        loop {
            match self.next()? {
                Some(News::Sums(finished)) => return Ok(Some(finished)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

/// A tensor whose norms, indices and mean are computed elsewhere. The key of its error feedback, which the
/// caller keeps, goes into NORM, so that it is checked.
pub struct PackedTensor<'a> {
    /// Its coordinates.
    pub length: usize,
    /// log₂ of the coordinates of a piece, at least those of a full partition.
    pub piece: u8,
    /// The norm of each partition with its error feedback: ‖x‖, for RAW max |x|; NaN if it is not finite.
    pub norms: &'a [f32],
    /// Memory for the sums of each piece.
    pub sums: Vec<Box<dyn Loan>>,
}

impl<I: RetainedTx> Engine<I> {
    /// The layout of a call of this plan.
    ///
    /// # Errors
    /// [`WorkerError`] if the plan does not fit the job.
    pub fn packed_layout(&self, plan: &[Span], piece: u8) -> Result<PackedLayout, WorkerError> {
        let length = plan.iter().fold(0_usize, |sum, span| sum.saturating_add(span.length));
        let compressor = &self.session.compressor;
        compressor.check_plan(plan, length)?;
        Ok(PackedLayout::new(plan, compressor, piece))
    }

    /// Starts a call whose indices are computed elsewhere. Another thread must drive the engine until it is
    /// over.
    ///
    /// # Errors
    /// As [`Self::submit`], and [`WorkerError::PackedMemory`] if norms or memory do not fit the plan.
    pub fn start_packed(&mut self, tensor: PackedTensor<'_>, call: Call<'_>) -> Result<Packed, WorkerError> {
        self.check_working()?;
        let PackedTensor { length, piece, norms, sums } = tensor;
        let compressor = &self.session.compressor;
        let plan = call.spans(length, compressor.usual());
        compressor.check_plan(&plan, length)?;
        let mut active = Active::new(&plan, compressor, piece_of(piece));
        active.make_packets();
        let layout = PackedLayout::from_call(&active);
        let memory = |what, expected, actual| Err(WorkerError::PackedMemory { what, expected, actual });
        if norms.len() != layout.parts.len() {
            return memory("norms", layout.parts.len(), norms.len());
        }
        if sums.len() != layout.pieces.len() {
            return memory("memories for sums", layout.pieces.len(), sums.len());
        }
        for ((group, piece), sums) in active.groups.iter_mut().zip(&layout.pieces).zip(sums) {
            let bytes = (*sums).as_ref().len();
            if bytes < piece.sums {
                return memory("bytes for the sums of a piece", piece.sums, bytes);
            }
            group.sums = Some(Sums { bytes: Bytes::Lent(sums), counts: vec![0; piece.packets] });
        }
        for (at, norm) in active.parts.iter_mut().zip(norms) {
            at.norm = compressor.encode_norm(*norm);
        }
        active.stage = Stage::Measured;
        active.key = call.key();
        let (pieces, received) = unbounded();
        let (sender, news) = unbounded();
        active.owner = Owner::Remote(Remote { pieces: received, news: sender });
        let number = self.calls.next_number();
        let keys = compressor.keys(number);
        self.calls.push(active);
        self.submit_measured();
        let Session { link, worker, .. } = &mut self.session;
        worker.send_norms(self.io.now(), &mut link.tx(&mut self.io));
        Ok(Packed { number, keys, pieces, news, over: None })
    }

    /// Takes what callers have handed over, and hands them what is ready. Returns whether there was anything.
    pub(super) fn exchange_packed(&mut self) -> Result<bool, WorkerError> {
        let mut busy = false;
        for active in self.calls.remote() {
            busy |= active.exchange(&self.session.compressor)?;
        }
        Ok(busy)
    }
}

impl Calls {
    /// Returns whether a call waits for indices that its caller computes.
    pub fn awaits_pieces(&mut self) -> bool {
        self.remote().any(|active| active.groups.iter().any(PartitionGroup::is_uncompressed))
    }
}

impl Active {
    /// Hands the results of whole pieces to the caller of a packed call, and takes its indices. Returns whether there was
    /// anything.
    fn exchange(&mut self, compressor: &Compressor) -> Result<bool, WorkerError> {
        let Active { owner: Owner::Remote(remote), parts, groups, to_finish, open, .. } = self else {
            return Ok(false);
        };
        let mut busy = false;
        while let Some(piece) = to_finish.pop_front() {
            busy = true;
            let group = &mut groups[piece];
            let Some(Sums { bytes: Bytes::Lent(sums), counts }) = group.sums.take() else { continue };
            let per_packet = group.per_packet();
            let estimates = parts[group.parts.clone()].iter().flat_map(|at| {
                let packets = at.padded_range();
                let counts = &counts[packets.start / per_packet..packets.end / per_packet];
                counts.iter().map(move |&count| compressor.estimate(at, count))
            });
            let estimates = estimates.collect::<Result<_, _>>()?;
            remote.send(News::Sums(Finished { piece, sums, estimates }));
            group.has_mean = true;
            *open -= usize::from(group.is_done());
        }
        loop {
            match remote.pieces.try_recv() {
                Ok((piece, indices)) => {
                    busy = true;
                    let Some(group) = groups.get_mut(piece).filter(|group| group.is_uncompressed()) else {
                        continue;
                    };
                    let (expected, actual) = (group.padded * group.width() / 8, (*indices).as_ref().len());
                    if actual < expected {
                        let what = "bytes of the indices of a piece";
                        return Err(WorkerError::PackedMemory { what, expected, actual });
                    }
                    group.out = Out::Ready { packets: Bytes::Lent(indices), residual: None };
                }
                Err(TryRecvError::Disconnected) if groups.iter().any(PartitionGroup::is_uncompressed) => {
                    return Err(WorkerError::Abandoned);
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return Ok(busy),
            }
        }
    }
}
