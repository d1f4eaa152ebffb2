//! A rank's part of an all-reduce whose sums are added elsewhere: by an all-reduce of integers of NCCL, gloo
//! or MPI.
//!
//! Values of a lookup table add up, so they need no aggregator of this project. A rank looks up its own
//! indices and packs the values into lanes wide enough for the sum over all ranks ([`Lanes`]); any integer
//! all-reduce adds the words; every rank unpacks the sums. One all-reduce of a tensor has three steps,
//! between which the caller runs collectives:
//!
//! 1. [`Collective::begin`] measures the tensor. The caller takes the MAX of the numbers that it returns over all ranks, as integers of 32 bits,
//!    and hands them to [`Collective::settle`].
//! 2. [`Collective::compress`] makes words of one piece of the tensor after the other, [`PIECE`] coordinates each. The caller adds each up over all
//!    ranks, as integers of 32 bits that wrap, while the next is made.
//! 3. [`Collective::finish`] makes the mean of the sums of a piece, and [`Collective::end`] ends the call.
//!
//! Signs, ranges, roundings and estimates are those of a session (P5, P28 to P32) with the same seed, block and tables, call by call, so the
//! means are those of a parameter server, bit for bit. What travels RAW takes a word for each coordinate. A partition whose norm is
//! zero on all ranks takes no words.

mod call;
mod feedback;
mod groups;
mod piece;

pub use call::CollectiveCall;

use call::{Fed, tag};
use piece::{Group, PIECE, Scratch, Share, chunk, take};

use super::calls::{Active, GROUP};
use super::compressor::{Compressor, Measured};
use super::feedback::Feedback;
use crate::{Span, WorkerError};
use rayon::prelude::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thc_codec::error::CodecError;
use thc_codec::lanes::Lanes;
use thc_codec::table::LookupTable;
use thc_protocol::wire::{Choice, Form, Norm};
use thc_protocol::worker::CallError;
use thc_protocol::{Rank, TableId};

/// The settings of a rank. All ranks must have the same, except for `rank`, `seed` and `threads`.
#[derive(Clone, Debug)]
pub struct CollectiveConfig {
    /// This rank, from 0.
    pub rank: u16,
    /// The number of ranks, at most 4,096.
    pub ranks: u16,
    /// Lookup tables to choose from; calls that name none take the first.
    pub tables: Vec<(TableId, LookupTable)>,
    /// log₂ of the coordinates of a full partition, 10 to 20 (P4).
    pub block: u8,
    /// The seed of the signs (P29).
    pub job_seed: u64,
    /// The seed of this rank's roundings; `None` derives it from the job's seed and the rank.
    pub seed: Option<u64>,
    /// Threads that compute.
    pub threads: usize,
}

/// A rank's state.
pub struct Collective {
    compressor: Compressor,
    /// The lanes of each table.
    lanes: Vec<(TableId, Lanes)>,
    ranks: u16,
    pool: Option<Arc<rayon::ThreadPool>>,
    feedback: Mutex<Feedback>,
    calls: AtomicU64,
}

impl Collective {
    /// Prepares a rank.
    ///
    /// # Errors
    /// [`WorkerError::Unusable`] if there are no tables, two of one number, or ranks or block are out of bounds;
    /// [`WorkerError::Codec`] if sums of a table need more than 16 bits.
    pub fn new(config: CollectiveConfig) -> Result<Collective, WorkerError> {
        let CollectiveConfig { rank, ranks, tables, block, job_seed, seed, threads } = config;
        let refuse = |reason: String| Err(WorkerError::Unusable { reason });
        if ranks == 0 || ranks > 4096 || rank >= ranks {
            return refuse(format!("rank {rank} of {ranks}: ranks are 0 to n - 1, and n at most 4096"));
        }
        if !thc_codec::partition::BLOCKS.contains(&block) {
            return refuse(format!("blocks of 2^{block} coordinates: give 10 to 20"));
        }
        let numbers: HashSet<TableId> = tables.iter().map(|(id, _)| *id).collect();
        if tables.is_empty() || numbers.len() < tables.len() || numbers.contains(&TableId(0)) {
            return refuse("tables need numbers of their own from 1 on, and there must be one".to_owned());
        }
        let mut lanes = Vec::new();
        let mut formed = Vec::new();
        for (id, table) in tables {
            let held = Lanes::for_sums(ranks.into(), table.granularity())?;
            let Some(form) = Form::without_packets(table.bits(), held.bits()) else {
                return refuse(format!(
                    "table {id} has indices of {} bits: 1 to 8 are possible",
                    table.bits()
                ));
            };
            lanes.push((id, held));
            formed.push((id, table, form));
        }
        let compressor = Compressor::without_session(formed, (Rank(rank), ranks), block, job_seed, seed)?;
        let pool = super::pool::pool(threads + usize::from(threads > 1))?;
        Ok(Collective {
            compressor,
            lanes,
            ranks,
            pool,
            feedback: Mutex::default(),
            calls: AtomicU64::new(0),
        })
    }

