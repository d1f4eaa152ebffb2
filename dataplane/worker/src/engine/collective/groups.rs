//! One group of partitions: to words, and back.

use super::piece::{Group, Scratch, Share, take};
use super::{Collective, CollectiveCall};
use crate::engine::compressor::{Measured, raw_factor, raw_word};
use thc_codec::error::CodecError;

impl Collective {
    pub(super) fn compress_group(
        &self,
        call: u64,
        parts: &[Measured],
        share: Share<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        let Share { group, x, mut fed, words: mut rest } = share;
        for at in &parts[group.parts.clone()] {
            let place = at.place(group.range.start);
            let mut fed = fed.as_mut().map(|(kept, left)| (&kept[place.clone()], &mut left[place.clone()]));
            if at.norm == 0 {
                // Nothing of it is sent, so its error feedback stays as it is.
                if let Some((kept, left)) = &mut fed {
                    left.copy_from_slice(kept);
                }
                continue;
            }
            let (x, words) = (&x[place.clone()], take(&mut rest, self.words(at)));
            let Some(lanes) = self.lanes(at.choice) else {
                let (scale, limit) = (self.compressor.raw_scale(at.norm), self.compressor.raw_limit());
                for (i, (word, x)) in words.iter_mut().zip(x).enumerate() {
                    let value = fed.as_ref().map_or(*x, |(kept, _)| x + kept[i]);
                    *word = raw_word(value, scale, limit) as u32;
                }
                if let Some((_, left)) = fed {
                    left.fill(0.0);
                }
                continue;
            };
            let width = self.compressor.form(at.choice).map_or(8, |form| usize::from(form.width()));
            let mut packed = std::mem::take(&mut scratch.packed);
            packed.resize(at.part.padded * width / 8, 0);
            self.compressor.compress(
                (call, at),
                x,
                fed,
                [&[]; 2],
                scratch.work(at.part.padded),
                &mut packed,
            )?;
            if self.compressor.indices_are_values(at) {
                lanes.pack(&packed, words)?;
            } else {
                scratch.bytes.resize(at.part.padded, 0);
                self.compressor.look_up(at, &packed, &mut scratch.bytes)?;
                lanes.pack(&scratch.bytes, words)?;
            }
            scratch.packed = packed;
        }
        Ok(())
    }

    pub(super) fn finish_group(
        &self,
        call: &CollectiveCall,
        group: &Group,
        mut rest: &[u32],
        x: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<(), CodecError> {
        for at in &call.parts[group.parts.clone()] {
            let x = &mut x[at.place(group.range.start)];
            if at.norm == 0 {
                x.fill(0.0);
                continue;
            }
            let words = rest.split_off(..self.words(at)).unwrap_or_default();
            let (Some(lanes), Some(form)) = (self.lanes(at.choice), self.compressor.form(at.choice)) else {
                let factor = raw_factor(self.ranks, self.compressor.raw_scale(at.norm));
                x.iter_mut().zip(words).for_each(|(x, word)| *x = (f64::from(*word as i32) * factor) as f32);
                continue;
            };
            let mut bytes = std::mem::take(&mut scratch.bytes);
            if lanes.fit_bytes() {
                bytes.resize(at.part.padded, 0);
                lanes.unpack8(words, &mut bytes)?;
            } else {
                bytes.resize(2 * at.part.padded, 0);
                lanes.unpack16(words, &mut bytes)?;
            }
            let mut counts = std::mem::take(&mut scratch.counts);
            counts.clear();
            counts.resize(at.part.padded / form.coordinates(), self.ranks);
            self.compressor.finish(
                (call.number, at),
                &counts,
                &bytes,
                &[],
                scratch.work(at.part.padded),
                x,
            )?;
            (scratch.bytes, scratch.counts) = (bytes, counts);
        }
        Ok(())
    }
}
