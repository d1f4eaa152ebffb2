//! Rows of jobs and their members: tables `jobs`, `job_tables`, `members`, `addresses`, `racks` and `roots`.

use super::{Row, address_number, mac_number};
use std::net::SocketAddr;

/// Table `jobs`: a job's session, and where its slots lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// Key: the job's number.
    pub job: u16,
    /// Selects the job's counters.
    pub index: u16,
    /// The session's cookie.
    pub cookie: u32,
    /// Cells of another epoch are empty.
    pub epoch: u32,
    /// n.
    pub workers: u8,
    /// Workers that complete a slot.
    pub quorum: u8,
    /// `true` if a packet may be rounds ahead of its slot (P9).
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

impl Row for JobRow {
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

/// Table `job_tables`: a job may use a lookup table (P7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobTableRow {
    /// Key: the job's number.
    pub job: u16,
    /// Key: the lookup table's id.
    pub table: u8,
    /// The chip's own number of the lookup table, and whether its lanes have 4 bits, for programs with such numbers.
    pub on_chip: Option<(u8, bool)>,
}

impl Row for JobTableRow {
    const TABLE: &'static str = "job_tables";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("job", self.job.into()), ("table", self.table.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        let place = self.on_chip.map(|(number, half)| [("lookup", number.into()), ("half", half.into())]);
        ("allow_table", place.into_iter().flatten().collect())
    }
}

/// Table `members`: from where a worker's packets must come (P7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRow {
    /// Key: the job's number.
    pub job: u16,
    /// Key: the worker's number.
    pub worker: u8,
    /// The port it is behind; 0 is any.
    pub ingress_port: u16,
    /// Its IP address and UDP port.
    pub at: SocketAddr,
}

impl Row for MemberRow {
    const TABLE: &'static str = "members";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("job", self.job.into()), ("worker", self.worker.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        let params = vec![
            ("ingress_port", self.ingress_port.into()),
            ("address", address_number(self.at.ip())),
            ("udp_port", self.at.port().into()),
        ];
        ("set_member", params)
    }
}

/// Table `addresses`: where a worker's copies of RESULTs go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRow {
    /// Key: the job's number.
    pub job: u16,
    /// Key: the worker's number, which is the replica's instance in the job's group.
    pub worker: u8,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its IP address and UDP port.
    pub at: SocketAddr,
}

impl Row for AddressRow {
    const TABLE: &'static str = "addresses";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("job", self.job.into()), ("worker", self.worker.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        let params = vec![
            ("mac", mac_number(self.mac)),
            ("address", address_number(self.at.ip())),
            ("udp_port", self.at.port().into()),
        ];
        ("set_address", params)
    }
}

/// Table `racks`: a job in which the switch is a rack (P34).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RackRow {
    /// Key: the job's number.
    pub job: u16,
    /// Its number among the racks.
    pub rack: u8,
    /// How many racks there are.
    pub racks: u8,
    /// The port behind which the root is.
    pub port: u16,
}

impl Row for RackRow {
    const TABLE: &'static str = "racks";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("job", self.job.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        let params =
            vec![("rack", self.rack.into()), ("racks", self.racks.into()), ("port", self.port.into())];
        ("set_rack", params)
    }
}

/// Table `roots`: the root's UDP port for the 64 slots of a block (P21).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootRow {
    /// Key: the job's number.
    pub job: u16,
    /// Key: a slot's number divided by 64.
    pub block: u16,
    /// The number of this port of the root in `addresses`.
    pub receiver: u8,
    /// The address and the port.
    pub at: SocketAddr,
}

impl Row for RootRow {
    const TABLE: &'static str = "roots";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("job", self.job.into()), ("block", self.block.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        let params = vec![
            ("receiver", self.receiver.into()),
            ("address", address_number(self.at.ip())),
            ("udp_port", self.at.port().into()),
        ];
        ("set_root", params)
    }
}
