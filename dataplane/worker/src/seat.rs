//! Where a worker joins, as a controller says.

use std::net::SocketAddr;

/// A worker's seat in a job, and the server at which it joins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    /// The parameter server.
    pub ps: SocketAddr,
    /// The job's number.
    pub job: u16,
    /// The worker's number.
    pub worker: u8,
    /// The job's cookie.
    pub cookie: u32,
}
