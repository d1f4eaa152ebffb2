//! Exchanges with all shards, of which one is encoded or decoded while others are under way.

use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::link::{Exchange, Link, within};
use super::{Client, PAUSE};
use crate::counters::Reason;
use crate::error::ModelError;

/// A shard within a call.
enum Turn {
    Unmade,
    /// Its server was lost before it answered.
    Unanswered(Exchange),
    Done,
}

/// Returns whether a further attempt would fail, too.
fn is_final(error: &ModelError) -> bool {
    !matches!(error, ModelError::Unreachable { .. })
}

impl Client {
    /// Sends each shard what `make` returns for it, and gives its answers to `take` as soon as they are here. A lost server is
    /// looked for until the time-out, and gets again what it has not answered.
    ///
    /// # Errors
    /// [`ModelError::Unreachable`]; the first error of `make`, after which no further shard is asked; the first of `take`. The
    /// answers of shards that were asked are awaited, so that their streams can be used again.
    pub(super) fn exchange(
        &mut self,
        mut make: impl FnMut(&mut Self, usize) -> Result<Exchange, ModelError>,
        mut take: impl FnMut(&mut Self, usize, &Exchange) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let deadline = Instant::now() + self.config.timeout;
        let mut turns: Vec<Turn> = self.views.iter().map(|_| Turn::Unmade).collect();
        let mut failed = None;
        loop {
            self.connect(deadline)?;
            let (mut tasks, mut lost) = (JoinSet::new(), Vec::new());
            let mut shards = 0..turns.len();
            loop {
                let next = shards.next().filter(|_| failed.is_none());
                if let Some(shard) = next {
                    let mut exchange = match std::mem::replace(&mut turns[shard], Turn::Done) {
                        Turn::Unmade => match make(self, shard) {
                            Ok(exchange) => exchange,
                            Err(error) => {
                                failed = Some(error);
                                continue;
                            }
                        },
                        Turn::Unanswered(exchange) => exchange,
                        Turn::Done => continue,
                    };
                    if exchange.is_empty() {
                        continue;
                    }
                    let Some(mut stream) = self.streams[shard].take() else {
                        turns[shard] = Turn::Unanswered(exchange);
                        lost.push(self.peer.lost("a shard's stream is gone"));
                        continue;
                    };
                    let run = async move {
                        let result = exchange.run(&mut stream).await;
                        (shard, stream, exchange, result)
                    };
                    tasks.spawn_on(run, self.runtime.handle());
                }
                // While there are shards to ask, only what is here already is taken.
                let ended = if next.is_some() {
                    tasks.try_join_next().map(|joined| joined.map_err(drop))
                } else {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let ended = self.runtime.block_on(async { timeout(left, tasks.join_next()).await });
                    let ended = ended.map(|ended| ended.map(|joined| joined.map_err(drop)));
                    ended.unwrap_or(Some(Err(())))
                };
                match ended {
                    Some(Ok((shard, stream, exchange, Ok(())))) => {
                        self.streams[shard] = Some(stream);
                        failed = failed.or(take(self, shard, &exchange).err());
                    }
                    Some(Ok((shard, _, exchange, Err(error)))) => {
                        turns[shard] = Turn::Unanswered(exchange);
                        lost.push(error);
                    }
                    Some(Err(())) => {
                        // The time is over. What is still under way ends with its task, and is in no known state.
                        self.drop_link();
                        return Err(self.peer.lost("no answer"));
                    }
                    None if next.is_none() => break,
                    None => {}
                }
            }
            if !lost.is_empty() {
                self.drop_link();
            }
            if let Some(error) = failed {
                return Err(error);
            }
            let Some(error) = lost.into_iter().max_by_key(is_final) else { return Ok(()) };
            self.pause(error, deadline)?;
        }
    }

    /// Pauses before another attempt and returns the error, unless another would fail, too, or there is no time for it.
    fn pause(&self, error: ModelError, deadline: Instant) -> Result<ModelError, ModelError> {
        if is_final(&error) || Instant::now() + PAUSE >= deadline {
            return Err(error);
        }
        tracing::debug!("{error}; again");
        std::thread::sleep(PAUSE);
        Ok(error)
    }

    fn drop_link(&mut self) {
        self.link = None;
        self.streams.iter_mut().for_each(|stream| *stream = None);
    }

    /// Makes the connection if there is none, and tries again until the time-out.
    pub(super) fn connect(&mut self, deadline: Instant) -> Result<(), ModelError> {
        let mut before = None;
        while let Err(error) = self.connect_once(deadline) {
            // An attempt that the time-out has ended says nothing of its reason; the one before does.
            let error = before.filter(|_| Instant::now() >= deadline).unwrap_or(error);
            before = Some(self.pause(error, deadline)?);
        }
        Ok(())
    }

    fn connect_once(&mut self, deadline: Instant) -> Result<(), ModelError> {
        let peer = Arc::clone(&self.peer);
        match &self.link {
            Some(link) if link.is_open() => return Ok(()),
            Some(link) if link.is_deleted() => return Err(peer.refused(Reason::Deleted.message())),
            _ => self.drop_link(),
        }
        let linking = async {
            let mut link = Link::connect(&self.config, &peer).await?;
            let streams = link.open(&self.name, &self.spec).await?;
            Ok((link, streams))
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let (link, streams) = self.runtime.block_on(within(left, &peer, linking))?;
        self.stats.reconnections += 1;
        let shards = self.views.iter_mut().zip(&mut self.streams);
        for ((view, place), (stream, stamp, sequence)) in shards.zip(streams) {
            view.sequence = view.sequence.max(sequence);
            if let Some((incarnation, version)) = view.seen
                && incarnation != link.incarnation
            {
                self.stats.forgotten += version.saturating_sub(stamp.version);
            }
            view.seen = Some((link.incarnation, stamp.version));
            *place = Some(stream);
        }
        self.link = Some(link);
        Ok(())
    }
}
