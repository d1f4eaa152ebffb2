//! A worker joins all shares of a server: first the first one, and then the others with the session from
//! there (P22, P24).

use super::{JoinError, JoinEvent, Joiner};
use crate::wire::{MAX_SHARES, Shares, Welcome};
use std::net::SocketAddr;
use std::time::Duration;

/// The worker's side of joining and leaving, towards every share.
#[derive(Debug)]
pub struct Joiners {
    /// The joiner of the first share, and once that is in, those of the others.
    all: Vec<Joiner>,
    /// One bit for each share that has welcomed it since it was last asked.
    welcomed: u64,
    shares: Shares,
    /// The last WELCOME of the first share.
    session: Option<Welcome>,
}

impl Joiners {
    /// A worker that is about to join with `first`, at the first share or the only server.
    pub fn new(first: Joiner) -> Joiners {
        Joiners { all: vec![first], welcomed: 0, shares: Shares::NONE, session: None }
    }

    /// Returns how many shares are known by now.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns where the shares are, as the first one has said; empty if there is one server, and before that.
    pub fn shares(&self) -> &[SocketAddr] {
        self.shares.as_slice()
    }

    /// The aggregator may have lost its state: introduces this worker again everywhere, with its session.
    pub fn resume(&mut self, now: Duration) {
        self.all.iter_mut().for_each(|joiner| joiner.resume_after_pause(now));
    }

    /// Returns whether a share has welcomed this worker and has not been asked again since.
    pub fn has_joined(&self, share: usize) -> bool {
        self.all.get(share).is_some_and(Joiner::has_joined)
    }

    /// One share may have lost its state: introduces this worker again there.
    pub fn resume_at(&mut self, now: Duration, share: usize) {
        if let Some(joiner) = self.all.get_mut(share) {
            joiner.resume_after_pause(now);
        }
    }

    /// Begins to leave, with all calls finished: others may still need what it has sent (P25).
    pub fn leave(&mut self, now: Duration) {
        self.all.iter_mut().for_each(|joiner| joiner.leave(now));
    }

    /// Begins to leave a session that is over for this worker.
    pub fn quit(&mut self, now: Duration) {
        self.all.iter_mut().for_each(|joiner| joiner.quit(now));
    }

    /// Another worker needed what this leaving worker has sent, which therefore stays as long again.
    pub fn stay(&mut self, now: Duration) {
        self.all.iter_mut().for_each(|joiner| joiner.stay(now));
    }

    /// Returns whether every share has said BYE, or leaving has taken long enough.
    pub fn has_left(&self) -> bool {
        self.all.iter().all(Joiner::has_left)
    }

    /// The error if joining some share has taken `limit` already.
    pub fn timeout_error(&self, now: Duration, limit: Duration) -> Option<JoinError> {
        let late = |(share, joiner): (usize, &Joiner)| Some((share, joiner.timeout_error(now, limit)?));
        self.all.iter().enumerate().find_map(late).map(|(share, error)| self.locate(share, error))
    }

    /// An error of a share, with where that is.
    fn locate(&self, share: usize, error: JoinError) -> JoinError {
        let Some(&at) = self.shares().get(share).filter(|_| share > 0) else { return error };
        match error {
            JoinError::Silent { waited } => JoinError::ShareSilent { share, at, waited },
            JoinError::Missing { job, missing, waited } => {
                JoinError::ShareMissing { job, share, at, missing, waited }
            }
            JoinError::Refused { reason, .. } => JoinError::ShareRefused { share, at, reason },
            other => other,
        }
    }

    /// Returns when [`Self::poll`] has something to send.
    pub fn deadline(&self) -> Option<Duration> {
        self.all.iter().filter_map(Joiner::deadline).min()
    }

    /// Writes a packet that is due to `buffer`, and returns it with the share to which it goes. There may be
    /// more.
    pub fn poll<'a>(&mut self, now: Duration, buffer: &'a mut [u8]) -> Option<(usize, &'a [u8])> {
        let due = |joiner: &Joiner| joiner.deadline().is_some_and(|due| due <= now);
        for share in 0..self.all.len() {
            if due(&self.all[share]) {
                // Leaving that has taken long enough is due once more, with nothing to send.
                if let Some(len) = self.all[share].poll(now, buffer).map(<[u8]>::len) {
                    return Some((share, &buffer[..len]));
                }
            }
        }
        None
    }

    /// The members of the session that have not left (P25), one bit each. A member that has left one share may still answer
    /// for its packets at another.
    pub fn members_here(&self) -> u64 {
        self.all.iter().fold(0, |here, joiner| here | joiner.members_here())
    }

    /// Takes a control packet of a share. WELCOME is reported when every share has sent it.
    pub fn handle(&mut self, now: Duration, share: usize, packet: &[u8]) -> Option<JoinEvent> {
        match self.all.get_mut(share)?.handle(now, packet)? {
            JoinEvent::Welcome(welcome) => {
                if share == 0 {
                    if self.session.is_none_or(|before| before.session != welcome.session) {
                        let others = 1..usize::from(welcome.shares.servers());
                        self.all.truncate(1);
                        let first = &self.all[0];
                        let others: Vec<Joiner> = others.map(|_| first.for_other_share(now)).collect();
                        self.all.extend(others);
                        self.welcomed = 0;
                        self.shares = welcome.shares;
                    }
                    self.session = Some(welcome);
                }
                self.welcomed |= 1 << share;
                let all = u64::MAX >> (MAX_SHARES - self.all.len());
                if self.welcomed & all == all { self.session.map(JoinEvent::Welcome) } else { None }
            }
            // All may have left one share, and not yet have been heard at another. No member needs this worker any more.
            JoinEvent::Bye => {
                self.quit(now);
                self.has_left().then_some(JoinEvent::Bye)
            }
            // Only the first share decides who is in the session.
            JoinEvent::Pending(..) | JoinEvent::PendingRacks(..) if share > 0 => None,
            JoinEvent::Here(_) => Some(JoinEvent::Here(self.members_here())),
            JoinEvent::Changed(change) if share > 0 && self.welcomed & (1 << share) == 0 => {
                let at = *self.shares().get(share)?;
                Some(JoinEvent::Failed(JoinError::ShareDiffers { share, at, change }))
            }
            JoinEvent::Failed(error) => Some(JoinEvent::Failed(self.locate(share, error))),
            event => Some(event),
        }
    }
}
