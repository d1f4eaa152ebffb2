//! Rows of jobs and their members: tables `jobs`, `job_tables`, `members`, `addresses`, `racks` and `roots`.

use super::{Fields, row};
use std::net::SocketAddr;

row! {
    /// Table `jobs`: a job's session, and where its slots lie.
    #[derive(Clone, Debug, PartialEq, Eq)]
    JobRow of "jobs", "set_job",
    key {
        /// Key: the job's number.
        job: u16,
    }
    params {
        /// Selects the job's counters.
        index: u16,
        /// The session's cookie.
        cookie: u32,
        /// Cells of another epoch are empty.
        epoch: u32,
        /// n.
        workers: u8,
        /// Workers that complete a slot.
        quorum: u8,
        /// `true` if a packet may be rounds ahead of its slot (P9).
        skip: bool,
        /// First data slot of the switch that is the job's.
        data_base: u32,
        /// S.
        data_slots: u32,
        /// First norm slot of the switch that is the job's.
        norm_base: u32,
        /// N.
        norm_slots: u32,
        /// Multicast group of the members.
        group: u16,
    }
}

row! {
    /// Table `job_tables`: a job may use a lookup table (P7).
    #[derive(Clone, Debug, PartialEq, Eq)]
    JobTableRow of "job_tables", "allow_table",
    key {
        /// Key: the job's number.
        job: u16,
        /// Key: the lookup table's id.
        table: u8,
    }
    params {
        /// The chip's own number of the lookup table, and whether its lanes have 4 bits, for programs with such numbers.
        on_chip: Option<(u8, bool)>,
    }
}

/// The parameters `lookup` and `half`.
impl Fields for Option<(u8, bool)> {
    fn put(&self, _: &'static str, to: &mut Vec<(&'static str, u128)>) {
        to.extend(self.iter().flat_map(|&(number, half)| [("lookup", number.into()), ("half", half.into())]));
    }
}

row! {
    /// Table `members`: from where a worker's packets must come (P7).
    #[derive(Clone, Debug, PartialEq, Eq)]
    MemberRow of "members", "set_member",
    key {
        /// Key: the job's number.
        job: u16,
        /// Key: the worker's number.
        worker: u8,
    }
    params {
        /// The port it is behind; 0 is any.
        ingress_port: u16,
        /// Its IP address and UDP port.
        at: SocketAddr,
    }
}

row! {
    /// Table `addresses`: where a worker's copies of RESULTs go.
    #[derive(Clone, Debug, PartialEq, Eq)]
    AddressRow of "addresses", "set_address",
    key {
        /// Key: the job's number.
        job: u16,
        /// Key: the worker's number, which is the replica's instance in the job's group.
        worker: u8,
    }
    params {
        /// Its Ethernet address.
        mac: [u8; 6],
        /// Its IP address and UDP port.
        at: SocketAddr,
    }
}

row! {
    /// Table `racks`: a job in which the switch is a rack (P34).
    #[derive(Clone, Debug, PartialEq, Eq)]
    RackRow of "racks", "set_rack",
    key {
        /// Key: the job's number.
        job: u16,
    }
    params {
        /// Its number among the racks.
        rack: u8,
        /// The number of racks.
        racks: u8,
        /// The port behind which the root is.
        port: u16,
    }
}

row! {
    /// Table `roots`: the root's UDP port for the 64 slots of a block (P21).
    #[derive(Clone, Debug, PartialEq, Eq)]
    RootRow of "roots", "set_root",
    key {
        /// Key: the job's number.
        job: u16,
        /// Key: a slot's number divided by 64.
        block: u16,
    }
    params {
        /// The number of this port of the root in `addresses`.
        receiver: u8,
        /// The address and the port.
        at: SocketAddr,
    }
}
