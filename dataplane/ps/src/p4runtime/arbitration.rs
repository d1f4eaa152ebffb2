//! The arbitration between controllers for the one primary, as the specification has it, as a state machine without I/O.
//! There is one role.

use std::collections::BTreeMap;

use super::refusal::{Refusal, refuse};
use tonic::Code;

/// A controller's stream.
pub type ClientId = u64;

/// The standing of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may write.
    Primary,
    /// Another controller may write.
    Backup,
    /// No controller may write.
    Vacant,
}

/// A message to a controller about its standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The controller.
    pub client: ClientId,
    /// Its standing.
    pub standing: Standing,
}

/// All controllers that have introduced themselves.
#[derive(Debug, Default)]
pub struct Arbitration {
    /// Their election ids; without one, a controller never becomes primary.
    live: BTreeMap<ClientId, Option<u128>>,
    primary: Option<ClientId>,
    /// The highest election id that a primary ever had.
    highest: Option<u128>,
}

impl Arbitration {
    /// Handles the election id of a new or known controller. Returns the notices to send, that of the primary last.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if another controller has the id; end its stream.
    pub fn arbitrate(&mut self, client: ClientId, election: Option<u128>) -> Result<Vec<Notice>, Refusal> {
        let taken = |(&other, &id): (&ClientId, &Option<u128>)| other != client && id == election;
        if election.is_some() && self.live.iter().any(taken) {
            return refuse(
                Code::InvalidArgument,
                "another controller has this election_id: give each controller its own",
            );
        }
        self.live.insert(client, election);
        if election.is_some() && election >= self.highest {
            self.highest = election;
            self.primary = Some(client);
            return Ok(self.notices());
        }
        if self.primary == Some(client) {
            self.primary = None;
            return Ok(self.notices());
        }
        Ok(vec![self.notice(client)])
    }

    /// Removes a controller, and returns the notices to send.
    pub fn leave(&mut self, client: ClientId) -> Vec<Notice> {
        self.live.remove(&client);
        if self.primary != Some(client) {
            return Vec::new();
        }
        self.primary = None;
        self.notices()
    }

    /// The primary controller.
    #[must_use]
    pub fn primary(&self) -> Option<ClientId> {
        self.primary
    }

    /// Returns whether a request with this election id comes from the primary controller.
    #[must_use]
    pub fn may_write(&self, election: Option<u128>) -> bool {
        let primary = self.primary.and_then(|primary| self.live.get(&primary));
        election.is_some() && primary == Some(&election)
    }

    /// Returns whether a controller has introduced itself.
    #[must_use]
    pub fn knows(&self, client: ClientId) -> bool {
        self.live.contains_key(&client)
    }

    /// The highest election id that a primary ever had.
    #[must_use]
    pub fn highest(&self) -> Option<u128> {
        self.highest
    }

    fn notice(&self, client: ClientId) -> Notice {
        let standing = match self.primary {
            Some(primary) if primary == client => Standing::Primary,
            Some(_) => Standing::Backup,
            None => Standing::Vacant,
        };
        Notice { client, standing }
    }

    fn notices(&self) -> Vec<Notice> {
        let mut all: Vec<Notice> = self.live.keys().map(|&client| self.notice(client)).collect();
        all.sort_by_key(|notice| notice.standing == Standing::Primary);
        all
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn standings(notices: &[Notice]) -> Vec<(ClientId, Standing)> {
        notices.iter().map(|notice| (notice.client, notice.standing)).collect()
    }

    #[test]
    fn the_highest_id_is_primary_and_all_hear_of_it() {
        use Standing::*;
        let mut it = Arbitration::default();
        assert_eq!(standings(&it.arbitrate(1, Some(5)).unwrap()), [(1, Primary)]);
        assert_eq!(standings(&it.arbitrate(2, Some(4)).unwrap()), [(2, Backup)]);
        assert!(it.may_write(Some(5)) && !it.may_write(Some(4)) && !it.may_write(None));
        assert_eq!(standings(&it.arbitrate(3, Some(6)).unwrap()), [(1, Backup), (2, Backup), (3, Primary)]);
        assert!(it.may_write(Some(6)) && !it.may_write(Some(5)));
        // The primary leaves: nobody takes its place by itself.
        assert_eq!(standings(&it.leave(3)), [(1, Vacant), (2, Vacant)]);
        assert!(!it.may_write(Some(6)) && !it.may_write(Some(5)));
        assert_eq!(standings(&it.arbitrate(2, Some(5 << 64)).unwrap()), [(1, Backup), (2, Primary)]);
        assert_eq!(standings(&it.leave(1)), []);
        assert_eq!(it.highest(), Some(5 << 64));
    }

    #[test]
    fn an_id_below_the_highest_ever_does_not_become_primary() {
        use Standing::*;
        let mut it = Arbitration::default();
        it.arbitrate(1, Some(9)).unwrap();
        it.leave(1);
        assert_eq!(standings(&it.arbitrate(2, Some(8)).unwrap()), [(2, Vacant)]);
        assert_eq!(standings(&it.arbitrate(2, Some(9)).unwrap()), [(2, Primary)]);
    }

    #[test]
    fn a_primary_can_step_back() {
        use Standing::*;
        let mut it = Arbitration::default();
        it.arbitrate(1, Some(9)).unwrap();
        it.arbitrate(2, Some(8)).unwrap();
        assert_eq!(standings(&it.arbitrate(1, Some(7)).unwrap()), [(1, Vacant), (2, Vacant)]);
        assert_eq!(standings(&it.arbitrate(1, None).unwrap()), [(1, Vacant)]);
        assert_eq!(it.primary(), None);
    }

    #[test]
    fn ids_are_unique_and_zero_is_one() {
        let mut it = Arbitration::default();
        it.arbitrate(1, Some(0)).unwrap();
        assert_eq!(it.primary(), Some(1));
        assert_eq!(it.arbitrate(2, Some(0)).unwrap_err().code, Code::InvalidArgument);
        assert!(!it.knows(2));
        // Any number of backups that never want to be primary.
        it.arbitrate(2, None).unwrap();
        it.arbitrate(3, None).unwrap();
        // The primary one has asked again.
        assert_eq!(it.arbitrate(1, Some(0)).unwrap().len(), 3);
    }
}
