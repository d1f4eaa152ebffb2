//! A worker's client, which pulls, pushes, reads snapshots, and reconnects after a server's death.

mod exchange;
pub(crate) mod link;
mod requests;
mod step;

pub use requests::{ClientConfig, ClientStats, Pull, Pulled, Push, Pushed, ShardState};

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::error::ModelError;
use crate::payload::{self, VectorSize};
use crate::proof;
use crate::shard::Stamp;
use crate::spec::Spec;
use crate::tensors::TensorBlock;
use crate::wire::{Answer, Frame, Request};
use link::{Exchange, Link, Peer, Stream};

/// Pauses between attempts to reach the server.
const PAUSE: Duration = Duration::from_millis(50);

/// A worker's view of a shard.
#[derive(Debug)]
struct ShardView {
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

/// A worker's connection to the server of a model.
pub struct Client {
    runtime: Runtime,
    config: ClientConfig,
    name: String,
    spec: Spec,
    peer: Arc<Peer>,
    link: Option<Link>,
    /// One for each shard.
    streams: Vec<Option<Stream>>,
    views: Vec<ShardView>,
    /// The last values pulled.
    x: Vec<f32>,
    snapshot: Vec<f32>,
    stats: ClientStats,
}

impl Client {
    /// Connects to the server and opens the model, which the first worker creates.
    ///
    /// # Errors
    /// [`ModelError::Config`]; [`ModelError::Unreachable`] if the server does not answer in time;
    /// [`ModelError::Refused`] if the model is configured otherwise, or is too large.
    pub fn open(config: ClientConfig, model: &str, spec: Spec) -> Result<Self, ModelError> {
        proof::check(&config.secret).map_err(ModelError::Config)?;
        for (what, name) in [("job", config.job.as_str()), ("model", model)] {
            if !crate::wire::is_name(name) {
                let rule = "take 1 to 64 letters, digits, '.', '_' and '-'";
                return Err(ModelError::Config(format!("{what} {name:?}: {rule}")));
            }
        }
        if config.worker >= spec.workers {
            let (worker, workers) = (config.worker, spec.workers);
            return Err(ModelError::Config(format!("worker {worker} is not one of the model's {workers}")));
        }
        spec.validate()?;
        let view = |number| ShardView {
            range: spec.range(number),
            stamp: None,
            blocks: spec.blocks(number),
            seen: None,
            snapshot: None,
            found: None,
            sequence: 0,
        };
        let views: Vec<ShardView> = (0..spec.shards()).map(view).collect();
        let coordinates = spec.coordinates as usize;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("thc-model-client")
            .enable_all()
            .build()?;
        let mut client = Self {
            runtime,
            name: model.to_owned(),
            peer: Peer::new(&config),
            link: None,
            streams: views.iter().map(|_| None).collect(),
            views,
            x: vec![0.0; coordinates],
            snapshot: if spec.snapshots() { vec![0.0; coordinates] } else { Vec::new() },
            stats: ClientStats::default(),
            spec,
            config,
        };
        client.connect(client.deadline())?;
        client.stats.reconnections = 0;
        Ok(client)
    }

    /// Length of the model.
    #[must_use]
    pub fn coordinates(&self) -> usize {
        self.x.len()
    }

    /// Totals since [`Self::open`].
    #[must_use]
    pub fn stats(&self) -> &ClientStats {
        &self.stats
    }

    /// The server's counters of this job, as JSON.
    ///
    /// # Errors
    /// As [`Self::pull`].
    pub fn server_stats(&mut self) -> Result<serde_json::Value, ModelError> {
        self.connect(self.deadline())?;
        let link = self.link.as_mut().ok_or_else(|| self.peer.lost("it has gone"))?;
        self.runtime.block_on(link.stats())
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.timeout
    }

    fn check(&self, what: &'static str, actual: usize) -> Result<(), ModelError> {
        let expected = self.coordinates();
        if actual == expected {
            return Ok(());
        }
        Err(ModelError::Config(format!("{what} has {actual} coordinates, the model has {expected}")))
    }

    /// Gives a value to every shard that has none, and leaves the others unchanged. Returns whether there was such a shard.
    ///
    /// # Errors
    /// As [`Self::pull`]; coordinates that are not finite.
    pub fn initialise(&mut self, x: &[f32]) -> Result<bool, ModelError> {
        let taken = self.give(&Request::Initialise, x)?;
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
        self.give(&Request::Begin { epoch }, gradient)
    }

    fn give(&mut self, request: &Request<'_>, vector: &[f32]) -> Result<bool, ModelError> {
        self.check("the vector given", vector.len())?;
        let mut any = false;
        self.exchange(
            |client, shard| {
                let mut frame = Frame::new(request);
                payload::put_floats(&vector[client.views[shard].range.clone()], frame.tail());
                Ok(Exchange::of(frame))
            },
            |client, _, exchange| match client.peer.accept(exchange.answer())? {
                (Answer::Given { taken }, []) => {
                    any |= taken;
                    Ok(())
                }
                _ => Err(client.peer.malformed()),
            },
        )?;
        self.count_whole();
        Ok(any)
    }

    /// Counts a whole vector of floats.
    fn count_whole(&mut self) {
        let bits = 32 * self.coordinates() as u64;
        self.stats.whole += VectorSize { bits, paper: bits };
    }

    /// Reads the numbers of the model into `x` as the server has them, not rounded, and returns which version each shard's
    /// are. Nothing changes for later pulls and pushes.
    ///
    /// # Errors
    /// As [`Self::pull`]; [`ModelError::Empty`].
    pub fn exact(&mut self, x: &mut [f32]) -> Result<Vec<Stamp>, ModelError> {
        self.numbers(false, x)
    }

    /// Reads the snapshot into `x`, as floats. Returns its epoch, or `None` if the shards are at different ones: then read it
    /// again.
    ///
    /// # Errors
    /// As [`Self::pull`]; [`ModelError::Empty`].
    pub fn snapshot(&mut self, x: &mut [f32]) -> Result<Option<u64>, ModelError> {
        let stamps = self.numbers(true, x)?;
        for (view, stamp) in self.views.iter_mut().zip(&stamps) {
            view.snapshot = Some(stamp.epoch);
        }
        if !self.snapshot.is_empty() {
            self.snapshot.copy_from_slice(x);
        }
        let first = stamps.first().map(|stamp| stamp.epoch);
        Ok(first.filter(|first| stamps.iter().all(|stamp| stamp.epoch == *first)))
    }

    fn numbers(&mut self, snapshot: bool, x: &mut [f32]) -> Result<Vec<Stamp>, ModelError> {
        self.check("the vector to read into", x.len())?;
        let mut stamps = vec![Stamp::default(); self.views.len()];
        self.exchange(
            |_, _| Ok(Exchange::of(Frame::new(&Request::Numbers { snapshot }))),
            |client, shard, exchange| {
                let (Answer::Numbers { stamp }, floats) = client.peer.accept(exchange.answer())? else {
                    return Err(client.peer.malformed());
                };
                stamps[shard] = stamp;
                let own = &mut x[client.views[shard].range.clone()];
                payload::take_floats(floats, own).map_err(|_| client.peer.malformed())
            },
        )?;
        self.count_whole();
        Ok(stamps)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.streams.clear();
        if let Some(link) = self.link.take() {
            self.runtime.block_on(link.leave());
        }
    }
}
