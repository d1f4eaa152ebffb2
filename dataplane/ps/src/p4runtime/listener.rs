//! The port, and the thread that serves it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering;
use std::time::Duration;

use p4runtime_proto::v1::p4_runtime_server::P4RuntimeServer;
use tonic::transport::Server;

use super::service::Service;
use crate::error::PsError;
use crate::state::ServerState;
use thc_config::server::P4RuntimeConfig;
use thc_config::tls::{Certificates, Incoming};

/// The largest message taken: a pipeline configuration with BMv2's JSON.
const MAX_MESSAGE: usize = 8 << 20;
/// The largest number of connections at a time.
const MAX_CONNECTIONS: usize = 64;
/// Requests at a time on each, streams included.
const MAX_REQUESTS: u32 = 16;
/// The interval at which the service checks whether the server stops.
const TICK: Duration = Duration::from_millis(50);
/// The interval of HTTP/2 pings, and the time in which a controller must answer one. So the server notices that a
/// controller's machine is gone.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// An open port.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    local: SocketAddr,
    certificates: Option<Certificates>,
}

impl Listener {
    /// Opens it.
    ///
    /// # Errors
    /// [`PsError::P4Runtime`], [`PsError::Certificates`].
    pub fn bind(config: &P4RuntimeConfig) -> Result<Listener, PsError> {
        let open = || {
            let listener = TcpListener::bind(config.listen)?;
            listener.set_nonblocking(true)?;
            let local = listener.local_addr()?;
            Ok((listener, local))
        };
        let (listener, local) = open().map_err(|cause| PsError::P4Runtime { addr: config.listen, cause })?;
        let open_to_all = config.tls.as_ref().is_none_or(|tls| tls.client_ca.is_none());
        if open_to_all && !local.ip().is_loopback() {
            let lacks = if config.tls.is_some() { "client_ca" } else { "encryption" };
            tracing::warn!(
                "P4Runtime listens on {local} without {lacks}: any client that reaches it can change and see all jobs"
            );
        }
        let certificates = config.tls.as_ref().map(|tls| Certificates::read("P4Runtime", tls));
        let certificates =
            certificates.transpose().map_err(|error| PsError::Certificates { message: error.to_string() })?;
        Ok(Listener { listener, local, certificates })
    }

    /// The address that the service has.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Serves it until the server stops.
    pub fn serve(self, service: Service, shared: &ServerState) {
        let addr = self.local;
        let served = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .and_then(|runtime| runtime.block_on(self.run(service, shared)));
        if let Err(cause) = served {
            shared.fail(PsError::P4Runtime { addr, cause });
        }
    }

    async fn run(self, service: Service, shared: &ServerState) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let service = P4RuntimeServer::new(service).max_decoding_message_size(MAX_MESSAGE);
        let mut server = Server::builder()
            .max_concurrent_streams(MAX_REQUESTS)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE));
        if let Some(certificates) = &self.certificates {
            server = server.tls_config(certificates.config()).map_err(io::Error::other)?;
        }
        let incoming = Incoming::new("P4Runtime", listener, MAX_CONNECTIONS);
        let serving = server.add_service(service).serve_with_incoming(incoming);
        tokio::select! {
            served = serving => served.map_err(io::Error::other),
            () = wait_for_stop(shared) => Ok(()),
        }
    }
}

async fn wait_for_stop(shared: &ServerState) {
    while !shared.stop.load(Ordering::Relaxed) {
        tokio::time::sleep(TICK).await;
    }
}
