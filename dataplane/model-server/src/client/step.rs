//! Pulls and pushes.

use thc_codec::rounding::Rounding;
use thc_codec::signs::mix;
use thc_codec::{CodecError, norm};

use super::link::Exchange;
use super::{Client, Pull, Pulled, Push, Pushed, ShardState, ShardView};
use crate::counters::Reason;
use crate::error::ModelError;
use crate::payload::{self, Encoding, Roundings, VectorSize};
use crate::shard::{PullAnswer, PushHead, Stamp};
use crate::wire::{Answer, Frame, Request, split};

/// Distinguishes the roundings of pushes from those of pulls.
const DOMAIN: u64 = 0x7075_7368_6573_2121;

impl Client {
    /// Brings the model into `x`, in the server's precision. Shards that do not run leave what was pulled of them last, and
    /// what `x` holds if nothing was.
    ///
    /// # Errors
    /// [`ModelError::Config`]; [`ModelError::Unreachable`] if the server does not answer in time;
    /// [`ModelError::Refused`] if it does not want to.
    pub fn pull(&mut self, x: &mut [f32], how: Pull) -> Result<Pulled, ModelError> {
        self.step(None, Some((x, how))).map(|(_, pulled)| pulled)
    }

    /// Sends a gradient, computed at what was pulled last (in epochs: the difference from that at the snapshot).
    /// Shards that waited at that pull get nothing.
    ///
    /// # Errors
    /// As [`Self::pull`]; [`ModelError::Empty`] if that pull found a shard without a value, as after the server has lost its
    /// part; coordinates that are not finite; [`ModelError::Refused`] if the model diverges.
    pub fn push(&mut self, gradient: &[f32], how: Push) -> Result<Pushed, ModelError> {
        self.step(Some((gradient, how)), None).map(|(pushed, _)| pushed)
    }

    /// [`Self::push`] and then [`Self::pull`], in one round trip.
    ///
    /// # Errors
    /// The errors of both.
    pub fn push_pull(
        &mut self,
        gradient: &[f32],
        push: Push,
        x: &mut [f32],
        pull: Pull,
    ) -> Result<(Pushed, Pulled), ModelError> {
        self.step(Some((gradient, push)), Some((x, pull)))
    }

    fn step(
        &mut self,
        push: Option<(&[f32], Push)>,
        pull: Option<(&mut [f32], Pull)>,
    ) -> Result<(Pushed, Pulled), ModelError> {
        if let Some((gradient, how)) = push {
            self.check("the gradient", gradient.len())?;
            self.check_push(gradient, how)?;
        }
        let (mut x, pull) = pull.unzip();
        if let Some(x) = &x {
            self.check("the vector to pull into", x.len())?;
        }
        let mut pushed = Pushed::default();
        let mut pulled = Pulled { shards: vec![ShardState::Empty; self.views.len()] };
        self.exchange(
            |client, shard| {
                let mut exchange = Exchange::default();
                if let Some((gradient, how)) = push
                    && let Some(frame) = client.push_frame(shard, gradient, how)?
                {
                    exchange.add(frame);
                }
                if let Some(how) = pull {
                    exchange.add(client.pull_frame(shard, how));
                }
                Ok(exchange)
            },
            |client, shard, exchange| {
                let mut answers = exchange.answers();
                if exchange.len() > usize::from(pull.is_some()) {
                    client.take_pushed(shard, answers.next().unwrap_or(&[]), &mut pushed)?;
                }
                if let Some(x) = &mut x {
                    pulled.shards[shard] = client.take_pulled(shard, answers.next().unwrap_or(&[]))?;
                    let ShardView { range, stamp, .. } = &client.views[shard];
                    if stamp.is_some() {
                        x[range.clone()].copy_from_slice(&client.x[range.clone()]);
                    }
                }
                Ok(())
            },
        )?;
        // Shards answer in any order.
        pushed.refused.sort_unstable_by_key(|(shard, _)| *shard);
        Ok((pushed, pulled))
    }

    /// Refuses a push that is impossible as a whole, so that no shard takes a part of it.
    fn check_push(&self, gradient: &[f32], how: Push) -> Result<(), ModelError> {
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
        Ok(())
    }

