//! Pieces of computing, each on the memory of one group of partitions: whoever has one needs nothing else, on whatever thread.

use super::compressor::{Compressor, Measured};
use std::ops::Range;
use std::time::{Duration, Instant};
use thc_codec::buffer::Buffer;
use thc_codec::error::CodecError;
use thc_protocol::wire::{Mode, RESULT_LEN};

/// Results of a group: one after the other as they are on the wire, and of how many workers each is, 0 if it is lost.
#[derive(Debug)]
pub(super) struct Sums {
    pub bytes: Vec<u8>,
    pub counts: Vec<u8>,
}

/// Where the error feedback of a group is, before the call and after it.
pub(super) struct Fed<'d> {
    pub kept: &'d [f32],
    pub left: &'d mut [f32],
}

/// What is to be done.
pub(super) enum Work<'d> {
    /// The norms of all partitions.
    Measure { mode: Mode, kept: Option<&'d [f32]>, norms: Vec<u32> },
    /// x + e to indices and new error feedback. If it `holds`, `work` is as large as the group and becomes the residual, which
    /// is fed back later.
    Compress { fed: Option<Fed<'d>>, holds: bool, work: Buffer, packed: Vec<u8> },
    /// A residual that was held to error feedback.
    FeedBack { residual: Buffer, left: &'d mut [f32] },
    /// All results are in: to the mean. Without `sums`, of RAW or of nothing, only what is zero is left to write.
    Finish { sums: Option<Sums>, work: Buffer },
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
    /// How long it took.
    pub took: Duration,
}

impl Task<'_> {
    pub fn run(&mut self, compressor: &Compressor) -> Result<(), CodecError> {
        let started = Instant::now();
        let x = self.x.as_deref_mut().unwrap_or(&mut []);
        let result = self.work.run(compressor, self.call, &self.parts, x);
        self.took = started.elapsed();
        result
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
        // Where in the group a partition is, and with its padding.
        let place = |at: &Measured| at.part.offset - offset..at.part.offset - offset + at.part.len;
        let padded = |at: &Measured| at.part.offset - offset..at.part.offset - offset + at.part.padded;
        match self {
            Work::Measure { mode, kept, norms } => {
                norms.extend(parts.iter().map(|at| {
                    let kept = kept.map(|kept| &kept[place(at)]);
                    compressor.norm(*mode, &x[place(at)], kept)
                }));
            }
            Work::Compress { fed, holds, work, packed } => {
                for (i, at) in parts.iter().enumerate() {
                    let next = parts.get(i + 1).map_or([&[][..]; 2], |next| {
                        [&x[place(next)], fed.as_ref().map_or(&[], |fed| &fed.kept[place(next)])]
                    });
                    let mut fed =
                        fed.as_mut().map(|Fed { kept, left }| (&kept[place(at)], &mut left[place(at)]));
                    if at.norm == 0 {
                        // Nothing of it is sent, so its error feedback stays as it is.
                        if let Some((kept, left)) = &mut fed {
                            left.copy_from_slice(kept);
                        }
                        continue;
                    }
                    let x = &x[place(at)];
                    let packed = &mut packed[halves(padded(at))];
                    match fed {
                        Some((kept, _)) if *holds => {
                            compressor.rotate((call, at), x, kept, &mut work[padded(at)], packed)?;
                        }
                        fed => {
                            let work = &mut work[..at.part.padded];
                            compressor.compress((call, at), x, fed, next, work, packed)?;
                        }
                    }
                }
            }
            Work::FeedBack { residual, left } => {
                for at in parts.iter().filter(|at| at.norm != 0) {
                    compressor.feed_back((call, at), &mut residual[padded(at)], &mut left[place(at)])?;
                }
            }
            Work::Finish { sums, work } => {
                for (i, at) in parts.iter().enumerate() {
                    let (x, after) = x[place(at).start..].split_at_mut(at.part.len);
                    let next = parts.get(i + 1).map_or(&[][..], |next| &after[..next.part.len]);
                    match sums {
                        _ if at.norm == 0 => x.fill(0.0),
                        Some(Sums { bytes, counts }) => {
                            let per_packet = compressor.coordinates(Mode::Compressed);
                            let place = padded(at);
                            let packets = place.start / per_packet..place.end / per_packet;
                            let bytes = &bytes[packets.start * RESULT_LEN..packets.end * RESULT_LEN];
                            compressor.finish((call, at), &counts[packets], bytes, next, work, x)?;
                        }
                        None => {}
                    }
                }
            }
        }
        Ok(())
    }
}

/// Where packed indices of these coordinates are.
fn halves(coordinates: Range<usize>) -> Range<usize> {
    coordinates.start / 2..coordinates.end / 2
}
