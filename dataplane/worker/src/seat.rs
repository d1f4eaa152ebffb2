//! A worker's place in a job.

use std::net::{Ipv4Addr, SocketAddr};

/// A worker's place in a job, and the server at which it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The parameter server. Default 127.0.0.1:9000.
    pub ps: SocketAddr,
    /// The job's number. Default 1.
    pub job: u16,
    /// This worker's number, 0 to n − 1. Default 0.
    pub worker: u8,
    /// The job's cookie, as the parameter server has it. Default 0, which no job has.
    pub cookie: u32,
}

impl Default for Seat {
    fn default() -> Self {
        Seat { ps: SocketAddr::from((Ipv4Addr::LOCALHOST, 9000)), job: 1, worker: 0, cookie: 0 }
    }
}
