//! Connections to all servers.

use super::link::{Failure, Link, Stream};
use super::{Asked, Client, PAUSE};
use crate::counters::Reason;
use crate::error::ModelError;
use crate::payload::{self};
use crate::wire::{Body, kind};
use futures_util::future::join_all;
use std::ops::Range;
use std::time::Instant;

/// What of the spans lies within a range, counted from its beginning; neighbours are one.
pub(super) fn within(spans: &[Range<usize>], range: &Range<usize>) -> Vec<Range<usize>> {
    let mut own: Vec<Range<usize>> = Vec::new();
    for span in spans {
        let (from, to) = (span.start.max(range.start), span.end.min(range.end));
        if from >= to {
            continue;
        }
        let span = from - range.start..to - range.start;
        match own.last_mut().filter(|last| last.end == span.start) {
            Some(last) => last.end = span.end,
            None => own.push(span),
        }
    }
    own
}

/// All frames that are not answered, one after the other without waiting between.
async fn exchange(stream: &mut Stream, asked: &mut Asked, longest: usize) -> Result<(), Failure> {
    for (request, answer) in &asked.frames {
        if answer.is_none() {
            stream.send(request).await?;
        }
    }
    for (_, answer) in &mut asked.frames {
        if answer.is_none() {
            *answer = Some(stream.receive(longest).await?);
        }
    }
    Ok(())
}

impl Client {
    pub(super) fn server_of(&self, shard: usize) -> String {
        self.config.servers[self.held[shard].server].clone()
    }

    pub(super) fn broken(&self, shard: usize) -> ModelError {
        let reason = "its answer is not one of this protocol version".to_owned();
        ModelError::Refused { server: self.server_of(shard), reason }
    }

    /// The body of answer `at`, which must have this kind.
    pub(super) fn answer<'a>(
        &self,
        shard: usize,
        asked: &'a Asked,
        at: usize,
        wanted: u8,
    ) -> Result<Body<'a>, ModelError> {
        let answer = asked.frames.get(at).and_then(|(_, answer)| answer.as_deref()).unwrap_or(&[]);
        match answer {
            [kind, rest @ ..] if *kind == wanted => Ok(Body(rest)),
            [kind::REFUSED, code, text @ ..] => Err(match Reason::from_code(*code) {
                Some(Reason::Empty) => ModelError::Empty,
                _ => ModelError::Refused {
                    server: self.server_of(shard),
                    reason: String::from_utf8_lossy(text).into_owned(),
                },
            }),
            _ => Err(self.broken(shard)),
        }
    }

    /// Sends every shard its frames until all are answered; a server that is lost is looked for until the time-out.
    pub(super) fn ask(&mut self, mut asked: Vec<Asked>) -> Result<Vec<Asked>, ModelError> {
        let began = Instant::now();
        let deadline = began + self.config.timeout;
        loop {
            let failure = match self.connect(deadline) {
                Ok(()) => {
                    let held = &self.held;
                    let tasks = self.streams.iter_mut().zip(&mut asked).enumerate().filter_map(
                        |(shard, (stream, asked))| {
                            let stream = stream.as_mut()?;
                            let longest = 64 + payload::max_len(held[shard].range.len());
                            Some(async move { (held[shard].server, exchange(stream, asked, longest).await) })
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
            let waited = began.elapsed();
            if failure.is_final() || Instant::now() + PAUSE >= deadline {
                return Err(failure.into_error(&self.config.servers[server], &self.config.job, waited));
            }
            tracing::debug!("model server {}: {failure}; again", self.config.servers[server]);
            std::thread::sleep(PAUSE);
        }
        self.stats.waiting += began.elapsed();
        Ok(asked)
    }

    fn drop_link(&mut self, server: usize) {
        self.links[server] = None;
        for (held, stream) in self.held.iter().zip(&mut self.streams) {
            if held.server == server {
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
            self.drop_link(server);
            let numbers = self.held.iter().filter(|held| held.server == server).count();
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
                self.held.iter_mut().zip(&mut self.streams).filter(|(held, _)| held.server == server);
            for ((held, place), (stream, attached)) in shards.zip(streams) {
                held.sequence = held.sequence.max(attached.sequence);
                if let Some((incarnation, version)) = held.seen
                    && incarnation != link.incarnation
                {
                    self.stats.forgotten += version.saturating_sub(attached.stamp.version);
                }
                held.seen = Some((link.incarnation, attached.stamp.version));
                debug_assert_eq!(stream.number, held.number);
                *place = Some(stream);
            }
            self.links[server] = Some(link);
        }
        Ok(())
    }
}
