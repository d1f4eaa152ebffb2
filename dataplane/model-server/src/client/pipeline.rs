//! Exchanges with all shards, of which one is encoded or decoded while others are under way.

use std::time::Instant;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Client;
use super::link::{Exchange, Failure, Stream};
use crate::error::ModelError;
use crate::payload;

/// A shard's stream and exchange, while a task has them.
struct Errand {
    shard: usize,
    stream: Stream,
    asked: Exchange,
    result: Result<(), Failure>,
}

/// What errands have left undone.
struct Undone {
    /// By shard, what was not answered.
    unanswered: Vec<Exchange>,
    /// The first server that was lost.
    lost: Option<(usize, Failure)>,
    /// The first error of an answer.
    error: Option<ModelError>,
}

impl Client {
    /// Sends each shard what `make` returns for it, and gives its answers to `take` as soon as they are here. What a lost
    /// server has not answered is sent again once it is back, as by [`Self::ask`].
    ///
    /// # Errors
    /// Those of [`Self::ask`]; the first of `make`, after which no further shard is asked; the first of `take`. The answers
    /// of shards that were asked are awaited, so that their streams can be used again.
    pub(super) fn ask_each(
        &mut self,
        mut make: impl FnMut(&mut Self, usize) -> Result<Exchange, ModelError>,
        mut take: impl FnMut(&mut Self, usize, &Exchange) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let began = Instant::now();
        // While one server is away, the others are asked for nothing either.
        let connected = match self.connect(began + self.config.timeout) {
            Err((server, failure)) if failure.is_final() => {
                let server = &self.config.servers[server];
                return Err(failure.into_error(server, &self.config.job));
            }
            connected => connected.is_ok(),
        };
        self.stats.waiting += began.elapsed();
        let unanswered = self.views.iter().map(|_| Exchange::default()).collect();
        let mut undone = Undone { unanswered, lost: None, error: None };
        let mut errands = JoinSet::new();
        for shard in 0..self.views.len() {
            let asked = match make(self, shard) {
                Ok(asked) => asked,
                Err(error) => {
                    undone.error = Some(error);
                    break;
                }
            };
            if connected && let Some(stream) = self.streams[shard].take() {
                let longest = 64 + payload::max_len(self.views[shard].range.len());
                errands.spawn_on(run(shard, stream, asked, longest), self.runtime.handle());
            } else {
                undone.unanswered[shard] = asked;
            }
            while let Some(Ok(errand)) = errands.try_join_next() {
                self.end_errand(errand, &mut undone, &mut take);
            }
        }
        self.await_errands(errands, began, &mut undone, &mut take)?;
        let Undone { unanswered, lost, error } = undone;
        if let Some((server, failure)) = lost {
            self.drop_link(server);
            if failure.is_final() && error.is_none() {
                let server = &self.config.servers[server];
                return Err(failure.into_error(server, &self.config.job));
            }
        }
        if let Some(error) = error {
            return Err(error);
        }
        if unanswered.iter().all(|asked| asked.frames.is_empty()) {
            return Ok(());
        }
        let answers = self.ask_since(began, unanswered)?;
        let mut answered = answers.iter().enumerate().filter(|(_, asked)| !asked.frames.is_empty());
        answered.try_for_each(|(shard, asked)| take(self, shard, asked))
    }

    /// Until all errands have ended.
    fn await_errands(
        &mut self,
        mut errands: JoinSet<Errand>,
        began: Instant,
        undone: &mut Undone,
        take: &mut impl FnMut(&mut Self, usize, &Exchange) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let deadline = began + self.config.timeout;
        loop {
            let waiting = Instant::now();
            let left = deadline.saturating_duration_since(waiting);
            let ended = self.runtime.block_on(async { timeout(left, errands.join_next()).await });
            self.stats.waiting += waiting.elapsed();
            match ended {
                Ok(Some(Ok(errand))) => self.end_errand(errand, undone, take),
                Ok(None) => return Ok(()),
                // The time is over: what is still under way ends with its task, and is in no known state.
                Ok(Some(Err(_))) | Err(_) => {
                    (0..self.links.len()).for_each(|server| self.drop_link(server));
                    let failure = Failure::Lost("no answer".to_owned());
                    return Err(failure.into_error(&self.config.servers[0], &self.config.job));
                }
            }
        }
    }

    fn end_errand(
        &mut self,
        errand: Errand,
        undone: &mut Undone,
        take: &mut impl FnMut(&mut Self, usize, &Exchange) -> Result<(), ModelError>,
    ) {
        let Errand { shard, stream, asked, result } = errand;
        self.streams[shard] = Some(stream);
        match result {
            Ok(()) => {
                let taken = take(self, shard, &asked);
                undone.error = undone.error.take().or(taken.err());
            }
            Err(failure) => {
                let server = self.views[shard].server;
                undone.lost.get_or_insert((server, failure));
                undone.unanswered[shard] = asked;
            }
        }
    }
}

async fn run(shard: usize, mut stream: Stream, mut asked: Exchange, longest: usize) -> Errand {
    let result = asked.run(&mut stream, longest).await;
    Errand { shard, stream, asked, result }
}
