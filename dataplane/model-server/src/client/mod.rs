//! A worker's client, which pulls, pushes, reads snapshots, and reconnects after a server's death.

pub(crate) mod link;
mod links;
mod pipeline;
mod push;
mod requests;

pub use requests::{ClientConfig, ClientStats, Pull, Pulled, Push, Pushed, ShardState};

use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use link::{Exchange, Link, Stream};
use tokio::runtime::Runtime;

use crate::error::ModelError;
use crate::payload;
use crate::proof;
use crate::shard::Stamp;
use crate::spec::Spec;
use crate::tensors::TensorBlock;
use crate::wire::{Frame, kind, pulled};

/// Pauses between attempts to reach a server.
const PAUSE: Duration = Duration::from_millis(50);
/// Distinguishes the roundings of pushes from those of pulls.
const DOMAIN: u64 = 0x7075_7368_6573_2121;

/// A worker's view of a shard.
#[derive(Debug)]
struct ShardView {
    server: usize,
    /// The shard's number on its server.
    number: u32,
    /// The shard's coordinates in the whole model.
    range: Range<usize>,
    /// The last pull, and the server's incarnation then.
    stamp: Option<(u64, Stamp)>,
    /// The blocks that have a scale of their own in pushes. Empty if the shard has one scale.
    blocks: Vec<TensorBlock>,
    /// The newest version this worker knows of, and in which of the server's incarnations.
    seen: Option<(u64, u64)>,
    /// Epoch of the snapshot that is held.
    snapshot: Option<u64>,
    /// The state that the last pull found.
    found: Option<ShardState>,
    /// The number of the last push.
    sequence: u64,
}

/// A worker's connections to the servers of a model.
pub struct Client {
    runtime: Runtime,
    config: ClientConfig,
    name: String,
    parts: Vec<Spec>,
    coordinates: usize,
    links: Vec<Option<Link>>,
    /// One for each shard.
    streams: Vec<Option<Stream>>,
    views: Vec<ShardView>,
    /// The last values pulled.
    x: Vec<f32>,
    snapshot: Vec<f32>,
    stats: ClientStats,
}

