//! How a job gives its seats: the one place where the four policies of membership differ by name.
//!
//! All keep the same [`JobState`](super::job::JobState): who is here, the session that runs or has ended, and
//! what members are told. What a policy makes of an event stands in the file of its name.
//!
//! | event | fixed | rack | follower | changing |
//! |-|-|-|-|-|
//! | JOIN without a claim, a session runs | the member is asked; a new incarnation ends the session (P24) | as fixed, and the root is told (P38) | refused: not the first | the member is asked; after a new incarnation it is gone (P43); others wait (P42) |
//! | JOIN without a claim, none runs | it is here; with the last one a session begins | as fixed, but the rack joins its root first | refused: not the first | it waits; sessions begin as P42 says |
//! | JOIN that claims the session that runs | WELCOME | WELCOME, and the root is asked, too | WELCOME | WELCOME |
//! | JOIN that claims another, a session runs | re-forming | re-forming | with the last claim that session begins instead | re-forming, unless it is a member's |
//! | JOIN that claims another, none runs | with the last claim it is resumed | as fixed, by the root | with the last claim it begins | with the last claim it is resumed |
//! | LEAVE | BYE to all after the last | as fixed, after the root's BYE | BYE to all after the last | BYE at once; a boundary follows (P43) |
//! | silence | none | none | none | gone after a while (P42) |

use super::present::Present;
use super::roster::Roster;
use super::upper::Upper;

/// A policy of membership, with what only that policy knows.
#[allow(clippy::large_enum_variant, reason = "one per job")]
#[derive(Debug)]
pub(super) enum Seating {
    /// A session has every seat of the job, and ends when one of its workers restarts (P24).
    Fixed,
    /// The same, below a root to whose session this one belongs (P38).
    Rack(Upper),
    /// At a share that is not the first: workers bring the session along (P24). By seat, those that claim a
    /// session that does not run here.
    Follower(Vec<Option<Present>>),
    /// Members come and go (P42).
    Changing(Roster),
}

impl Seating {
    /// The root's side of a rack.
    pub fn upper(&self) -> Option<&Upper> {
        if let Seating::Rack(upper) = self { Some(upper) } else { None }
    }

    /// The same, mutably.
    pub fn upper_mut(&mut self) -> Option<&mut Upper> {
        if let Seating::Rack(upper) = self { Some(upper) } else { None }
    }

    /// Members and those who wait, where members come and go.
    pub fn roster(&self) -> Option<&Roster> {
        if let Seating::Changing(roster) = self { Some(roster) } else { None }
    }

    /// The same, mutably.
    pub fn roster_mut(&mut self) -> Option<&mut Roster> {
        if let Seating::Changing(roster) = self { Some(roster) } else { None }
    }

    /// Whether workers bring their session along from the first share.
    pub fn follows(&self) -> bool {
        matches!(self, Seating::Follower(_))
    }

    /// By seat, the workers that claim a session that does not run at this share.
    pub fn claims(&self) -> &[Option<Present>] {
        if let Seating::Follower(claims) = self { claims } else { &[] }
    }
}
