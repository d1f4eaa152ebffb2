//! Who takes part in a session whose members come and go (P42, P43).

use thc_protocol::session::Halt;
use thc_protocol::wire::Welcome;

/// Who takes part in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Sessions of the job so far, modulo 2^16; the same on all members.
    pub epoch: u16,
    /// How many workers take part.
    pub workers: u8,
    /// This worker's number among them, from 0 without gaps.
    pub number: u8,
    /// Whether workers were let in as the session began (P43), or all began anew: the same on all members.
    /// New workers lack what the others know.
    pub newcomers: bool,
}

/// A session whose members may change.
#[derive(Debug)]
pub(super) struct Changing {
    pub membership: Membership,
    /// Where this worker is to stop, or which calls it may finish.
    pub halt: Halt,
}

impl Changing {
    /// `None` for a job whose members do not change.
    pub fn from_welcome(welcome: &Welcome) -> Option<Changing> {
        let members = welcome.members.filter(|_| welcome.min_workers < welcome.max_workers)?;
        let membership = Membership {
            epoch: members.epoch,
            workers: welcome.quorum,
            number: members.number.0,
            newcomers: true,
        };
        Some(Changing { membership, halt: Halt::default() })
    }
}
