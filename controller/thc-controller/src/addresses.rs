//! Where a controller that runs can be asked.

use std::net::SocketAddr;

/// Where a controller that runs can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The service.
    pub listen: SocketAddr,
    /// Page and metrics.
    pub http: Option<SocketAddr>,
    /// The same with certificates.
    pub https: Option<SocketAddr>,
}
