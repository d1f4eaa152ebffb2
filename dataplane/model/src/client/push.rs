//! What a push sends, and what becomes of it.

use std::ops::Range;
use std::time::Instant;

use thc_codec::signs::mix;

use super::{Client, DOMAIN, Exchange, Push, Pushed, ShardState};
use crate::counters::Reason;
use crate::error::ModelError;
use crate::payload::{self, Encoding, Form, Piece, Roundings};
use crate::tensors::{Block, EXACT, clip, intersection};
use crate::wire::{Frame, kind, pushed};

/// The form of each block of the coordinates in `spans`; `None`: one for all.
fn pieces(blocks: &[Block], spans: &[Range<usize>], how: Push) -> Option<Vec<Piece>> {
    if blocks.is_empty() || (how.encoding == Encoding::Full && how.tensors.is_none()) {
        return None;
    }
    let mut pieces: Vec<Piece> = Vec::new();
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
                _ => pieces.push(Piece { length, encoding: Some(encoding) }),
            }
        }
    }
    Some(pieces)
}

impl Client {
    pub(super) fn push_frames(&mut self, gradient: &[f32], how: Push) -> Result<Vec<Exchange>, ModelError> {
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
        let mut exchanges = Vec::with_capacity(self.views.len());
        for (shard, view) in self.views.iter_mut().enumerate() {
            let mut asked = Exchange::default();
            let pulled = if how.behind { view.before } else { view.stamp };
            if let (Some(ShardState::Running(_)), Some((incarnation, stamp))) = (view.found, pulled) {
                let sequence = view.sequence + 1;
                let seed = mix(self.config.seed ^ DOMAIN).wrapping_add(u64::from(self.config.worker));
                let roundings = Roundings { seed, round: sequence, shard: shard as u32 };
                let head = Frame::new(kind::PUSH).u64(sequence).u64(incarnation);
                let mut frame = head.stamp(stamp).f32(how.scale);
                let (own, out) = (&gradient[view.range.clone()], frame.tail());
                let spans = match how.spans {
                    Some(spans) => intersection(&clip(spans, &view.range), &view.moving),
                    None => view.moving.clone(),
                };
                let pieces = pieces(&view.blocks, &spans, how);
                let form = pieces.as_deref().map_or(Form::Whole(how.encoding), Form::Pieces);
                let whole = 0..own.len();
                let size = match form {
                    _ if spans != std::slice::from_ref(&whole) => {
                        payload::encode_part(own, &spans, form, roundings, out)?
                    }
                    Form::Whole(encoding) => payload::encode(own, encoding, roundings.piece(0), out)?,
                    Form::Pieces(pieces) => payload::encode_pieces(own, pieces, roundings, out)?,
                };
                view.sequence = sequence;
                self.stats.pushed.bits += size.bits;
                self.stats.pushed.paper += size.paper;
                asked.frames.push((frame.finish(), None));
            }
            exchanges.push(asked);
        }
        self.stats.coding += began.elapsed();
        Ok(exchanges)
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

    pub(super) fn take_pushed(&mut self, answers: &[Exchange]) -> Result<Pushed, ModelError> {
        let mut result = Pushed::default();
        for (shard, asked) in answers.iter().enumerate() {
            // The first frame is the push, if there was one: a pull is never alone here.
            if asked.frames.first().is_none_or(|(request, _)| request[4] != kind::PUSH) {
                continue;
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
        }
        Ok(result)
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
