//! Members that come and go (P42, P43): where a session ends, and how calls go on in the next one.

use super::compressor::Compressor;
use super::link::Link;
use super::membership::{Changing, Membership};
use super::{Engine, number, parameters};
use crate::{Span, WorkerError};
use std::sync::Arc;
use std::time::Duration;
use thc_protocol::WorkerId;
use thc_protocol::wire::{Boundary, Choice, Welcome};
use thc_protocol::worker::{CallError, Parameters, SessionError, Worker};
use thc_transport::PacketIo;

impl<I: PacketIo> Engine<I> {
    /// Who takes part in the session.
    #[must_use]
    pub fn membership(&self) -> Membership {
        let parameters = self.worker.parameters();
        self.members.as_ref().map_or(
            Membership {
                epoch: 0,
                workers: parameters.workers,
                number: parameters.worker.0,
                newcomers: true,
            },
            |changing| changing.membership,
        )
    }

    /// The same, if it has changed since the last call; with `newcomers` set if a worker was let in since
    /// then. All members learn of new workers at the same boundary, since they stopped there, but may learn
    /// at different ones that a worker is gone.
    pub fn take_change(&mut self) -> Option<Membership> {
        self.changed.take()
    }

    /// Whether the program, which is at a boundary between two calls, must wait there (P43). Until this
    /// returns false it must drive the engine. Calls under way are completed first.
    pub fn stop_at_boundary(&mut self) -> bool {
        if self.failed.is_some() {
            return false;
        }
        if self.calls.len() > 0 {
            return true;
        }
        let begun = self.calls.begun_calls();
        let Some(changing) = &mut self.members else { return false };
        let waits = changing.halt.stop_at_boundary(begun);
        self.tell_position();
        waits
    }

    /// Does what a BOUNDARY says.
    pub(super) fn obey(&mut self, now: Duration, boundary: Boundary) {
        let calls = self.calls_so_far();
        let Some(changing) = &mut self.members else { return };
        if changing.halt.obey(now, &boundary, calls) {
            let (seat, job) = (boundary.because_of, self.config.job);
            tracing::warn!("worker {seat} of job {job} is gone: the others go on without it");
        }
        self.calls.limit = changing.halt.limit();
        self.tell_position();
        self.joiners.repeat_position(now);
    }

    /// Calls of the session that are finished, and that are begun.
    fn calls_so_far(&self) -> (u64, u64) {
        (self.calls.first(), self.calls.begun_calls())
    }

    /// The error, if this worker was told to hold, or has stopped, and nothing has followed.
    pub(super) fn silence_error(&self, now: Duration) -> Option<SessionError> {
        let waited = self.members.as_ref()?.halt.waited(now)?;
        (waited >= self.config.timeout).then_some(SessionError::Silent { waited })
    }

    /// Says how far this worker is, as long as that is asked.
    pub(super) fn tell_position(&mut self) {
        let Some(changing) = &self.members else { return };
        let position = changing.halt.position(self.calls_so_far());
        self.joiners.set_position(self.io.now(), self.worker.parameters().cookie, position);
    }

    /// Another session in place of this one, with nothing in it yet.
    pub(super) fn begin(&mut self, welcome: &Welcome, workers: u8) -> Result<(), WorkerError> {
        let number = number(&self.config, welcome);
        self.compressor = Arc::new(Compressor::new(welcome, workers, number, self.config.seed)?);
        self.link = Link::new(self.config.ps, welcome);
        self.io.set_peers(self.link.ps.addresses());
        let first_seq = self.first_seq;
        let parameters = Parameters { first_seq, ..parameters(&self.config, workers, welcome) };
        self.worker = Worker::new(parameters, self.io.now());
        self.worker.set_first_call(self.calls.start);
        self.ready = 0;
        self.set_limits();
        self.members = Changing::from_welcome(welcome);
        self.next = None;
        self.changed = self.members.as_ref().map(|changing| changing.membership);
        self.set_stripes();
        Ok(())
    }

    /// Switches to the session that has begun in place of this one, if there is one; unfinished calls begin
    /// again there.
    pub(super) fn change(&mut self) {
        let Some((welcome, workers)) = self.next.take().filter(|_| self.failed.is_none()) else { return };
        self.fold_stats();
        let usual = self.compressor.usual();
        // All have stopped for those who wait; where somebody is gone they hold.
        let lets_in = self.members.as_ref().is_some_and(|changing| changing.halt.has_stopped());
        let untold = self.changed.is_some_and(|changed| changed.newcomers);
        if let Err(error) = self.begin(&welcome, workers) {
            return self.fail(error);
        }
        if let Some(changing) = &mut self.members {
            changing.membership.newcomers = lets_in;
            self.changed = Some(Membership { newcomers: lets_in || untold, ..changing.membership });
        }
        let now_usual = self.compressor.usual();
        let mut failed = false;
        for active in self.calls.begin_again() {
            let span = |&Span { length, choice }: &Span| {
                let choice = if choice == usual { now_usual } else { choice };
                Span { length, choice }
            };
            let plan: Vec<Span> = active.plan.iter().map(span).collect();
            let gone = plan.iter().map(|span| span.choice).find(|&choice| !self.compressor.has(choice));
            // What is behind a call that cannot begin again must not come before it, should the program begin it again.
            if failed || active.remote.is_some() {
                self.calls.fail_until_heeded(active, CallError::MembersChanged.into());
                failed = true;
            } else if let Some(Choice::Table(table)) = gone {
                let tables: Vec<String> = self.tables().map(|(id, _)| id.to_string()).collect();
                let error = WorkerError::NoTable { table, tables: tables.join(", ") };
                self.calls.fail_until_heeded(active, error);
                failed = true;
            } else {
                let (holds, group) = (self.worker.parameters().may_lose(), self.group_len());
                self.calls.push_again(active.restart(&plan, &self.compressor, group, holds));
            }
        }
        let Membership { epoch, workers, number, .. } = self.membership();
        let job = self.config.job;
        tracing::info!("job {job}, epoch {epoch}: {workers} workers, this one is number {number}");
        self.asked = self.io.now();
    }

    /// This worker's seat: its number in the job.
    #[must_use]
    pub fn seat(&self) -> WorkerId {
        self.config.worker
    }
}
