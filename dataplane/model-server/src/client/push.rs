//! What a push sends, and what becomes of it.

use std::time::Instant;

use thc_codec::rounding::Rounding;
use thc_codec::signs::mix;
use thc_codec::{CodecError, norm};

use super::link::Exchange;
use super::{Client, DOMAIN, Push, Pushed, ShardState};
use crate::counters::Reason;
use crate::error::ModelError;
use crate::payload::{self, Encoding, Roundings, VectorPiece};
use crate::tensors::{EXACT, TensorBlock};
use crate::wire::{Frame, kind, pushed};

/// The form of each block of a shard; `None`: one for all.
fn pieces(blocks: &[TensorBlock], encoding: Encoding) -> Option<Vec<VectorPiece>> {
    let piece = |block: &TensorBlock| VectorPiece {
        length: block.range.len(),
        // What is pulled as floats is pushed as floats.
        encoding: if block.bits == EXACT { Encoding::Full } else { encoding },
    };
    (!blocks.is_empty() && encoding != Encoding::Full).then(|| blocks.iter().map(piece).collect())
}

impl Client {
    /// What makes a push impossible as a whole, so that no shard takes a part of it.
    pub(super) fn check_push(&mut self, gradient: &[f32], how: Push) -> Result<(), ModelError> {
        let began = Instant::now();
        if !(how.scale.is_finite() && how.scale >= 0.0) {
            let scale = how.scale;
            return Err(ModelError::Config(format!("scale is {scale}: give a finite number from 0")));
        }
        if self.views.iter().any(|view| view.found == Some(ShardState::Empty)) {
            return Err(ModelError::Empty);
        }
        payload::encode(&[1.0], how.encoding, Rounding::new(0, 0, 0), &mut Vec::new())?;
        let max = f64::from(norm::max_abs(gradient));
        if !max.is_finite() {
            let what = "the largest magnitude of a gradient";
            return Err(CodecError::Parameter { what, value: max, allowed: "finite numbers" }.into());
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
        let (Some(ShardState::Running(_)), Some((incarnation, stamp))) = (view.found, view.stamp) else {
            return Ok(Exchange::default());
        };
        let sequence = view.sequence + 1;
        let seed = mix(self.config.seed ^ DOMAIN).wrapping_add(u64::from(self.config.worker));
        let roundings = Roundings { seed, round: sequence, shard: shard as u32 };
        let head = Frame::new(kind::PUSH).u64(sequence).u64(incarnation);
        let mut frame = head.stamp(stamp).f32(how.scale);
        let (own, out) = (&gradient[view.range.clone()], frame.tail());
        let size = match pieces(&view.blocks, how.encoding) {
            None => payload::encode(own, how.encoding, roundings.piece(0), out)?,
            Some(pieces) => payload::encode_pieces(own, &pieces, roundings, out)?,
        };
        view.sequence = sequence;
        self.stats.pushed.bits += size.bits;
        self.stats.pushed.paper += size.paper;
        self.stats.coding += began.elapsed();
        Ok(Exchange { frames: vec![(frame.finish(), None)] })
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
}
