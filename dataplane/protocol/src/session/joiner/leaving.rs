//! A worker leaves its session (P25 LEAVE).

use std::time::Duration;

/// Time between JOINs that are not answered.
pub(super) const RETRY: Duration = Duration::from_millis(200);

/// The time for which LEAVE is repeated if the server says that others have not left: the server has the sums that
/// they may lack.
const LEAVE_FOR: Duration = Duration::from_secs(1);
/// The time for which LEAVE is repeated otherwise: if the sums are lost with the server, this worker is needed for them.
const STAY_FOR: Duration = Duration::from_secs(5);
/// For how long such an answer of the server counts, since some LEAVEs may be lost.
const SERVED_FOR: Duration = Duration::from_millis(250);

/// The place of the sums that others may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sums {
    /// The server has not answered.
    Unknown,
    /// The server said at this time that it has the session, and that others have not left.
    AtServer(Duration),
    /// The server has lost the session. Once it runs again, its slots are empty until the members have filled them.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaving {
    since: Duration,
    /// The time at which the worker leaves a silent server, whatever comes from others.
    until: Duration,
    /// True if others may need what the worker has sent.
    stays: bool,
    sums: Sums,
    /// The time of the next claim of the session, which the server has lost, and of the last claim.
    claim: Option<Duration>,
    claimed: Duration,
}

impl Leaving {
    /// `stays` says whether others may need what the worker has sent.
    pub fn new(now: Duration, stays: bool) -> Leaving {
        let until = now + if stays { STAY_FOR } else { LEAVE_FOR };
        Leaving { since: now, until, stays, sums: Sums::Unknown, claim: None, claimed: Duration::ZERO }
    }

    pub fn is_over(&self, now: Duration) -> bool {
        let at_server = matches!(self.sums, Sums::AtServer(at) if now.saturating_sub(at) < SERVED_FOR);
        now >= if at_server { self.since + LEAVE_FOR } else { self.until }
    }

    /// Others do not need this worker any more.
    pub fn quit(&mut self, now: Duration) {
        self.stays = false;
        self.until = self.until.min(self.since + LEAVE_FOR).max(now);
    }

    /// Another worker needed what this one has sent: the wait begins anew.
    pub fn extend(&mut self, now: Duration) {
        if self.stays {
            self.until = now + STAY_FOR;
        }
    }

    /// The server has lost the session: this worker claims it, if others may need what it has sent.
    pub fn lose_sums(&mut self, now: Duration) {
        if self.stays {
            self.sums = Sums::Lost;
            self.claim = Some(now.max(self.claimed + RETRY));
        }
    }

    /// The server says that others have not left.
    pub fn find_sums(&mut self, now: Duration) {
        if self.sums != Sums::Lost {
            self.sums = Sums::AtServer(now);
        }
    }

    pub fn claim_at(&self) -> Option<Duration> {
        self.claim
    }

    pub fn count_claim(&mut self, now: Duration) {
        (self.claim, self.claimed) = (None, now);
    }
}
