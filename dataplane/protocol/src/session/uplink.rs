//! A rack's side towards its root.

use super::joiner::Joiner;
use super::static_job::Root;
use std::time::Duration;

/// The number of JOINs that end a session at the root, if none is answered.
const ENDINGS: u8 = 15;

/// A rack's state as a worker of its root.
#[derive(Debug)]
pub(super) struct Uplink {
    pub root: Root,
    /// From when all members are here until the session is over.
    pub joiner: Option<(u64, Joiner)>,
    /// Racks that have joined, as the root has said.
    pub joined: u64,
    /// The root's credit; 0 is no bound.
    pub credit: u32,
    /// The JOIN that ends the session, how many more times it is sent to the root without an answer, and when
    /// next.
    pub ending: Option<(Vec<u8>, u8, Duration)>,
}

impl Uplink {
    /// Returns whether the root reports marks, by its last WELCOME.
    pub fn reports_marks(&self) -> bool {
        self.root.welcome.marks
    }

    pub fn new(root: Root) -> Uplink {
        Uplink { root, joiner: None, joined: 0, credit: 0, ending: None }
    }

    /// The smaller of a rack's credit and its root's, since the root gets a sum of the rack for each slot
    /// that its members have outstanding.
    pub fn credit(&self, own: u32) -> u32 {
        if own == 0 || self.credit == 0 { own.max(self.credit) } else { own.min(self.credit) }
    }

    /// A member may have lost its root: so may this rack.
    pub fn resume(&mut self, now: Duration) {
        if let Some((_, joiner)) = &mut self.joiner {
            joiner.resume(now);
        }
    }

    /// The session is over because of a member: JOINs to the root end it there.
    pub fn end(&mut self, now: Duration) {
        let mut buffer = [0; 128];
        if let Some((_, joiner)) = self.joiner.take() {
            self.ending = Some((joiner.write_ending(&mut buffer).to_vec(), ENDINGS, now));
        }
        self.forget();
    }

    /// The session is over.
    pub fn forget(&mut self) {
        self.joiner = None;
        self.joined = 0;
    }
}
