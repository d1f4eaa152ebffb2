//! What a worker holds: pull, push, snapshots, and the way back after a server's death.

mod link;
mod links;
mod requests;

use links::within;
pub use requests::{ClientConfig, ClientStats, Pull, Pulled, Push, Pushed, ShardState};

use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use link::{Link, Stream};
use thc_codec::rounding::Rounding;
use thc_codec::signs::mix;
use tokio::runtime::Runtime;

use crate::counters::Reason;
use crate::error::ModelError;
use crate::payload::{self};
use crate::shard::Stamp;
use crate::spec::Spec;
use crate::wire::{Frame, kind, pulled, pushed};

/// Pauses between attempts to reach a server.
const PAUSE: Duration = Duration::from_millis(50);
/// Keeps roundings of pushes apart from those of pulls.
const DOMAIN: u64 = 0x7075_7368_6573_2121;

/// A shard, as its worker sees it.
#[derive(Debug)]
struct Held {
    server: usize,
    /// Within its server.
    number: u32,
    /// Within the whole.
    range: Range<usize>,
    /// The last pull, and the server's incarnation then.
    stamp: Option<(u64, Stamp)>,
    /// The newest version this worker knows of, and in which of the server's incarnations.
    seen: Option<(u64, u64)>,
    /// Epoch of the snapshot that is held.
    snapshot: Option<u64>,
    /// What the last pull found.
    found: Option<ShardState>,
    /// Of the last push.
    sequence: u64,
}

/// See the module.
pub struct Client {
    runtime: Runtime,
    config: ClientConfig,
    name: String,
    parts: Vec<Spec>,
    coordinates: usize,
    links: Vec<Option<Link>>,
    /// One for each shard.
    streams: Vec<Option<Stream>>,
    held: Vec<Held>,
    /// The last values pulled.
    x: Vec<f32>,
    snapshot: Vec<f32>,
    stats: ClientStats,
}

