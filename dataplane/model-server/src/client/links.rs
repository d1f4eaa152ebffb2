//! Connections to all servers.

use super::link::{Exchange, Failure, Link};
use super::{Client, PAUSE};
use crate::counters::Reason;
use crate::error::ModelError;
use crate::payload;
use crate::wire::{Body, kind};
use futures_util::future::join_all;
use std::time::Instant;

impl Client {
    pub(super) fn server_of(&self, shard: usize) -> String {
        self.config.servers[self.views[shard].server].clone()
    }

    pub(super) fn malformed_answer(&self, shard: usize) -> ModelError {
        let reason = "its answer is not one of this protocol version".to_owned();
        ModelError::Refused { server: self.server_of(shard), reason }
    }

    /// The body of answer number `number`, which must have this kind.
    pub(super) fn answer<'a>(
        &self,
        shard: usize,
        asked: &'a Exchange,
        number: usize,
        wanted: u8,
    ) -> Result<Body<'a>, ModelError> {
        let answer = asked.frames.get(number).and_then(|(_, answer)| answer.as_deref()).unwrap_or(&[]);
        match answer {
            [kind, rest @ ..] if *kind == wanted => Ok(Body(rest)),
            [kind::REFUSED, code, text @ ..] => Err(match Reason::from_code(*code) {
                Some(Reason::Empty) => ModelError::Empty,
                _ => ModelError::Refused {
                    server: self.server_of(shard),
                    reason: String::from_utf8_lossy(text).into_owned(),
                },
            }),
            _ => Err(self.malformed_answer(shard)),
        }
    }

    /// Sends every shard its frames until all are answered; a server that is lost is looked for until the time-out.
    pub(super) fn ask(&mut self, asked: Vec<Exchange>) -> Result<Vec<Exchange>, ModelError> {
        self.ask_since(Instant::now(), asked)
    }

    /// [`Self::ask`], whose time-out began earlier.
    pub(super) fn ask_since(
        &mut self,
        began: Instant,
        mut asked: Vec<Exchange>,
    ) -> Result<Vec<Exchange>, ModelError> {
        let waiting = Instant::now();
        let deadline = began + self.config.timeout;
        loop {
            let failure = match self.connect(deadline) {
                Ok(()) => {
                    let views = &self.views;
                    let tasks = self.streams.iter_mut().zip(&mut asked).enumerate().filter_map(
                        |(shard, (stream, asked))| {
                            let stream = stream.as_mut()?;
                            let longest = 64 + payload::max_len(views[shard].range.len());
                            Some(async move { (views[shard].server, asked.run(stream, longest).await) })
                        },
                    );
                    let all = join_all(tasks);
                    let timeout = deadline.saturating_duration_since(Instant::now());
                    let results = self.runtime.block_on(async { tokio::time::timeout(timeout, all).await });
                    match results {
                        Ok(results) => {
                            results.into_iter().find_map(|(server, result)| Some((server, result.err()?)))
                        }
                        Err(_) => {
                            // What was under way is in no known state.
                            (0..self.links.len()).for_each(|server| self.drop_link(server));
                            Some((0, Failure::Lost("no answer".to_owned())))
                        }
                    }
                }
                Err(failure) => Some(failure),
            };
            let Some((server, failure)) = failure else { break };
            self.drop_link(server);
            if failure.is_final() || Instant::now() + PAUSE >= deadline {
                return Err(failure.into_error(&self.config.servers[server], &self.config.job));
            }
            tracing::debug!("model server {}: {failure}; again", self.config.servers[server]);
            std::thread::sleep(PAUSE);
        }
        self.stats.waiting += waiting.elapsed();
        Ok(asked)
    }

    pub(super) fn drop_link(&mut self, server: usize) {
        self.links[server] = None;
        for (view, stream) in self.views.iter().zip(&mut self.streams) {
            if view.server == server {
                *stream = None;
            }
        }
    }

    /// Makes the connections that are not there.
    pub(super) fn connect(&mut self, deadline: Instant) -> Result<(), (usize, Failure)> {
        for server in 0..self.links.len() {
            if self.links[server].as_ref().is_some_and(Link::is_open) {
                continue;
            }
            if self.links[server].as_ref().is_some_and(Link::is_deleted) {
                return Err((server, Failure::Refused(Reason::Deleted.message().to_owned())));
            }
            self.drop_link(server);
            let numbers = self.views.iter().filter(|view| view.server == server).count();
            let left = deadline.saturating_duration_since(Instant::now());
            let linking =
                Link::connect(&self.config, server, &self.name, &self.parts[server], numbers as u32);
            let linked = self.runtime.block_on(async { tokio::time::timeout(left, linking).await });
            let (link, streams) = match linked {
                Ok(Ok(linked)) => linked,
                Ok(Err(failure)) => return Err((server, failure)),
                Err(_) => return Err((server, Failure::Lost("no answer".to_owned()))),
            };
            self.stats.reconnections += 1;
            let shards =
                self.views.iter_mut().zip(&mut self.streams).filter(|(view, _)| view.server == server);
            for ((view, place), (stream, attached)) in shards.zip(streams) {
                view.sequence = view.sequence.max(attached.sequence);
                if let Some((incarnation, version)) = view.seen
                    && incarnation != link.incarnation
                {
                    self.stats.forgotten += version.saturating_sub(attached.stamp.version);
                }
                view.seen = Some((link.incarnation, attached.stamp.version));
                debug_assert_eq!(stream.number, view.number);
                *place = Some(stream);
            }
            self.links[server] = Some(link);
        }
        Ok(())
    }
}