    /// The push of a shard; nothing for one that does not run.
    fn push_frame(&mut self, shard: usize, gradient: &[f32], how: Push) -> Result<Option<Frame>, ModelError> {
        let view = &mut self.views[shard];
        let (Some(ShardState::Running(_)), Some((incarnation, stamp))) = (view.found, view.stamp) else {
            return Ok(None);
        };
        let sequence = view.sequence + 1;
        let seed = mix(self.config.seed ^ DOMAIN).wrapping_add(u64::from(self.config.worker));
        let roundings = Roundings { seed, round: sequence, shard: shard as u32 };
        let head = PushHead { sequence, stamp, scale: how.scale };
        let mut frame = Frame::new(&Request::Push { incarnation, head });
        let (own, out) = (&gradient[view.range.clone()], frame.tail());
        self.stats.pushed += if view.blocks.is_empty() || how.encoding == Encoding::Full {
            payload::encode(own, how.encoding, roundings.piece(0), out)?
        } else {
            payload::encode_blocks(own, &view.blocks, |_| how.encoding, roundings, out)?
        };
        view.sequence = sequence;
        Ok(Some(frame))
    }

    fn take_pushed(&mut self, shard: usize, frame: &[u8], result: &mut Pushed) -> Result<(), ModelError> {
        use Reason::{Empty, Epoch, Future, Incarnation, Late};
        match split(frame) {
            Some((Answer::Pushed { delay }, [])) => {
                let delay = delay.unwrap_or(0);
                result.accepted_shards += 1;
                result.delay = result.delay.max(delay);
                self.stats.pushes += 1;
                self.stats.delays += delay;
                self.stats.longest_delay = self.stats.longest_delay.max(delay);
            }
            // The next pull mends these.
            Some((
                Answer::Refused { reason: reason @ (Empty | Epoch | Future | Incarnation | Late), .. },
                _,
            )) => {
                result.refused.push((shard, reason));
                self.stats.refused += 1;
            }
            _ => {
                self.peer.accept(frame)?;
                return Err(self.peer.malformed());
            }
        }
        Ok(())
    }

    fn pull_frame(&self, shard: usize, Pull { patient }: Pull) -> Frame {
        let ShardView { stamp, snapshot, .. } = self.views[shard];
        Frame::new(&Request::Pull { patient, held: stamp, snapshot })
    }

    fn take_pulled(&mut self, shard: usize, frame: &[u8]) -> Result<ShardState, ModelError> {
        let (Answer::Pulled(answer), vector) = self.peer.accept(frame)? else {
            return Err(self.peer.malformed());
        };
        let range = self.views[shard].range.clone();
        let found = match answer {
            PullAnswer::Empty => ShardState::Empty,
            PullAnswer::Waiting { epoch } => ShardState::Waiting(epoch),
            PullAnswer::Running(stamp) => {
                self.stats.pulled += payload::size(vector, range.len());
                payload::decode(vector, &mut self.x[range]).map_err(|_| self.peer.malformed())?;
                ShardState::Running(stamp)
            }
            PullAnswer::Unchanged(stamp) => self.take_flag(stamp),
            PullAnswer::Snapshot(stamp) if self.views[shard].snapshot == Some(stamp.epoch) => {
                self.x[range.clone()].copy_from_slice(&self.snapshot[range]);
                self.take_flag(stamp)
            }
            PullAnswer::Snapshot(_) => return Err(self.peer.malformed()),
        };
        let incarnation = self.link.as_ref().map(|link| link.incarnation);
        let view = &mut self.views[shard];
        if let ShardState::Running(stamp) = found {
            self.stats.pulls += 1;
            view.stamp = incarnation.map(|incarnation| (incarnation, stamp));
            view.seen = incarnation.map(|incarnation| (incarnation, stamp.version));
        }
        view.found = Some(found);
        Ok(found)
    }

    /// Counts an answer without a vector: one bit.
    fn take_flag(&mut self, stamp: Stamp) -> ShardState {
        self.stats.flags += 1;
        self.stats.pulled += VectorSize { bits: 1, paper: 1 };
        ShardState::Running(stamp)
    }
}
