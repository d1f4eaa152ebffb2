//! A target as a rack of a job (P34 to P38).

use crate::config::mac;
use crate::section::JobSection;
use std::net::{SocketAddr, SocketAddrV4};
use thc_protocol::WorkerId;
use thc_protocol::aggregator::{Endpoint, Level, Racks};
use thc_protocol::wire::{Form, Table};
use thc_transport::frame::Mac;
use tonic::Status;

/// Which rack a job's target is, and where the root is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RackPlace {
    /// Its number.
    pub number: u8,
    /// Workers of each rack, and how many of them complete a sum.
    pub sizes: Vec<(u8, u8)>,
    /// The root's first port.
    pub root: SocketAddr,
    /// The root's Ethernet address.
    pub mac: Mac,
}

impl RackPlace {
    /// The rack that a section asks for. Whether the racks make sense is for thc-ps's own checks.
    pub fn from_section(asked: &JobSection) -> Result<Option<RackPlace>, Status> {
        let (Some(number), Some(racks), Some(root), Some(address)) =
            (asked.rack, &asked.options.racks, &asked.root, &asked.root_mac)
        else {
            return Ok(None);
        };
        let wrong = |what: String| Status::invalid_argument(format!("job {}: {what}", asked.name()));
        let small = |number: u64| u8::try_from(number).unwrap_or(u8::MAX);
        // A switch is the rack, and switches speak IPv4.
        let at: SocketAddrV4 = root.parse().map_err(|_| {
            wrong(format!("root is {root:?}: give an IPv4 address and a port, such as 10.0.0.1:9000"))
        })?;
        Ok(Some(RackPlace {
            number: small(number.into()),
            sizes: racks.iter().map(|size| (small(size.workers), small(size.quorum))).collect(),
            root: at.into(),
            mac: mac("root_mac", address).map_err(|error| wrong(error.to_string()))?,
        }))
    }

    /// The root's Ethernet address, as it is written.
    pub fn mac_text(&self) -> String {
        self.mac.map(|byte| format!("{byte:02x}")).join(":")
    }

    /// The form of a table's packets between this rack and its workers; `None` if racks cannot have it.
    pub fn form(&self, table: &Table) -> Option<Form> {
        let racks = Racks {
            count: self.sizes.len() as u8,
            largest: self.sizes.iter().map(|&(workers, _)| workers).max().unwrap_or(0),
            total: self.sizes.iter().map(|&(workers, _)| u16::from(workers)).sum(),
        };
        let level =
            Level::Rack { racks, rack: WorkerId(self.number), root: Endpoint::udp(self.root), ports: 1 };
        let below = level.lookup(&table.into())?.form;
        // A switch adds as many coordinates a packet as fit its passes.
        Form::new(below.width(), below.lane())
    }
}
