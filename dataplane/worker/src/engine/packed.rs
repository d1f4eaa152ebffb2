//! Calls that are computed elsewhere, such as on a GPU: norms and packed indices come in, sums go out.
//!
//! Memory changes owners and is never shared. The memory with the indices of a piece is handed in when they
//! are computed, and handed back when the piece's packets are written; the memory for the sums is handed in
//! with the call, and handed back when they are all there. So nobody reads what another writes: DATA is
//! copied from the caller's memory into packets, and RESULTs from packets into the caller's memory.

use super::Engine;
use super::calls::{Active, Calls, GROUP, Out};
use super::compressor::{CallKeys, Compressor, Measured, Numbers};
use super::loan::{Bytes, Loan, Sums};
use super::remote::{Finished, News, Remote};
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
    /// How it travels.
    pub choice: Choice,
    /// The piece that it belongs to.
    pub piece: usize,
}

/// What is handed over at a time: neighbouring partitions with the same choice.
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

/// How a packed call is cut.
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
    /// How a call of this plan, which is one, is cut.
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

    /// What its signs and this worker's roundings derive from.
    #[must_use]
    pub fn keys(&self) -> CallKeys {
        self.keys
    }

    /// Whether something has come, so that the next of [`Self::numbers`] or [`Self::receive`] returns at once.
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

    /// Hands over the indices of a piece. Pieces may come in any order; a piece whose norms are all 0 is not
    /// needed. Pieces that come after the call is over are dropped.
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
    /// How a call of this plan is cut.
    ///
    /// # Errors
    /// What is wrong with the plan.
    pub fn packed_layout(&self, plan: &[Span], piece: u8) -> Result<PackedLayout, WorkerError> {
        let length = plan.iter().fold(0_usize, |sum, span| sum.saturating_add(span.length));
        self.compressor.check_plan(plan, length)?;
        Ok(PackedLayout::new(plan, &self.compressor, piece))
    }

    /// Starts a call whose indices are computed elsewhere. Another thread must drive the engine until it is
    /// over.
    ///
    /// # Errors
    /// As [`Self::submit`], and [`WorkerError::PackedMemory`] if norms or memory do not fit the plan.
    pub fn start_packed(&mut self, tensor: PackedTensor<'_>, call: Call<'_>) -> Result<Packed, WorkerError> {
        self.ready_for_calls()?;
        let PackedTensor { length, piece, norms, sums } = tensor;
        let plan = call.spans(length, self.compressor.usual());
        self.compressor.check_plan(&plan, length)?;
        let mut active = Active::new(&plan, &self.compressor, piece_of(piece));
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
            group.out = Out::Waiting;
            group.sums = Some(Sums { bytes: Bytes::Lent(sums), counts: vec![0; piece.packets] });
        }
        for (at, norm) in active.parts.iter_mut().zip(norms) {
            at.norm = self.compressor.encode_norm(*norm);
        }
        (active.asked, active.measured) = (active.groups.len(), active.groups.len());
        active.key = call.key();
        let (pieces, taken) = unbounded();
        let (told, news) = unbounded();
        active.remote = Some(Remote { pieces: taken, news: told });
        let number = self.calls.next_number();
        self.calls.push(active);
        self.submit_measured();
        self.worker.send_norms(self.io.now(), &mut self.link.tx(&mut self.io));
        Ok(Packed { number, keys: self.compressor.keys(number), pieces, news, over: None })
    }

    /// Takes what callers have handed over, and hands them what is ready. Returns whether there was anything.
    pub(super) fn exchange_packed(&mut self) -> Result<bool, WorkerError> {
        let Self { calls, compressor, .. } = self;
        let mut busy = false;
        for active in calls.remote() {
            busy |= active.exchange(compressor)?;
        }
        Ok(busy)
    }
}

impl Calls {
    /// Whether a call waits for indices that somebody else makes.
    pub fn awaits_pieces(&mut self) -> bool {
        self.remote().any(|active| active.groups.iter().any(|group| matches!(group.out, Out::Waiting)))
    }
}

impl Active {
    fn exchange(&mut self, compressor: &Compressor) -> Result<bool, WorkerError> {
        let Some(remote) = self.remote.take() else { return Ok(false) };
        let result = self.exchange_with(&remote, compressor);
        self.remote = Some(remote);
        result
    }

    fn exchange_with(&mut self, remote: &Remote, compressor: &Compressor) -> Result<bool, WorkerError> {
        let mut busy = false;
        while let Some(piece) = self.to_finish.pop_front() {
            busy = true;
            let group = &mut self.groups[piece];
            let Some(Sums { bytes: Bytes::Lent(sums), counts }) = group.sums.take() else { continue };
            let per_packet = group.per_packet();
            let estimates = self.parts[group.parts.clone()].iter().flat_map(|at| {
                let packets = at.padded_range();
                let counts = &counts[packets.start / per_packet..packets.end / per_packet];
                counts.iter().map(move |&count| compressor.estimate(at, count))
            });
            let estimates = estimates.collect::<Result<_, _>>()?;
            remote.tell(News::Sums(Finished { piece, sums, estimates }));
            self.tick_off(piece);
        }
        let waits = |group: &super::calls::PartitionGroup| matches!(group.out, Out::Waiting);
        loop {
            match remote.pieces.try_recv() {
                Ok((piece, indices)) => {
                    busy = true;
                    let Some(group) = self.groups.get_mut(piece).filter(|group| waits(group)) else {
                        continue;
                    };
                    let (expected, actual) = (group.padded * group.width() / 8, (*indices).as_ref().len());
                    if actual < expected {
                        let what = "bytes of the indices of a piece";
                        return Err(WorkerError::PackedMemory { what, expected, actual });
                    }
                    group.out = Out::Ready(Bytes::Lent(indices));
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) if self.groups.iter().any(waits) => {
                    return Err(WorkerError::Abandoned);
                }
                Err(TryRecvError::Disconnected) => break,
            }
        }
        Ok(busy)
    }
}