impl Client {
    /// Connects to the servers and opens the model, which the first worker creates.
    ///
    /// # Errors
    /// [`ModelError::Config`]; [`ModelError::Unreachable`] if a server does not answer in time;
    /// [`ModelError::Refused`] if the model is configured otherwise, or is too large.
    pub fn open(config: ClientConfig, model: &str, spec: Spec) -> Result<Self, ModelError> {
        proof::check(&config.secret).map_err(ModelError::Config)?;
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
        let mut views = Vec::new();
        let mut from = 0;
        for (server, part) in parts.iter().enumerate() {
            for number in 0..part.shards() {
                let range = part.range(number);
                views.push(ShardView {
                    server,
                    number: number as u32,
                    range: from + range.start..from + range.end,
                    stamp: None,
                    blocks: part.blocks(number),
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
            streams: views.iter().map(|_| None).collect(),
            views,
            parts,
            x: vec![0.0; coordinates],
            snapshot: if spec.snapshots() { vec![0.0; coordinates] } else { Vec::new() },
            stats: ClientStats::default(),
            config,
        };
        client.ask((0..client.views.len()).map(|_| Exchange::default()).collect())?;
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
    fn snapshot_epoch(&self) -> Option<u64> {
        let first = self.views.first()?.snapshot?;
        self.views.iter().all(|view| view.snapshot == Some(first)).then_some(first)
    }

    /// A server's counters as JSON.
    ///
    /// # Errors
    /// As [`Self::pull`].
    pub fn server_stats(&mut self, server: usize) -> Result<serde_json::Value, ModelError> {
        self.ask((0..self.views.len()).map(|_| Exchange::default()).collect())?;
        let link = self.links.get_mut(server).and_then(Option::as_mut);
        let link = link.ok_or_else(|| ModelError::Config(format!("there is no server {server}")))?;
        let request = Frame::new(kind::STATS).finish();
        let answer = self.runtime.block_on(link.control.request(&request, 1 << 24));
        let name = &self.config.servers[server];
        let refused = |reason: String| ModelError::Refused { server: name.clone(), reason };
        let answer = answer.map_err(|failure| failure.into_error(name, &self.config.job))?;
        serde_json::from_slice(&answer[1..]).map_err(|error| refused(error.to_string()))
    }

    fn check(&self, what: &'static str, actual: usize) -> Result<(), ModelError> {
        let expected = self.coordinates;
        if actual == expected {
            return Ok(());
        }
        Err(ModelError::Config(format!("{what} has {actual} coordinates, the model has {expected}")))
    }

    /// Gives a value to every shard that has none. Returns whether there was such a shard. A server that has lost its part of
    /// the model gets it again by this call, while all other parts stay unchanged.
    ///
    /// # Errors
    /// As [`Self::pull`]; coordinates that are not finite.
    pub fn initialise(&mut self, x: &[f32]) -> Result<bool, ModelError> {
        let taken = self.give(kind::INIT, 0, x)?;
        for view in self.views.iter_mut().filter(|view| view.found == Some(ShardState::Empty)) {
            view.found = None;
        }
        Ok(taken)
    }

    /// Gives the full-batch gradient at the snapshot of an epoch, unless the epoch has one already. Returns whether it was
    /// missing.
    ///
    /// # Errors
    /// As [`Self::pull`]; coordinates that are not finite.
    pub fn begin(&mut self, epoch: u64, gradient: &[f32]) -> Result<bool, ModelError> {
        self.give(kind::BEGIN, epoch, gradient)
    }

    fn give(&mut self, kind: u8, epoch: u64, vector: &[f32]) -> Result<bool, ModelError> {
        self.check("the vector given", vector.len())?;
        let asked = self.views.iter().map(|view| {
            let mut frame = Frame::new(kind).u64(epoch);
            payload::put_floats(&vector[view.range.clone()], frame.tail());
            Exchange { frames: vec![(frame.finish(), None)] }
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
    /// [`ModelError::Config`]; [`ModelError::Unreachable`] if a server does not answer in time;
    /// [`ModelError::Refused`] if it does not want to.
    pub fn pull(&mut self, x: &mut [f32], how: Pull) -> Result<Pulled, ModelError> {
        self.check("the vector to pull into", x.len())?;
        let mut pulled = self.nothing_pulled();
        self.ask_each(
            |client, shard| Ok(Exchange { frames: vec![(client.pull_frame(shard, how), None)] }),
            |client, shard, asked| {
                pulled.shards[shard] = client.take_pulled(shard, asked)?;
                client.put(shard, x);
                Ok(())
            },
        )?;
        Ok(pulled)
    }

    fn nothing_pulled(&self) -> Pulled {
        Pulled { shards: vec![ShardState::Empty; self.views.len()] }
    }

    /// Sends a gradient, computed at what was pulled last (in epochs: the difference from that at the snapshot).
    /// Shards that waited at that pull get nothing.
    ///
    /// # Errors
    /// As [`Self::pull`]; [`ModelError::Empty`] if that pull found a shard without a value, as after a server has lost its
    /// part; coordinates that are not finite; [`ModelError::Refused`] if the model diverges.
    pub fn push(&mut self, gradient: &[f32], how: Push) -> Result<Pushed, ModelError> {
        self.check("the gradient", gradient.len())?;
        self.check_push(gradient, how)?;
        let mut pushed = Pushed::default();
        self.ask_each(
            |client, shard| client.push_frame(shard, gradient, how),
            |client, shard, asked| client.take_pushed(shard, asked, &mut pushed),
        )?;
        Ok(pushed.in_order())
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
        self.check("the gradient", gradient.len())?;
        self.check("the vector to pull into", x.len())?;
        self.check_push(gradient, push)?;
        let (mut pushed, mut pulled) = (Pushed::default(), self.nothing_pulled());
        self.ask_each(
            |client, shard| {
                let mut asked = client.push_frame(shard, gradient, push)?;
                asked.frames.push((client.pull_frame(shard, pull), None));
                Ok(asked)
            },
            |client, shard, asked| {
                client.take_pushed(shard, asked, &mut pushed)?;
                pulled.shards[shard] = client.take_pulled(shard, asked)?;
                client.put(shard, x);
                Ok(())
            },
        )?;
        Ok((pushed.in_order(), pulled))
    }

    /// Brings the numbers of the model themselves into `x`, not rounded ones, and says of which version each shard's are.
    /// Nothing changes for later pulls and pushes.
    ///
    /// # Errors
    /// As [`Self::pull`]; [`ModelError::Empty`].
    pub fn exact(&mut self, x: &mut [f32]) -> Result<Vec<Stamp>, ModelError> {
        self.check("the vector to read into", x.len())?;
        let answers = self.ask_all(kind::EXACT)?;
        let bits = 32 * self.coordinates as u64;
        self.stats.whole.bits += bits;
        self.stats.whole.paper += bits;
        let mut stamps = Vec::with_capacity(answers.len());
        for (shard, exchange) in answers.iter().enumerate() {
            let mut body = self.answer(shard, exchange, 0, kind::NUMBERS)?;
            let stamp = body.stamp();
            let read = payload::take_floats(body.0, &mut x[self.views[shard].range.clone()]);
            let (Some(stamp), Ok(())) = (stamp, read) else { return Err(self.malformed_answer(shard)) };
            stamps.push(stamp);
        }
        Ok(stamps)
    }

    /// Sends every shard a request without a body.
    fn ask_all(&mut self, kind: u8) -> Result<Vec<Exchange>, ModelError> {
        let exchange = |_: &ShardView| Exchange { frames: vec![(Frame::new(kind).finish(), None)] };
        let asked = self.views.iter().map(exchange).collect();
        self.ask(asked)
    }

    /// What was pulled of a shard.
    fn put(&self, shard: usize, x: &mut [f32]) {
        let view = &self.views[shard];
        if view.stamp.is_some() {
            x[view.range.clone()].copy_from_slice(&self.x[view.range.clone()]);
        }
    }

    /// Brings the snapshot into `x`, as floats: its epoch, or `None` if shards are at different ones (then again).
    ///
    /// # Errors
    /// As [`Self::pull`]; [`ModelError::Empty`].
    pub fn snapshot(&mut self, x: &mut [f32]) -> Result<Option<u64>, ModelError> {
        self.check("the vector for the snapshot", x.len())?;
        let answers = self.ask_all(kind::SNAPSHOT)?;
        let bits = 32 * self.coordinates as u64;
        self.stats.whole.bits += bits;
        self.stats.whole.paper += bits;
        for (shard, asked) in answers.iter().enumerate() {
            let mut body = self.answer(shard, asked, 0, kind::SNAPPED)?;
            let epoch = body.u64();
            let range = self.views[shard].range.clone();
            let read = payload::take_floats(body.0, &mut x[range]);
            let (Some(epoch), Ok(())) = (epoch, read) else { return Err(self.malformed_answer(shard)) };
            self.views[shard].snapshot = Some(epoch);
        }
        if !self.snapshot.is_empty() {
            self.snapshot.copy_from_slice(x);
        }
        Ok(self.snapshot_epoch())
    }

    fn pull_frame(&self, shard: usize, how: Pull) -> Vec<u8> {
        let view = &self.views[shard];
        let (incarnation, stamp) = view.stamp.unwrap_or_default();
        Frame::new(kind::PULL)
            .u8(u8::from(how.patient))
            .u64(incarnation)
            .stamp(stamp)
            .u64(view.snapshot.map_or(0, |epoch| epoch + 1))
            .finish()
    }

    /// The answer to a pull, which is the last frame.
    fn take_pulled(&mut self, shard: usize, asked: &Exchange) -> Result<ShardState, ModelError> {
        let began = Instant::now();
        let mut body = self.answer(shard, asked, asked.frames.len() - 1, kind::PULLED)?;
        let (Some(code), Some(stamp)) = (body.u8(), body.stamp()) else {
            return Err(self.malformed_answer(shard));
        };
        let range = self.views[shard].range.clone();
        let found = match code {
            pulled::EMPTY => ShardState::Empty,
            pulled::WAITING => ShardState::Waiting(stamp.epoch),
            _ => {
                match code {
                    pulled::VECTOR => {
                        let len = range.len() as u64;
                        self.stats.pulled.bits += 8 * body.0.len() as u64;
                        self.stats.pulled.paper += match body.0 {
                            [payload::LATTICE, bits, ..] => 32 + u64::from(*bits) * len,
                            [payload::PIECES, ..] => 8 * body.0.len() as u64,
                            _ => 32 * len,
                        };
                        if payload::decode(body.0, &mut self.x[range]).is_err() {
                            return Err(self.malformed_answer(shard));
                        }
                    }
                    pulled::UNCHANGED => self.stats.flags += 1,
                    pulled::SNAPSHOT if self.views[shard].snapshot == Some(stamp.epoch) => {
                        self.stats.flags += 1;
                        self.x[range.clone()].copy_from_slice(&self.snapshot[range]);
                    }
                    _ => return Err(self.malformed_answer(shard)),
                }
                if code != pulled::VECTOR {
                    self.stats.pulled.bits += 1;
                    self.stats.pulled.paper += 1;
                }
                self.stats.pulls += 1;
                let incarnation = self.links[self.views[shard].server].as_ref().map(|l| l.incarnation);
                let view = &mut self.views[shard];
                view.stamp = incarnation.map(|incarnation| (incarnation, stamp));
                view.seen = incarnation.map(|incarnation| (incarnation, stamp.version));
                ShardState::Running(stamp)
            }
        };
        self.views[shard].found = Some(found);
        self.stats.coding += began.elapsed();
        Ok(found)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.streams.clear();
        let links = std::mem::take(&mut self.links);
        self.runtime.block_on(async { join_all(links.into_iter().flatten().map(Link::leave)).await });
    }
}
