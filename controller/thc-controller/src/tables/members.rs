//! Table `members`: from where a worker's packets must come (P7).

use super::Row;
use std::net::SocketAddrV4;

/// A member and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Key: the job's number.
    pub job: u16,
    /// Key: the worker's number.
    pub worker: u8,
    /// The port it is behind; 0 is any.
    pub ingress_port: u16,
    /// Its IPv4 address and UDP port.
    pub at: SocketAddrV4,
}

impl Row for Member {
    const TABLE: &'static str = "members";

    fn key(&self) -> Vec<(&'static str, u128)> {
        vec![("job", self.job.into()), ("worker", self.worker.into())]
    }

    fn action(&self) -> (&'static str, Vec<(&'static str, u128)>) {
        let params = vec![
            ("ingress_port", self.ingress_port.into()),
            ("address", u32::from(*self.at.ip()).into()),
            ("udp_port", self.at.port().into()),
        ];
        ("set_member", params)
    }
}
