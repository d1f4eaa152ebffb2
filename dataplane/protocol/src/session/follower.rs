//! A share other than the first: workers bring it the session into which the first share has let them (P24 incarnations).
//! It is like a fixed job that takes the session's cookie from their claims in place of making one.

use super::action::Action;
use super::claims::Asked;
use super::job::{JobState, refusal};
use super::peer::{LISTENED, Peer};
use crate::wire::{Header, Join, RefuseReason};
use crate::{Cookie, WorkerId};
use std::net::SocketAddr;
use std::time::Duration;

/// The time for which the members of a running session must be silent before another session takes its place, and the time
/// between two ASKs meanwhile. Fewer ASKs than [`LEAST_ASKS`] may all have been lost.
const SILENCE: Duration = Duration::from_millis(200);
const ASK_EVERY: Duration = Duration::from_millis(50);
const LEAST_ASKS: u32 = 4;

impl JobState {
    /// A JOIN with the job's cookie and, if it claims a session, with the fingerprint of this job. Its
    /// session's cookie shows that the first share, which alone assigns numbers, has let this worker in.
    /// `alive` says when a member's last packet to the aggregator came.
    pub(super) fn follow(
        &mut self,
        now: Duration,
        from: SocketAddr,
        (header, join): (&Header, &Join),
        alive: impl Fn(WorkerId) -> Option<Duration>,
    ) -> Vec<Action> {
        let worker = header.worker;
        let place = usize::from(worker.0);
        let refuse = |reason| vec![refusal(from, header, reason, worker)];
        if join.session == Cookie(0) {
            return refuse(RefuseReason::NotFirst);
        }
        if self.session == Some(join.session) {
            if self.peers[place].is_none_or(|member| member.nonce != join.nonce) {
                return refuse(RefuseReason::WorkerInUse);
            }
            return self.join_again(now, from, (header, join), || alive(worker));
        }
        let seats = self.peers.len();
        let Some(claims) = self.seating.claims_mut() else { return Vec::new() };
        claims.forget(now, seats);
        let mut arrival = Peer::from_join(now, from, header, join);
        if let Some(before) = &claims.by_seat[place] {
            if before.keeps_seat(now, &arrival) {
                return refuse(RefuseReason::WorkerInUse);
            }
            if (before.nonce, before.session) == (arrival.nonce, arrival.session) {
                arrival.since = before.since;
            }
        }
        claims.by_seat[place] = Some(arrival);
        let joined = claims.of(join.session).map(|(worker, _)| worker.bit()).sum();
        let begun = self.begin_claimed(now, alive);
        if self.session == Some(join.session) {
            return begun;
        }
        let pending = self.pending(from, worker, header.cookie, joined);
        [pending].into_iter().chain(begun).collect()
    }

    /// Begins the session that all members claim, with empty slots. One that runs continues until none of its members
    /// has been heard for a while, although they are asked: every host that knows the job's cookie could claim another.
    pub(super) fn begin_claimed(
        &mut self,
        now: Duration,
        alive: impl Fn(WorkerId) -> Option<Duration>,
    ) -> Vec<Action> {
        let (seats, running) = (self.peers.len(), self.session);
        let members: Vec<(WorkerId, Peer)> =
            self.members().map(|(worker, member)| (worker, *member)).collect();
        let Some(claims) = self.seating.claims_mut() else { return Vec::new() };
        claims.forget(now, seats);
        let Some(session) = claims.complete() else {
            claims.asked = None;
            return Vec::new();
        };
        if let Some(running) = running {
            let heard =
                |(worker, member): &(WorkerId, Peer)| member.heard.max(alive(*worker).unwrap_or_default());
            let latest = members.iter().map(heard).max().unwrap_or_default();
            // After a pause in which this server was suspended, answers may still be waiting to be read.
            let holds = |asked: &Asked| {
                let listened = now.saturating_sub(asked.last) <= LISTENED;
                asked.session == session && latest < asked.since && listened
            };
            let before = claims.asked.filter(holds);
            let mut asked = before.unwrap_or(Asked { session, since: now, last: now, times: 0 });
            let waits = now.saturating_sub(asked.last) < ASK_EVERY;
            if asked.times < LEAST_ASKS || now.saturating_sub(asked.since) < SILENCE || waits {
                let mut asks = Vec::new();
                if asked.times == 0 || !waits {
                    (asked.last, asked.times) = (now, asked.times + 1);
                    asks = members;
                }
                claims.asked = Some(asked);
                return asks.iter().map(|(worker, member)| self.ask(*worker, running, member)).collect();
            }
        }
        claims.asked = None;
        self.peers = std::mem::take(&mut claims.by_seat);
        self.start(session)
    }
}
