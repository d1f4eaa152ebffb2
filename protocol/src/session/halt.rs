//! The member's side of boundaries (P43): where it is to stop, or which calls it may finish, and what it says
//! of that. No packets and no timers are here: [`Joiners`](super::Joiners) repeats what it says.

use crate::wire::{Boundary, Position, Stand, What};
use std::time::Duration;

/// What a member was told of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Told {
    #[default]
    Nothing,
    /// The message was older than what this member knows: a restarted server must learn with which number it
    /// goes on.
    Forgotten,
    /// Stop at the next boundary, or at the first one with so many calls, once that is known.
    Stop(Option<u64>),
    /// To finish so many calls and no more.
    Hold(u64),
}

/// Where a member of a session halts for a change of members.
#[derive(Clone, Copy, Debug, Default)]
pub struct Halt {
    told: Told,
    /// The number of that, counted in the session modulo 2^16.
    question: u16,
    /// Whether the program has stopped at a boundary.
    stopped: bool,
    /// When it was last told something.
    heard: Duration,
}

impl Halt {
    /// Does what a BOUNDARY says, or ignores one that is older than the last. The member has finished and
    /// begun so many calls of the session. Either way it says at once how far it is ([`Self::position`]).
    /// Returns whether it holds from now on, because a member is gone.
    pub fn obey(&mut self, now: Duration, boundary: &Boundary, (finished, begun): (u64, u64)) -> bool {
        self.heard = now;
        if (self.question.wrapping_sub(boundary.question) as i16) > 0 {
            // It has come late, or its server does not know what was asked before.
            if self.told == Told::Nothing {
                self.told = Told::Forgotten;
            }
            return false;
        }
        self.question = boundary.question;
        // Calls travel modulo 2^32.
        let whole =
            |calls: u32| begun.saturating_add_signed(i64::from(calls.wrapping_sub(begun as u32) as i32));
        let held = matches!(self.told, Told::Hold(_));
        self.told = match boundary.what {
            What::GoOn => Told::Nothing,
            What::Hold => Told::Hold(finished),
            What::Finish => Told::Hold(whole(boundary.calls).max(finished)),
            What::Ask => Told::Stop(None),
            What::Stop => Told::Stop(Some(whole(boundary.calls))),
        };
        self.stopped &= matches!(self.told, Told::Stop(_));
        boundary.what == What::Hold && !held
    }

    /// How many calls of the session it may finish, if it may not finish all.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        match self.told {
            Told::Hold(calls) => Some(calls),
            Told::Nothing | Told::Forgotten | Told::Stop(_) => None,
        }
    }

    /// The program is at a boundary, with no call under way and so many begun. Returns whether it must wait
    /// there.
    pub fn stop_at_boundary(&mut self, begun: u64) -> bool {
        self.stopped = match self.told {
            Told::Nothing | Told::Forgotten | Told::Hold(_) => false,
            Told::Stop(from) => from.is_none_or(|from| begun >= from),
        };
        self.waits()
    }

    /// Whether the program has stopped at a boundary, for others to be let in.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.stopped
    }

    /// What it says while it is asked, with so many calls finished and begun; `None` if it goes on as ever.
    /// The nonce is left 0.
    #[must_use]
    pub fn position(&self, (finished, begun): (u64, u64)) -> Option<Position> {
        let stand = match (self.told, self.stopped) {
            (Told::Nothing, _) => return None,
            (Told::Hold(_), _) => Stand::Holding,
            (Told::Stop(_), true) => Stand::Stopped,
            (Told::Stop(_) | Told::Forgotten, _) => Stand::Running,
        };
        let (finished, begun) = (finished as u32, begun as u32);
        Some(Position { nonce: 0, finished, begun, stand, question: self.question })
    }

    /// For how long it has waited for another word, while it holds or has stopped.
    #[must_use]
    pub fn waited(&self, now: Duration) -> Option<Duration> {
        self.waits().then(|| now.saturating_sub(self.heard))
    }

    fn waits(&self) -> bool {
        self.stopped || matches!(self.told, Told::Hold(_))
    }
}
