//! Where a controller that runs can be asked.

use std::net::SocketAddr;

/// Where a controller that runs can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The service.
    pub listen: SocketAddr,
    /// Metrics.
    pub http: Option<SocketAddr>,
}
