//! What a push sends, and what becomes of it.

use std::ops::Range;
use std::time::Instant;

use thc_codec::rounding::Rounding;
use thc_codec::signs::mix;
use thc_codec::{CodecError, norm};

use super::link::Exchange;
use super::{Client, DOMAIN, Push, Pushed, ShardState, ShardView};
use crate::counters::Reason;
use crate::error::ModelError;
use crate::payload::{self, Encoding, Roundings, VectorForm, VectorPiece};
use crate::tensors::{EXACT, TensorBlock, clip, intersection};
use crate::wire::{Frame, kind, pushed};

/// The form of each block of the coordinates in `spans`; `None`: one for all.
fn pieces(blocks: &[TensorBlock], spans: &[Range<usize>], how: Push) -> Option<Vec<VectorPiece>> {
    if blocks.is_empty() || (how.encoding == Encoding::Full && how.tensors.is_none()) {
        return None;
    }
    let mut pieces: Vec<VectorPiece> = Vec::new();
    for span in spans {
        let first = blocks.partition_point(|block| block.range.end <= span.start);
        for block in blocks[first..].iter().take_while(|block| block.range.start < span.end) {
            let length = block.range.end.min(span.end) - block.range.start.max(span.start);
            let bits = how.tensors.map_or(0, |bits| bits[block.tensor]);
            let encoding = match (bits, block.bits) {
                (EXACT, _) | (0, EXACT) => Encoding::Full,
                (0, _) => how.encoding,
                (bits, _) => how.encoding.with_bits(bits),
            };
            match pieces.last_mut() {
                Some(last) if encoding == Encoding::Full && last.encoding == Some(Encoding::Full) => {
                    last.length += length;
                }
                _ => pieces.push(VectorPiece { length, encoding: Some(encoding) }),
            }
        }
    }
    Some(pieces)
}

impl ShardView {
    /// The coordinates of the shard that a push has.
    fn pushed_spans(&self, how: Push) -> Vec<Range<usize>> {
        match how.spans {
            Some(spans) => intersection(&clip(spans, &self.range), &self.moving),
            None => self.moving.clone(),
        }
    }
}

impl Client {
    /// What makes a push impossible as a whole, so that no shard takes a part of it.
    pub(super) fn check_push(&mut self, gradient: &[f32], how: Push) -> Result<(), ModelError> {
        let began = Instant::now();
        if !(how.scale.is_finite() && how.scale >= 0.0) {
            let scale = how.scale;
            return Err(ModelError::Config(format!("scale is {scale}: give a finite number from 0")));
        }
        self.check_spans(how.spans.unwrap_or(&[]))?;
        self.check_bits(how.tensors)?;
        if self.views.iter().any(|view| view.found == Some(ShardState::Empty)) {
            return Err(ModelError::Empty);
        }
        payload::encode(&[1.0], how.encoding, Rounding::new(0, 0, 0), &mut Vec::new())?;
        // One shard is encoded before anything is sent.
        if let [_, _, ..] = self.views.as_slice() {
            for view in &self.views {
                let own = &gradient[view.range.clone()];
                let max = view.pushed_spans(how).into_iter().map(|span| norm::max_abs(&own[span]));
                if let Some(value) = max.map(f64::from).find(|max| !max.is_finite()) {
                    let what = "the largest magnitude of a gradient";
                    return Err(CodecError::Parameter { what, value, allowed: "finite numbers" }.into());
                }
            }
        }
        self.stats.coding += began.elapsed();
        Ok(())
    }

