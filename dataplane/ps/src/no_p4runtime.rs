//! In place of what is built with the feature `p4runtime`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use thc_config::server::{P4RuntimeConfig, ServerConfig};

use crate::control_port::ControlPacket;
use crate::error::PsError;
use crate::forwarding::SharedForwarding;
use crate::shards::Shards;
use crate::state::ServerState;

/// There are none.
#[derive(Debug)]
pub struct Certificates(Infallible);

impl Certificates {
    /// Asks that the files be read again.
    pub fn ask(&self) {
        match self.0 {}
    }
}

/// There is none.
#[derive(Debug)]
pub struct Listener(Infallible);

impl Listener {
    /// # Errors
    /// Always [`PsError::NoP4Runtime`].
    pub fn bind(_: &P4RuntimeConfig) -> Result<Listener, PsError> {
        Err(PsError::NoP4Runtime)
    }

    /// Its certificates.
    #[must_use]
    pub fn certificates(&self) -> Option<Arc<Certificates>> {
        match self.0 {}
    }

    /// Where it is.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        match self.0 {}
    }

    /// Serves it.
    pub fn serve(self, _: Service, _: &ServerState) {
        match self.0 {}
    }
}

/// Nobody asks for it without a [`Listener`].
pub struct Service;

impl Service {
    /// The service of this server.
    pub fn new(_: &ServerConfig, _: SocketAddr, _: SharedForwarding, _: Shards, _: usize) -> Service {
        Service
    }

    /// Where a controller's packets go.
    #[must_use]
    pub fn packets_in(&self) -> PacketsIn {
        PacketsIn
    }
}

/// Nobody's packets.
pub struct PacketsIn;

impl PacketsIn {
    /// Drops it.
    pub fn packet(&self, _: &ControlPacket) {}
}
