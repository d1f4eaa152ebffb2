//! Table `jobs`: which jobs there are and where their slots lie.

use super::Row;

/// A job's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Key: the job's number.
    pub job: u16,
    /// Selects the job's counters, 0 to 15.
    pub index: u8,
    /// The session's cookie.
    pub cookie: u32,
    /// Cells of another epoch are empty.
    pub epoch: u32,
    /// n.
    pub workers: u8,
    /// Workers that complete a slot.
    pub quorum: u8,
    /// Whether a packet may be rounds ahead of its slot (P9).
    pub skip: bool,
    /// First data slot of the switch that is the job's.
    pub data_base: u32,
    /// S.
    pub data_slots: u32,
    /// First norm slot of the switch that is the job's.
    pub norm_base: u32,
    /// N.
    pub norm_slots: u32,
    /// Multicast group of the members.
    pub group: u16,
}

impl Row for Job {
    const TABLE: &'static str = "jobs";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("job", self.job.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        let params = vec![
            ("index", self.index.into()),
            ("cookie", self.cookie.into()),
            ("epoch", self.epoch.into()),
            ("workers", self.workers.into()),
            ("quorum", self.quorum.into()),
            ("skip", self.skip.into()),
            ("data_base", self.data_base.into()),
            ("data_slots", self.data_slots.into()),
            ("norm_base", self.norm_base.into()),
            ("norm_slots", self.norm_slots.into()),
            ("group", self.group.into()),
        ];
        ("set_job", params)
    }
}