    /// The push of a shard; nothing for one that does not run.
    pub(super) fn push_frame(
        &mut self,
        shard: usize,
        gradient: &[f32],
        how: Push,
    ) -> Result<Exchange, ModelError> {
        let began = Instant::now();
        let view = &mut self.views[shard];
        let pulled = if how.behind { view.before } else { view.stamp };
        let (Some(ShardState::Running(_)), Some((incarnation, stamp))) = (view.found, pulled) else {
            return Ok(Exchange::default());
        };
        let sequence = view.sequence + 1;
        let seed = mix(self.config.seed ^ DOMAIN).wrapping_add(u64::from(self.config.worker));
        let roundings = Roundings { seed, round: sequence, shard: shard as u32 };
        let head = Frame::new(kind::PUSH).u64(sequence).u64(incarnation);
        let mut frame = head.stamp(stamp).f32(how.scale);
        let (own, out) = (&gradient[view.range.clone()], frame.tail());
        let spans = view.pushed_spans(how);
        let pieces = pieces(&view.blocks, &spans, how);
        let form = pieces.as_deref().map_or(VectorForm::Whole(how.encoding), VectorForm::Pieces);
        let whole = 0..own.len();
        let size = match form {
            _ if spans != std::slice::from_ref(&whole) => {
                payload::encode_part(own, &spans, form, roundings, out)?
            }
            VectorForm::Whole(encoding) => payload::encode(own, encoding, roundings.piece(0), out)?,
            VectorForm::Pieces(pieces) => payload::encode_pieces(own, pieces, roundings, out)?,
        };
        view.sequence = sequence;
        self.stats.pushed.bits += size.bits;
        self.stats.pushed.paper += size.paper;
        self.stats.coding += began.elapsed();
        Ok(Exchange { frames: vec![(frame.finish(), None)] })
    }

    fn check_spans(&self, spans: &[Range<usize>]) -> Result<(), ModelError> {
        let mut end = 0;
        for span in spans {
            if span.start < end || span.is_empty() || span.end > self.coordinates {
                let what = format!(
                    "spans has {span:?}: give them in order, apart from each other and within the model"
                );
                return Err(ModelError::Config(what));
            }
            end = span.end;
        }
        Ok(())
    }

    /// The answer to a push, which is the first frame, if the shard had one: a pull is never alone here.
    pub(super) fn take_pushed(
        &mut self,
        shard: usize,
        asked: &Exchange,
        result: &mut Pushed,
    ) -> Result<(), ModelError> {
        if asked.frames.first().is_none_or(|(request, _)| request[4] != kind::PUSH) {
            return Ok(());
        }
        let mut body = self.answer(shard, asked, 0, kind::PUSHED)?;
        let (code, _, delay) = (body.u8(), body.stamp(), body.u64());
        let (Some(code), Some(delay)) = (code, delay) else { return Err(self.malformed_answer(shard)) };
        match code {
            pushed::TAKEN => {
                result.accepted_shards += 1;
                result.delay = result.delay.max(delay);
                self.stats.pushes += 1;
                self.stats.delays += delay;
                self.stats.longest_delay = self.stats.longest_delay.max(delay);
            }
            pushed::REPEATED => {
                result.accepted_shards += 1;
                self.stats.pushes += 1;
            }
            code => {
                let reason = Reason::from_code(code).ok_or_else(|| self.malformed_answer(shard))?;
                if matches!(reason, Reason::NotFinite | Reason::Range) {
                    let (server, reason) = (self.server_of(shard), reason.message().to_owned());
                    return Err(ModelError::Refused { server, reason });
                }
                result.refused.push((shard, reason));
                self.stats.refused += 1;
            }
        }
        Ok(())
    }

    fn check_bits(&self, bits: Option<&[u8]>) -> Result<(), ModelError> {
        let Some(bits) = bits else { return Ok(()) };
        let tensors = self.parts[0].tensors.len();
        if bits.len() != tensors {
            let count = bits.len();
            return Err(ModelError::Config(format!(
                "bits are given for {count} tensors, the model has {tensors}"
            )));
        }
        match bits.iter().find(|bits| !matches!(**bits, 0 | 2..=16 | EXACT)) {
            Some(bits) => {
                Err(ModelError::Config(format!("bits of a tensor are {bits}: give 2 to 16, or 32")))
            }
            None => Ok(()),
        }
    }
}
