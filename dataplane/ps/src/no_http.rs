//! In place of what is built with the feature `http`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use thc_ps::Server;

/// There is none.
pub struct MetricsServer(Infallible);

impl MetricsServer {
    /// Its address.
    pub fn local(&self) -> SocketAddr {
        match self.0 {}
    }
}

/// # Errors
/// Always: this program has no such server.
pub fn serve(_: SocketAddr, _: Arc<Server>) -> anyhow::Result<MetricsServer> {
    anyhow::bail!(
        "--http: this build has no statistics for Prometheus: build thc-ps with its default features"
    )
}