/// What one shard is asked in a call, and what it answered.
#[derive(Default)]
struct Asked {
    frames: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Client {
    /// Connects to the servers and opens the model; the first worker to come makes it.
    ///
    /// # Errors
    /// [`ModelError::Spec`], [`ModelError::Config`]; [`ModelError::Unreachable`] if a server does not answer in time;
    /// [`ModelError::Secret`]; [`ModelError::Refused`] if the model is configured otherwise, or is too large.
    pub fn open(config: ClientConfig, model: &str, spec: Spec) -> Result<Self, ModelError> {
        if let Err(error) = config.secret.check() {
            return Err(ModelError::Config(error.to_string()));
        }
        for (what, name) in [("job", config.job.as_str()), ("model", model)] {
            if !crate::wire::is_name(name) {
                let rule = "take 1 to 64 letters, digits, '.', '_' and '-'";
                return Err(ModelError::Config(format!("{what} {name:?}: {rule}")));
            }
        }
        let servers = config.servers.len();
        if servers == 0 {
            return Err(ModelError::Config("give at least one server".to_owned()));
        }
        if config.worker >= spec.workers {
            let (worker, workers) = (config.worker, spec.workers);
            return Err(ModelError::Config(format!("worker {worker} is not one of the model's {workers}")));
        }
        let parts: Vec<Spec> = (0..servers)
            .map(|number| if servers == 1 { spec.clone() } else { spec.part_of(number, servers) })
            .collect();
        parts.iter().try_for_each(Spec::validate)?;
        let mut held = Vec::new();
        let mut from = 0;
        for (server, part) in parts.iter().enumerate() {
            for number in 0..part.shards() {
                let range = part.range(number);
                held.push(Held {
                    server,
                    number: number as u32,
                    range: from + range.start..from + range.end,
                    stamp: None,
                    seen: None,
                    snapshot: None,
                    found: None,
                    sequence: 0,
                });
            }
            from += part.coordinates as usize;
        }
        let coordinates = spec.coordinates as usize;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("thc-model-client")
            .enable_all()
            .build()?;
        let mut client = Self {
            runtime,
            name: model.to_owned(),
            coordinates,
            links: (0..servers).map(|_| None).collect(),
            streams: held.iter().map(|_| None).collect(),
            held,
            parts,
            x: vec![0.0; coordinates],
            snapshot: if spec.snapshots() { vec![0.0; coordinates] } else { Vec::new() },
            stats: ClientStats::default(),
            config,
        };
        client.ask((0..client.held.len()).map(|_| Asked::default()).collect())?;
        client.stats.reconnections = 0;
        Ok(client)
    }

    /// Length of the model.
    #[must_use]
    pub fn coordinates(&self) -> usize {
        self.coordinates
    }

    /// Totals since [`Self::open`].
    #[must_use]
    pub fn stats(&self) -> &ClientStats {
        &self.stats
    }

    /// The epoch of the snapshot that is held, if it is one for all shards.
    #[must_use]
    pub fn snapshot_epoch(&self) -> Option<u64> {
        let first = self.held.first()?.snapshot?;
        self.held.iter().all(|held| held.snapshot == Some(first)).then_some(first)
    }

    /// What a server counts, as JSON.
    ///
    /// # Errors
    /// As [`Self::pull`].
    pub fn server_stats(&mut self, server: usize) -> Result<serde_json::Value, ModelError> {
        self.ask((0..self.held.len()).map(|_| Asked::default()).collect())?;
        let link = self.links.get_mut(server).and_then(Option::as_mut);
        let link = link.ok_or_else(|| ModelError::Config(format!("there is no server {server}")))?;
        let request = Frame::new(kind::STATS).finish();
        let answer = self.runtime.block_on(link.control.request(&request, 1 << 24));
        let name = &self.config.servers[server];
        let refused = |reason: String| ModelError::Refused { server: name.clone(), reason };
        let answer = answer.map_err(|failure| failure.into_error(name, &self.config.job, Duration::ZERO))?;
        serde_json::from_slice(&answer[1..]).map_err(|error| refused(error.to_string()))
    }

    fn check(&self, what: &'static str, actual: usize) -> Result<(), ModelError> {
        let expected = self.coordinates;
        if actual == expected { Ok(()) } else { Err(ModelError::Length { what, expected, actual }) }
    }

    /// Gives its first value to every shard that has none: whether there was one. A server that has lost its part of the
    /// model gets it again by this, and the other parts stay what they are.
    ///
    /// # Errors
    /// As [`Self::pull`]; coordinates that are not finite.
    pub fn initialise(&mut self, x: &[f32]) -> Result<bool, ModelError> {
        let taken = self.give(kind::INIT, 0, x)?;
        for held in self.held.iter_mut().filter(|held| held.found == Some(ShardState::Empty)) {
            held.found = None;
        }
        Ok(taken)
    }

    /// Gives the full-batch gradient at the snapshot of an epoch. If it has one, nothing happens: whether it was
    /// missing.
    ///
    /// # Errors
    /// As [`Self::pull`]; coordinates that are not finite.
    pub fn begin(&mut self, epoch: u64, gradient: &[f32]) -> Result<bool, ModelError> {
        self.give(kind::BEGIN, epoch, gradient)
    }

    fn give(&mut self, kind: u8, epoch: u64, vector: &[f32]) -> Result<bool, ModelError> {
        self.check("the vector given", vector.len())?;
        let asked = self.held.iter().map(|held| {
            let mut frame = Frame::new(kind).u64(epoch);
            payload::put_floats(&vector[held.range.clone()], frame.tail());
            Asked { frames: vec![(frame.finish(), None)] }
        });
        let asked = asked.collect();
        let answers = self.ask(asked)?;
        let bits = 32 * self.coordinates as u64;
        self.stats.whole.bits += bits;
        self.stats.whole.paper += bits;
        let mut taken = false;
        for (shard, asked) in answers.iter().enumerate() {
            let mut body = self.answer(shard, asked, 0, kind::DONE)?;
            taken |= body.u8() == Some(1);
        }
        Ok(taken)
    }

    /// Brings the model into `x`, in the server's precision. Shards that do not run leave what was pulled of them last, and
    /// what `x` holds if nothing was.
    ///
    /// # Errors
    /// [`ModelError::Length`]; [`ModelError::Unreachable`] if a server does not answer in time;
    /// [`ModelError::Refused`] if it does not want to; [`ModelError::Secret`].
    pub fn pull(&mut self, x: &mut [f32], how: Pull) -> Result<Pulled, ModelError> {
        self.check("the vector to pull into", x.len())?;
        let asked =
            (0..self.held.len()).map(|shard| Asked { frames: vec![(self.pull_frame(shard, how), None)] });
        let asked = asked.collect();
        let answers = self.ask(asked)?;
        let pulled = self.take_pulled(&answers, 0)?;
        self.put(x);
        Ok(pulled)
    }

    /// Sends a gradient, computed at what was pulled last (in epochs: the difference from that at the snapshot).
    /// Shards that waited at that pull get nothing.
    ///
    /// # Errors
    /// As [`Self::pull`]; [`ModelError::Empty`] if that pull found a shard without a value, as after a server has lost its
    /// part; coordinates that are not finite; [`ModelError::Refused`] if the model diverges.
    pub fn push(&mut self, gradient: &[f32], how: Push) -> Result<Pushed, ModelError> {
        self.check("the gradient", gradient.len())?;
        let asked = self.push_frames(gradient, how)?;
        let answers = self.ask(asked)?;
        self.take_pushed(&answers)
    }

    /// [`Self::push`] and then [`Self::pull`], in one round trip.
    ///
    /// # Errors
    /// As those.
    pub fn push_pull(
        &mut self,
        gradient: &[f32],
        push: Push,
        x: &mut [f32],
        pull: Pull,
    ) -> Result<(Pushed, Pulled), ModelError> {
        self.check("the gradient", gradient.len())?;
        self.check("the vector to pull into", x.len())?;
        let mut asked = self.push_frames(gradient, push)?;
        for (shard, asked) in asked.iter_mut().enumerate() {
            asked.frames.push((self.pull_frame(shard, pull), None));
        }
        let answers = self.ask(asked)?;
        let pushed = self.take_pushed(&answers)?;
        let pulled = self.take_pulled(&answers, 1)?;
        self.put(x);
        Ok((pushed, pulled))
    }

    /// Everything that was pulled.
    fn put(&self, x: &mut [f32]) {
        for held in self.held.iter().filter(|held| held.stamp.is_some()) {
            x[held.range.clone()].copy_from_slice(&self.x[held.range.clone()]);
        }
    }

    /// Brings the snapshot into `x`, as floats: its epoch, or `None` if shards are at different ones (then again).
    ///
    /// # Errors
    /// As [`Self::pull`]; [`ModelError::Empty`].
    pub fn snapshot(&mut self, x: &mut [f32]) -> Result<Option<u64>, ModelError> {
        self.check("the vector for the snapshot", x.len())?;
        let request = Frame::new(kind::SNAPSHOT).finish();
        let asked = self.held.iter().map(|_| Asked { frames: vec![(request.clone(), None)] }).collect();
        let answers = self.ask(asked)?;
        let bits = 32 * self.coordinates as u64;
        self.stats.whole.bits += bits;
        self.stats.whole.paper += bits;
        for (shard, asked) in answers.iter().enumerate() {
            let mut body = self.answer(shard, asked, 0, kind::SNAPPED)?;
            let epoch = body.u64();
            let range = self.held[shard].range.clone();
            let taken = payload::take_floats(body.0, &mut x[range]);
            let (Some(epoch), Ok(())) = (epoch, taken) else { return Err(self.broken(shard)) };
            self.held[shard].snapshot = Some(epoch);
        }
        if !self.snapshot.is_empty() {
            self.snapshot.copy_from_slice(x);
        }
        Ok(self.snapshot_epoch())
    }

    fn pull_frame(&self, shard: usize, how: Pull) -> Vec<u8> {
        let held = &self.held[shard];
        let (incarnation, stamp) = held.stamp.unwrap_or_default();
        Frame::new(kind::PULL)
            .u8(u8::from(how.patient))
            .u64(incarnation)
            .stamp(stamp)
            .u64(held.snapshot.map_or(0, |epoch| epoch + 1))
            .finish()
    }

    fn push_frames(&mut self, gradient: &[f32], how: Push) -> Result<Vec<Asked>, ModelError> {
        let began = Instant::now();
        if !(how.scale.is_finite() && how.scale >= 0.0) {
            let scale = how.scale;
            return Err(ModelError::Config(format!("scale is {scale}: give a finite number from 0")));
        }
        self.check_spans(how.spans.unwrap_or(&[]))?;
        if self.held.iter().any(|held| held.found == Some(ShardState::Empty)) {
            return Err(ModelError::Empty);
        }
        let mut all = Vec::with_capacity(self.held.len());
        for (shard, held) in self.held.iter_mut().enumerate() {
            let mut asked = Asked::default();
            if let (Some(ShardState::Running(_)), Some((incarnation, stamp))) = (held.found, held.stamp) {
                let sequence = held.sequence + 1;
                let seed = mix(self.config.seed ^ DOMAIN).wrapping_add(u64::from(self.config.worker));
                let rounding = Rounding::new(seed, sequence, shard as u32);
                let head = Frame::new(kind::PUSH).u64(sequence).u64(incarnation);
                let mut frame = head.stamp(stamp).f32(how.scale);
                let (own, out) = (&gradient[held.range.clone()], frame.tail());
                let spans = how.spans.map(|spans| within(spans, &held.range));
                let all = 0..own.len();
                let size = match spans.filter(|spans| *spans != std::slice::from_ref(&all)) {
                    Some(spans) => payload::encode_part(own, &spans, how.encoding, rounding, out)?,
                    None => payload::encode(own, how.encoding, rounding, out)?,
                };
                held.sequence = sequence;
                self.stats.pushed.bits += size.bits;
                self.stats.pushed.paper += size.paper;
                asked.frames.push((frame.finish(), None));
            }
            all.push(asked);
        }
        self.stats.coding += began.elapsed();
        Ok(all)
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

    fn take_pushed(&mut self, answers: &[Asked]) -> Result<Pushed, ModelError> {
        let mut result = Pushed::default();
        for (shard, asked) in answers.iter().enumerate() {
            // The first frame is the push, if there was one: a pull is never alone here.
            if asked.frames.first().is_none_or(|(request, _)| request[4] != kind::PUSH) {
                continue;
            }
            let mut body = self.answer(shard, asked, 0, kind::PUSHED)?;
            let (code, _, delay) = (body.u8(), body.stamp(), body.u64());
            let (Some(code), Some(delay)) = (code, delay) else { return Err(self.broken(shard)) };
            match code {
                pushed::TAKEN => {
                    result.taken += 1;
                    result.delay = result.delay.max(delay);
                    self.stats.pushes += 1;
                    self.stats.delays += delay;
                    self.stats.longest_delay = self.stats.longest_delay.max(delay);
                }
                pushed::REPEATED => {
                    result.taken += 1;
                    self.stats.pushes += 1;
                }
                code => {
                    let reason = Reason::from_code(code).ok_or_else(|| self.broken(shard))?;
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

    /// Answers to pulls, which are the last frames.
    fn take_pulled(&mut self, answers: &[Asked], after: usize) -> Result<Pulled, ModelError> {
        let began = Instant::now();
        let mut result = Pulled { shards: Vec::with_capacity(answers.len()) };
        for (shard, asked) in answers.iter().enumerate() {
            let at = asked.frames.len() - 1;
            debug_assert!(at <= after);
            let mut body = self.answer(shard, asked, at, kind::PULLED)?;
            let (Some(code), Some(stamp)) = (body.u8(), body.stamp()) else { return Err(self.broken(shard)) };
            let range = self.held[shard].range.clone();
            let found = match code {
                pulled::EMPTY => ShardState::Empty,
                pulled::WAITING => ShardState::Waiting(stamp.epoch),
                _ => {
                    match code {
                        pulled::VECTOR => {
                            let len = range.len() as u64;
                            self.stats.pulled.bits += 8 * body.0.len() as u64;
                            self.stats.pulled.paper += match body.0 {
                                [1, bits, ..] => 32 + u64::from(*bits) * len,
                                _ => 32 * len,
                            };
                            if payload::decode(body.0, &mut self.x[range]).is_err() {
                                return Err(self.broken(shard));
                            }
                        }
                        pulled::UNCHANGED => self.stats.flags += 1,
                        pulled::SNAPSHOT if self.held[shard].snapshot == Some(stamp.epoch) => {
                            self.stats.flags += 1;
                            self.x[range.clone()].copy_from_slice(&self.snapshot[range]);
                        }
                        _ => return Err(self.broken(shard)),
                    }
                    if code != pulled::VECTOR {
                        self.stats.pulled.bits += 1;
                        self.stats.pulled.paper += 1;
                    }
                    self.stats.pulls += 1;
                    let incarnation = self.links[self.held[shard].server].as_ref().map(|l| l.incarnation);
                    self.held[shard].stamp = incarnation.map(|incarnation| (incarnation, stamp));
                    self.held[shard].seen = incarnation.map(|incarnation| (incarnation, stamp.version));
                    ShardState::Running(stamp)
                }
            };
            self.held[shard].found = Some(found);
            result.shards.push(found);
        }
        self.stats.coding += began.elapsed();
        Ok(result)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.streams.clear();
        let links = std::mem::take(&mut self.links);
        self.runtime.block_on(async { join_all(links.into_iter().flatten().map(Link::leave)).await });
    }
}
