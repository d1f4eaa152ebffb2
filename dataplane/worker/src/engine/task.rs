//! Tasks, each on the memory of one group of partitions, which can run on any thread.

use super::compressor::{Compressor, Measured};
use super::loan::{Held, Sums};
use crate::Computed;
use std::ops::Range;
use std::time::{Duration, Instant};
use thc_codec::buffer::Buffer;
use thc_codec::error::CodecError;
use thc_protocol::wire::Choice;

/// The error feedback of a group, before the call and after it.
pub(super) struct Fed<'d> {
    pub kept: &'d [f32],
    pub left: &'d mut [f32],
}

/// The kinds of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Measure,
    Rotate,
    Compress,
    Finish,
    FeedBack,
}

/// The work of a task.
pub(super) enum Work<'d> {
    /// The norms of all partitions.
    Measure { kept: Option<&'d [f32]>, norms: Vec<u32> },
    /// x + e to rotated coordinates, before the range is known.
    Rotate { kept: Option<&'d [f32]>, work: Buffer },
    /// x + e to indices and new error feedback.
    Compress(Compress<'d>),
    /// A residual that was held to error feedback.
    FeedBack { residual: Buffer, left: &'d mut [f32] },
    /// All results are in: computes the mean. The results of some partitions are in `held`, of the others in
    /// `sums`. Without either, only zeros are left to write.
    Finish { sums: Option<Sums>, held: Vec<(u32, Held)>, work: Buffer },
}

/// A group that is compressed.
pub(super) struct Compress<'d> {
    pub fed: Option<Fed<'d>>,
    /// `true` if `work` has the group's rotated coordinates.
    pub rotated: bool,
    /// `true` if `work`, which is then as large as the group, becomes the residual, which is fed back later.
    pub holds: bool,
    pub work: Buffer,
    pub packed: Vec<u8>,
}

/// One piece of computing.
pub(super) struct Task<'d> {
    pub call: u64,
    pub group: usize,
    /// The group's partitions, with their norms as far as they are known.
    pub parts: Vec<Measured>,
    /// The group's coordinates of the tensor, if it needs them.
    pub x: Option<&'d mut [f32]>,
    pub work: Work<'d>,
    /// The time that it took.
    pub took: Duration,
}

impl Task<'_> {
    /// Coordinates of its partitions, with padding.
    pub fn coordinates(&self) -> usize {
        self.parts.iter().map(|at| at.part.padded).sum()
    }

    pub fn run(&mut self, compressor: &Compressor) -> Result<(), CodecError> {
        let started = Instant::now();
        let x = self.x.as_deref_mut().unwrap_or(&mut []);
        let result = self.work.run(compressor, self.call, &self.parts, x);
        self.took = started.elapsed();
        result
    }

    /// Adds this task to what was computed: partitions of zeros need no work after their norm.
    pub fn count(&self, computed: &mut Computed) {
        let all = |of: &mut dyn Iterator<Item = &Measured>| of.map(|at| at.part.padded as u64).sum::<u64>();
        let nonzero = all(&mut self.parts.iter().filter(|at| at.norm != 0));
        match &self.work {
            Work::Measure { .. } => computed.measured += all(&mut self.parts.iter()),
            Work::Rotate { .. } => {}
            Work::Compress(Compress { fed, holds, .. }) => {
                computed.compressed += nonzero;
                computed.fed_back += if fed.is_some() && !holds { nonzero } else { 0 };
            }
            Work::FeedBack { .. } => computed.fed_back += nonzero,
            Work::Finish { .. } => computed.finished += nonzero,
        }
    }
}

