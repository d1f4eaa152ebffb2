//! The sessions that workers claim at a share other than the first.

use super::peer::Peer;
use crate::{Cookie, WorkerId};
use std::time::Duration;

/// The workers that claim a session which does not run at this share.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// By seat; a claim is forgotten like a worker that waits.
    pub by_seat: Vec<Option<Peer>>,
    /// The members of the running session are asked whether they still run, since all of one session claim its
    /// place.
    pub asked: Option<Asked>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The session that is to begin.
    pub session: Cookie,
    /// Since when no member of the running session was heard.
    pub since: Duration,
    pub last: Duration,
    pub times: u32,
}

impl Claims {
    pub fn of(&self, session: Cookie) -> impl Iterator<Item = (WorkerId, &Peer)> {
        let claims = (0u8..).map(WorkerId).zip(&self.by_seat);
        let claims = claims.filter_map(|(worker, claim)| Some((worker, claim.as_ref()?)));
        claims.filter(move |(_, claim)| claim.session == session)
    }

    /// Forgets claims that are not repeated any more; the job has this number of `seats`.
    pub fn forget(&mut self, now: Duration, seats: usize) {
        self.by_seat.resize(seats, None);
        self.by_seat.iter_mut().for_each(|claim| *claim = claim.filter(|claim| !claim.is_forgotten(now)));
    }

    /// The session that is claimed for all seats, if there is one.
    pub fn complete(&self) -> Option<Cookie> {
        let session = self.by_seat.first()?.as_ref()?.session;
        (self.of(session).count() == self.by_seat.len()).then_some(session)
    }
}
