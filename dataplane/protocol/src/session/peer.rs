//! Who is in a job, and whether its number may be given to somebody else (P24).

use crate::wire::{Header, Join};
use crate::{Cookie, Round};
use std::net::SocketAddr;
use std::time::Duration;

/// Whoever waits for a session and has sent no JOIN for so long is forgotten.
pub(super) const FORGET: Duration = Duration::from_secs(3);
/// Nobody else can take the seat of a waiting worker that has asked within this time.
const ASKING: Duration = Duration::from_secs(1);
/// How long a member is asked before its number goes to somebody else, and how often.
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
    /// What its JOINs are told by.
    pub attempt: Round,
    /// When it first sent JOIN.
    pub since: Duration,
    /// When it last sent JOIN.
    pub heard: Duration,
    pub left: bool,
    pub asked: Asked,
}

impl Peer {
    /// Who sent a JOIN, now and for the first time.
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

    /// Whether it waits no more, for it has sent no JOIN for so long.
    pub fn is_forgotten(&self, now: Duration) -> bool {
        now.saturating_sub(self.heard) > FORGET
    }

    /// Whether this worker, which waits for a session, keeps its seat from another that asks for it now.
    pub fn keeps_seat(&self, now: Duration, other: &Peer) -> bool {
        // Who was in the session that is to go on is no stranger.
        let known = other.session != Cookie(0) && self.session == Cookie(0);
        let another = self.nonce != other.nonce && self.addr != other.addr;
        another && !known && now.saturating_sub(self.heard) < ASKING
    }
}

/// What came of asking a member whether it still runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    since: Option<Duration>,
    last: Duration,
    times: u32,
    /// For how long an answer was waited for.
    waited: Duration,
    sure: Option<Duration>,
}

/// What is to be done about somebody who wants a member's number.
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
    /// Somebody else wants this member's number. `packets` says when its last packet to the aggregator came.
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
            // Whoever wanted it then has gone away meanwhile: what was asked so long ago does not count.
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