    /// The lookup tables by their numbers, with the lanes of their sums.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &LookupTable, Lanes)> {
        self.compressor.tables().zip(&self.lanes).map(|((id, table), (_, lanes))| (id, table, *lanes))
    }

    /// The number of calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn lock_feedback(&self) -> MutexGuard<'_, Feedback> {
        self.feedback.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lanes(&self, choice: Choice) -> Option<Lanes> {
        let Choice::Table(id) = choice else { return None };
        self.lanes.iter().find(|(other, _)| *other == id).map(|(_, lanes)| *lanes)
    }

    /// Words of a partition.
    fn words(&self, at: &Measured) -> usize {
        match self.lanes(at.choice) {
            _ if at.norm == 0 => 0,
            Some(lanes) => lanes.words(at.part.padded),
            None => at.part.len,
        }
    }

    /// Runs `work` on every item, on the pool's threads if there are any.
    fn for_each<T: Send>(
        &self,
        items: Vec<T>,
        work: impl Fn(&mut Scratch, T) -> Result<(), CodecError> + Send + Sync,
    ) -> Result<(), CodecError> {
        match &self.pool {
            Some(pool) if items.len() > 1 => {
                pool.install(|| items.into_par_iter().try_for_each_init(Scratch::default, work))
            }
            _ => {
                let mut scratch = Scratch::default();
                items.into_iter().try_for_each(|item| work(&mut scratch, item))
            }
        }
    }

    /// Measures a tensor. `plan` says how its spans travel; if it is empty, all travels by the first table.
    /// `feedback` is the key of its error feedback. Ranks must begin the same calls in the same order.
    /// Returns the call, and numbers whose MAX over all ranks, as integers, [`Self::compress`] wants: the
    /// norm of each partition, and two that show whether all ranks call alike.
    ///
    /// # Errors
    /// If the plan does not fit this tensor or these tables, or the tensor's error feedback has another
    /// length or is in use. Then no call has begun.
    pub fn begin(
        &self,
        x: &[f32],
        plan: &[Span],
        feedback: Option<u64>,
    ) -> Result<(CollectiveCall, Vec<i32>), WorkerError> {
        let whole = [Span { length: x.len(), choice: self.compressor.usual() }];
        let plan = if plan.is_empty() { &whole } else { plan };
        self.compressor.check_plan(plan, x.len())?;
        let fed = feedback.map(|key| self.reserve(key, x.len())).transpose()?;
        let call = self.start(plan, x.len(), feedback, fed);
        let CollectiveCall { parts, groups, feedback: fed, .. } = &call;
        let mut norms = vec![0; parts.len() + 2];
        let mut rest = &mut norms[..parts.len()];
        let items: Vec<_> = groups.iter().map(|group| (group, take(&mut rest, group.parts.len()))).collect();
        let measured = self.for_each(items, |_, (group, norms)| {
            let kept = fed.as_ref().map(|fed| chunk(&fed.before, &group.range));
            let x = &x[group.range.clone()];
            for (norm, at) in norms.iter_mut().zip(&parts[group.parts.clone()]) {
                let place = at.place(group.range.start);
                let kept = kept.map(|kept| &kept[place.clone()]);
                *norm = self.compressor.norm(at.choice, &x[place], kept) as i32;
            }
            Ok(())
        });
        let at = norms.len() - 2;
        norms[at..].copy_from_slice(&[call.tag, -call.tag]);
        match measured {
            Ok(()) => Ok((call, norms)),
            Err(error) => {
                self.give_up(call);
                Err(error.into())
            }
        }
    }

    /// A call of a plan that fits a tensor of this length; its norms are not measured yet.
    fn start(&self, plan: &[Span], length: usize, key: Option<u64>, fed: Option<Fed>) -> CollectiveCall {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let Active { parts, groups, .. } = Active::new(plan, &self.compressor, GROUP);
        let groups: Vec<_> =
            groups.into_iter().map(|group| Group { parts: group.parts, range: group.range }).collect();
        let mut pieces = vec![0..0; length.div_ceil(PIECE)];
        for (i, group) in groups.iter().enumerate() {
            let piece = &mut pieces[group.range.start / PIECE];
            *piece = if piece.end == 0 { i..i + 1 } else { piece.start..i + 1 };
        }
        let (tag, words) = (tag(number, plan, key), Vec::new());
        CollectiveCall { number, tag, length, parts, groups, pieces, feedback: fed, words }
    }

    /// Takes the largest numbers of all ranks.
    ///
    /// # Errors
    /// [`CallError::NonFinite`] if a rank's tensor is not finite, and [`WorkerError::Differs`] if ranks call
    /// different all-reduces, both alike on all ranks: then give the call up.
    pub fn settle(&self, call: &mut CollectiveCall, norms: &[i32]) -> Result<(), WorkerError> {
        CodecError::check_len("norms", call.parts.len() + 2, norms.len())?;
        let (norms, tags) = norms.split_at(call.parts.len());
        if tags != [call.tag, -call.tag] {
            return Err(WorkerError::Differs { call: call.number });
        }
        for (at, &norm) in call.parts.iter_mut().zip(norms) {
            at.norm = norm as u32;
            if let Some(worker) = Norm::non_finite_worker(at.norm) {
                return Err(CallError::NonFinite { worker }.into());
            }
            if !Norm::is_value(at.norm, self.ranks) {
                return Err(CallError::Norm { partition: at.part.index, value: at.norm }.into());
            }
        }
        let of_group = |group: &Group| call.parts[group.parts.clone()].iter().map(|at| self.words(at)).sum();
        call.words = call.groups.iter().map(of_group).collect();
        Ok(())
    }

    /// Makes the words of a piece of a tensor whose call is settled, to be added up: as many on every rank.
    ///
    /// # Errors
    /// If `x` is not as long as the piece.
    pub fn compress(&self, call: &CollectiveCall, piece: usize, x: &[f32]) -> Result<Vec<i32>, WorkerError> {
        let (groups, counts) = call.piece_groups(piece, x.len())?;
        let mut words = vec![0; counts.iter().sum()];
        let mut rest: &mut [u32] = bytemuck::cast_slice_mut(&mut words);
        let before = call.feedback.as_ref().map(|fed| &*fed.before[piece]);
        let after = call.feedback.as_ref().map(|fed| fed.after[piece].lock());
        let mut after = after.map(|locked| locked.unwrap_or_else(PoisonError::into_inner));
        let mut left = after.as_deref_mut().map_or(&mut [][..], |after| &mut **after);
        let shares = groups.iter().zip(counts).map(|(group, &words)| {
            let place = group.range.start % PIECE..(group.range.end - 1) % PIECE + 1;
            Share {
                group,
                x: &x[place.clone()],
                fed: before.map(|before| (&before[place.clone()], take(&mut left, place.len()))),
                words: take(&mut rest, words),
            }
        });
        self.for_each(shares.collect(), |scratch, share| {
            self.compress_group(call.number, &call.parts, share, scratch)
        })?;
        Ok(words)
    }

    /// Makes the mean of a piece from the sums of all ranks' words.
    ///
    /// # Errors
    /// If there are not as many sums as [`Self::compress`] has made words, or `x` is not as long as the piece.
    pub fn finish(
        &self,
        call: &CollectiveCall,
        piece: usize,
        sums: &[i32],
        x: &mut [f32],
    ) -> Result<(), WorkerError> {
        let (groups, counts) = call.piece_groups(piece, x.len())?;
        CodecError::check_len("sums", counts.iter().sum(), sums.len())?;
        let (mut rest, mut x): (&[u32], _) = (bytemuck::cast_slice(sums), x);
        let shares = groups.iter().zip(counts).map(|(group, &words)| {
            let sums = rest.split_off(..words).unwrap_or_default();
            (group, take(&mut x, group.range.len()), sums)
        });
        Ok(self.for_each(shares.collect(), |scratch, (group, x, sums)| {
            self.finish_group(call, group, sums, x, scratch)
        })?)
    }
}
