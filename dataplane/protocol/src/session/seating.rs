//! The three policies of membership, and the one place where they differ by name.
//!
//! All keep the same [`JobState`](super::job::JobState): who is here, the session that runs or has ended, and
//! the packets to its members. The effect of an event stands in the file of the policy's name.
//!
//! | event | fixed | rack | follower |
//! |-|-|-|-|
//! | JOIN without a claim, a session runs | the member is asked; a new incarnation ends the session (P24) | as fixed, and the root gets a JOIN that ends it (P38) | refused: not the first |
//! | JOIN without a claim, none runs | it waits; with the last one a session begins | as fixed, but the rack joins its root first | refused: not the first |
//! | JOIN that claims the session that runs | WELCOME; the member is asked before it moves | as fixed, and the root is asked, too | as fixed |
//! | JOIN that claims another, a session runs | re-forming | re-forming | with the last claim that session begins instead, once the members of the running one do not answer |
//! | JOIN that claims another, none runs | with the last claim it is resumed | as fixed, by the root | with the last claim it begins |
//! | LEAVE | BYE to all after the last | as fixed, after the root's BYE | BYE to all after the last |

use super::claims::Claims;
use super::uplink::Uplink;

/// A policy of membership, with what only that policy knows.
#[allow(clippy::large_enum_variant, reason = "one per job")]
#[derive(Debug)]
pub(super) enum Seating {
    /// A session has every seat of the job, and ends when one of its workers restarts.
    Fixed,
    /// As fixed, below a root to whose session this one belongs.
    Rack(Uplink),
    /// At a share that is not the first: workers bring the session along.
    Follower(Claims),
}

impl Seating {
    /// The root's side of a rack.
    pub fn uplink(&self) -> Option<&Uplink> {
        if let Seating::Rack(uplink) = self { Some(uplink) } else { None }
    }

    /// Mutable access.
    pub fn uplink_mut(&mut self) -> Option<&mut Uplink> {
        if let Seating::Rack(uplink) = self { Some(uplink) } else { None }
    }

    /// The workers that claim a session that does not run at this share.
    pub fn claims(&self) -> Option<&Claims> {
        if let Seating::Follower(claims) = self { Some(claims) } else { None }
    }

    /// Mutable access.
    pub fn claims_mut(&mut self) -> Option<&mut Claims> {
        if let Seating::Follower(claims) = self { Some(claims) } else { None }
    }
}
