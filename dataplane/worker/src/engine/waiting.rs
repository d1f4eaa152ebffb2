//! The pauses of an engine.

use super::session::State;
use super::{Engine, NAP, REPORT};
use crate::WorkerError;
use std::time::{Duration, Instant};
use thc_protocol::worker::{SessionError, Workers};
use thc_transport::RetainedTx;

/// Longest single sleep while a packed call waits for indices, whose arrival does not wake the engine.
const PIECE_NAP: Duration = Duration::from_micros(50);
/// A burst of fewer packets is a trickle.
const TRICKLE: usize = 16;
/// Results may gather for this part of a round trip, within these bounds.
const GATHER_PART: u32 = 16;
const GATHER_MIN: Duration = Duration::from_micros(80);
const GATHER_MAX: Duration = Duration::from_micros(200);

impl<I: RetainedTx> Engine<I> {
    /// Waits until a packet comes, something is due, or `at_most` has passed. If the interface fails, so do
    /// the session and all its calls.
    pub fn wait(&mut self, at_most: Duration) {
        let now = self.io.now();
        self.report_waiting(now);
        let due = self.deadline();
        let timeout = due.map_or(at_most, |due| due.saturating_sub(now).min(at_most));
        if timeout.is_zero() {
            return;
        }
        let started = Instant::now();
        if let Err(error) = self.io.wait(timeout) {
            self.end(error.into());
        }
        self.stats.waiting += started.elapsed();
    }

    /// Sleeps while work is under way and nothing is to be done.
    pub(super) fn nap(&mut self) {
        if self.calls.awaits_pieces() {
            return self.wait(PIECE_NAP);
        }
        self.wait(NAP);
        if let Some(pause) = self.gather_pause() {
            std::thread::sleep(pause);
        }
    }

    /// The time to sleep after [`Self::wait`] so that results gather. On a slow link packets queue and
    /// results trickle in: each by itself would cost a wake-up and a system call. The window is much
    /// longer than this pause, so the link does not run dry. `None` if round trips are short.
    fn gather_pause(&self) -> Option<Duration> {
        let part = self.session.worker.round_trip()? / GATHER_PART;
        (self.recent.burst < TRICKLE && part >= GATHER_MIN).then(|| part.min(GATHER_MAX))
    }

    /// When something is due, if anything is.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let works = matches!(self.state, State::Working);
        let own = if works { self.session.worker.deadline() } else { None };
        [own, self.session.joiners.deadline()].into_iter().flatten().min()
    }

    fn report_waiting(&mut self, now: Duration) {
        if now < self.recent.reported + REPORT {
            return;
        }
        let worker = &self.session.worker;
        let late = worker.waiting_for().filter(|(_, since)| *since >= REPORT);
        let silent = now.saturating_sub(worker.last_heard());
        // A server that has ended is silent, as is one that waits for other workers, until it should have answered.
        let limit = if late.is_some() { REPORT / 2 } else { REPORT };
        if worker.is_busy() && silent >= limit {
            self.recent.reported = now;
            let error = SessionError::Silent { waited: silent };
            if let WorkerError::Silent(silence) = self.session.error(error, self.io.refused().is_some()) {
                tracing::warn!("{}", silence.finding());
            }
        } else if let Some((missing, since)) = late {
            self.recent.reported = now;
            tracing::warn!("waiting for {} for {:.0} s", Workers(missing), since.as_secs_f64());
        }
    }
}
