//! Table `members`: from where a worker's packets must come (P7).

use super::Row;
use std::net::SocketAddr;
use thc_transport::frame::address_number;

/// A member and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Key: the job's number.
    pub job: u16,
    /// Key: the worker's number.
    pub worker: u8,
    /// The port it is behind; 0 is any.
    pub ingress_port: u16,
    /// Its IP address and UDP port.
    pub at: SocketAddr,
}

impl Row for Member {
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
