//! Table `roots`: the root's UDP port for 64 slots each (P21).

use super::Row;
use std::net::SocketAddr;
use thc_transport::frame::address_number;

/// The root, as it is for the slots of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Key: the job's number.
    pub job: u16,
    /// Key: a slot's number divided by 64.
    pub block: u16,
    /// The number of this port of the root in `addresses`.
    pub receiver: u8,
    /// The address and the port.
    pub at: SocketAddr,
}

impl Row for Root {
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
