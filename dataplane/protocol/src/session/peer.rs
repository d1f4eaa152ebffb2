//! A member of a job, and the decision whether another worker gets its number (P24 incarnations).

use crate::wire::{Header, Join};
use crate::{Cookie, Round};
use std::net::SocketAddr;
use std::time::Duration;

/// A worker that waits for a session and has sent no JOIN for this time is forgotten.
pub(super) const FORGET: Duration = Duration::from_secs(3);
/// No other worker can take the seat of a waiting worker that has asked within this time.
const ASKING: Duration = Duration::from_secs(1);
/// The time for which a member is asked before its number goes to another worker, and the time between two ASKs.
const ASK_FOR: Duration = Duration::from_millis(500);
const ASK_EVERY: Duration = Duration::from_millis(50);
/// A member that has shown so recently that it runs is not asked again.
const SURE: Duration = Duration::from_secs(1);
/// Fewer ASKs than that may all have been lost.
const LEAST_ASKS: u32 = 4;
/// Longer pauses between two ASKs do not count: an aggregator that was suspended has not listened meanwhile.
pub(super) const LISTENED: Duration = Duration::from_millis(400);

/// A worker that has joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub nonce: u64,
    /// The session it claims, before one runs.
    pub session: Cookie,
    pub definitions: u64,
    pub addr: SocketAddr,
    /// The attempt of its last JOIN.
    pub attempt: Round,
    /// The time of its first JOIN.
    pub since: Duration,
    /// The time of its last JOIN.
    pub heard: Duration,
    pub left: bool,
    pub asked: Asked,
}

impl Peer {
    /// The sender of a first JOIN.
    pub fn from_join(now: Duration, from: SocketAddr, header: &Header, join: &Join) -> Peer {
        Peer {
            nonce: join.nonce,
            attempt: header.round,
            session: join.session,
            definitions: join.definitions,
            addr: from,
            since: now,
            heard: now,
            left: false,
            asked: Asked::default(),
        }
    }

    /// Returns whether it waits no more, for it has sent no JOIN for so long.
    pub fn is_forgotten(&self, now: Duration) -> bool {
        now.saturating_sub(self.heard) > FORGET
    }

    /// Returns whether this worker, which waits for a session, keeps its seat from another that asks for it now.
    pub fn keeps_seat(&self, now: Duration, other: &Peer) -> bool {
        // A worker that claims the session that is to be resumed was in it.
        let known = other.session != Cookie(0) && self.session == Cookie(0);
        let another = self.nonce != other.nonce && self.addr != other.addr;
        another && !known && now.saturating_sub(self.heard) < ASKING
    }
}

/// The course of asking a member whether it still runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    since: Option<Duration>,
    last: Duration,
    times: u32,
    /// For how long an answer was waited for.
    waited: Duration,
    sure: Option<Duration>,
}

/// The decision about a worker that wants a member's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The member runs.
    Refused,
    /// The member is to be asked, now.
    Ask,
    /// The member has been asked just now.
    Wait,
    /// The member is gone.
    Granted,
}

impl Peer {
    /// Another worker wants this member's number. `packets` says when its last packet to the aggregator came.
    pub fn claim(&mut self, now: Duration, packets: Option<Duration>) -> Claim {
        if self.left {
            return Claim::Granted;
        }
        let asked = &mut self.asked;
        if asked.sure.is_some_and(|sure| now.saturating_sub(sure) < SURE) {
            return Claim::Refused;
        }
        let Some(since) = asked.since else {
            *asked = Asked { since: Some(now), last: now, times: 1, ..Asked::default() };
            return Claim::Ask;
        };
        if self.heard > since || packets.is_some_and(|at| at > since) {
            *asked = Asked { sure: Some(now), ..Asked::default() };
            return Claim::Refused;
        }
        let pause = now.saturating_sub(asked.last);
        if pause >= SURE {
            // The worker that wanted the number has gone away meanwhile: an ASK so long ago does not count.
            *asked = Asked { since: Some(now), last: now, times: 1, ..Asked::default() };
            return Claim::Ask;
        }
        if pause < ASK_EVERY {
            return Claim::Wait;
        }
        if pause <= LISTENED {
            asked.waited += pause;
        }
        if asked.waited >= ASK_FOR && asked.times >= LEAST_ASKS && pause <= LISTENED {
            return Claim::Granted;
        }
        asked.last = now;
        asked.times += 1;
        Claim::Ask
    }
}