impl Work<'_> {
    fn run(
        &mut self,
        compressor: &Compressor,
        call: u64,
        parts: &[Measured],
        x: &mut [f32],
    ) -> Result<(), CodecError> {
        let offset = parts.first().map_or(0, |at| at.part.offset);
        let place = |at: &Measured| at.place(offset);
        match self {
            Work::Measure { kept, norms } => {
                for at in parts {
                    let (x, kept) = (&x[place(at)], kept.map(|kept| &kept[place(at)]));
                    norms.push(compressor.norm(at.choice, x, kept));
                }
            }
            Work::Rotate { kept, work } => rotate(compressor, call, parts, x, *kept, work)?,
            Work::Compress(compress) => compress.run(compressor, call, parts, x)?,
            Work::FeedBack { residual, left } => {
                for at in parts.iter().filter(|at| at.norm != 0) {
                    compressor.feed_back(
                        (call, at),
                        &mut residual[at.padded_range()],
                        &mut left[place(at)],
                    )?;
                }
            }
            Work::Finish { sums, held, work } => {
                for (i, at) in parts.iter().enumerate() {
                    let (x, after) = x[place(at).start..].split_at_mut(at.part.len);
                    let next = parts.get(i + 1).map_or(&[][..], |next| &after[..next.part.len]);
                    let held = held.iter().find(|(partition, _)| *partition == at.part.index);
                    match (held, sums.as_ref()) {
                        _ if at.norm == 0 => x.fill(0.0),
                        (Some((_, held)), _) => compressor.finish_held((call, at), held, next, work, x)?,
                        (None, Some(Sums { bytes, counts })) => {
                            let Some(form) = compressor.form(at.choice) else { continue };
                            let (place, len) = (at.padded_range(), form.lanes_len());
                            let packets = place.start / form.coordinates()..place.end / form.coordinates();
                            let bytes = &bytes[packets.start * len..packets.end * len];
                            compressor.finish((call, at), &counts[packets], bytes, next, work, x)?;
                        }
                        (None, None) => {}
                    }
                }
            }
        }
        Ok(())
    }
}

impl Compress<'_> {
    fn run(
        &mut self,
        compressor: &Compressor,
        call: u64,
        parts: &[Measured],
        x: &[f32],
    ) -> Result<(), CodecError> {
        let Compress { fed, rotated, holds, work, packed } = self;
        if *holds && !*rotated {
            rotate(compressor, call, parts, x, fed.as_ref().map(|fed| fed.kept), work)?;
            *rotated = true;
        }
        let offset = parts.first().map_or(0, |at| at.part.offset);
        let place = |at: &Measured| at.place(offset);
        for (i, at) in parts.iter().enumerate() {
            let next = parts.get(i + 1).map_or([&[][..]; 2], |next| {
                [&x[place(next)], fed.as_ref().map_or(&[], |fed| &fed.kept[place(next)])]
            });
            let mut fed = fed.as_mut().map(|Fed { kept, left }| (&kept[place(at)], &mut left[place(at)]));
            let x = &x[place(at)];
            if at.norm == 0 {
                if let Some((kept, left)) = &mut fed {
                    keep_feedback(at, x, kept, left);
                }
                continue;
            }
            let packed = &mut packed[indices(compressor, at)];
            match fed {
                Some((kept, left)) if at.choice == Choice::Raw => {
                    compressor.write_raw_with(at, x, kept, packed);
                    left.fill(0.0);
                }
                fed if *rotated => {
                    let work = &mut work[at.padded_range()];
                    compressor.quantize((call, at), work, packed)?;
                    if let Some((_, left)) = fed.filter(|_| !*holds) {
                        compressor.feed_back((call, at), work, left)?;
                    }
                }
                fed => {
                    let work = &mut work[..at.part.padded];
                    compressor.compress((call, at), x, fed, next, work, packed)?;
                }
            }
        }
        Ok(())
    }
}

/// Rotates the partitions of a group, with their error feedback, into `work`, which is as large as the group.
fn rotate(
    compressor: &Compressor,
    call: u64,
    parts: &[Measured],
    x: &[f32],
    kept: Option<&[f32]>,
    work: &mut [f32],
) -> Result<(), CodecError> {
    let offset = parts.first().map_or(0, |at| at.part.offset);
    parts.iter().try_for_each(|at| {
        let kept = kept.map(|kept| &kept[at.place(offset)]);
        compressor.rotate((call, at), &x[at.place(offset)], kept, &mut work[at.padded_range()])
    })
}

/// Keeps the error feedback of a partition that is not sent, and adds the gradient if the others went on without it.
fn keep_feedback(at: &Measured, x: &[f32], kept: &[f32], left: &mut [f32]) {
    left.copy_from_slice(kept);
    if at.left_out {
        left.iter_mut().zip(x).for_each(|(left, x)| *left += x);
    }
}

/// The place of a partition's packed indices, or words of RAW, among those of its group.
fn indices(compressor: &Compressor, at: &Measured) -> Range<usize> {
    let width = compressor.form(at.choice).map_or(32, |form| usize::from(form.width()));
    at.start * width / 8..at.padded_range().end * width / 8
}
