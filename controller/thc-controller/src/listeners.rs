//! What a controller serves: its service with and without certificates and by its socket, and the page.

use crate::addresses::Addresses;
use crate::config::{Config, LocalSocket};
use crate::desk::Desk;
use crate::error::ControllerError;
use crate::roles::Roles;
use crate::service::Service;
use crate::socket::{self, Socket};
use crate::web;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use thc_control_proto::v1::control_server::ControlServer;
use thc_tls::{CertificateFiles, Certificates, ClientCertificates};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::transport::Server;
use tonic_health::pb::health_server::{Health, HealthServer};

/// Far above any request of ours.
const MAX_MESSAGE: usize = 1 << 20;
/// How soon the controller notices that a client's machine is gone: it asks so often, and the client must
/// answer so soon.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Everything that is open.
#[derive(Debug)]
pub struct Listeners {
    /// Where.
    pub addresses: Addresses,
    /// The certificates of the service and of the page, if they have any.
    pub certificates: Vec<Arc<Certificates>>,
    service: TcpListener,
    local: Option<(Socket, UnixListener)>,
    page: Option<TcpListener>,
    secured_page: Option<TcpListener>,
    roles: Roles,
}

/// The certificates of the service, and those of the page.
///
/// # Errors
/// [`ControllerError::Tls`].
pub fn certificates(files: &CertificateFiles) -> Result<[Arc<Certificates>; 2], ControllerError> {
    let open = |what, protocol, clients| {
        Certificates::open(what, files.clone(), protocol, clients).map(Arc::new).map_err(|error| {
            ControllerError::Tls { what: "the service".to_owned(), message: error.to_string() }
        })
    };
    // Probes of the page have no certificates; what is not theirs to see asks for one by roles.
    Ok([
        open("the service", b"h2", ClientCertificates::Certified)?,
        open("the page", b"http/1.1", ClientCertificates::Any)?,
    ])
}

/// The warning if strangers may use the service. `tls` says whether clients need certificates, if it has any.
fn exposure(listen: SocketAddr, tls: Option<bool>) -> Option<String> {
    let (what, way) = match tls {
        _ if listen.ip().is_loopback() => return None,
        None => ("jobs' secrets travel readably, and whoever reaches it", "give [controller.tls]"),
        Some(false) => ("whoever reaches it", "give client_ca in [controller.tls]"),
        Some(true) => return None,
    };
    Some(format!(
        "listening on {listen}: {what} may join, create and delete jobs; {way}, or listen on the loopback"
    ))
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ControllerError> {
    let failed = |error: std::io::Error| ControllerError::Listen { address, message: error.to_string() };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok((listener, local))
}

async fn bind_if(address: Option<SocketAddr>) -> Result<Option<(TcpListener, SocketAddr)>, ControllerError> {
    match address {
        Some(address) => bind(address).await.map(Some),
        None => Ok(None),
    }
}

/// The socket for commands on this machine. If it was not configured, failing to open it does not prevent
/// serving.
fn local(wanted: &LocalSocket) -> Result<Option<(Socket, UnixListener)>, ControllerError> {
    let (path, asked) = match wanted {
        LocalSocket::None => return Ok(None),
        LocalSocket::At(path) => (path.clone(), true),
        LocalSocket::Default => match socket::default_path() {
            Some(path) => (path, false),
            None => return Ok(None),
        },
    };
    match Socket::bind(&path) {
        Ok(bound) => {
            tracing::info!("commands on this machine are taken by {}", path.display());
            Ok(Some(bound))
        }
        Err(error) if asked => Err(error),
        Err(error) => {
            tracing::info!("{error}; commands on this machine need --controller");
            Ok(None)
        }
    }
}

impl Listeners {
    /// Opens all that a configuration asks for.
    ///
    /// # Errors
    /// [`ControllerError::Listen`], [`ControllerError::Socket`], [`ControllerError::Tls`].
    pub async fn open(config: &Config) -> Result<Listeners, ControllerError> {
        let (service, listen) = bind(config.listen).await?;
        if let Some(warning) = exposure(listen, config.tls.as_ref().map(|tls| tls.client_ca.is_some())) {
            tracing::warn!("{warning}");
        }
        if let Some(address) = config.http.filter(|address| !address.ip().is_loopback()) {
            tracing::warn!(
                "page and metrics on {address}: whoever reaches it can read jobs and who works for them; listen on the loopback or on a network of your own, or give https and readers"
            );
        }
        let certificates = config.tls.as_ref().map(certificates).transpose()?;
        let (page, secured_page) = (bind_if(config.http).await?, bind_if(config.https).await?);
        let at = |bound: &Option<(TcpListener, SocketAddr)>| bound.as_ref().map(|(_, address)| *address);
        Ok(Listeners {
            addresses: Addresses { listen, http: at(&page), https: at(&secured_page) },
            certificates: certificates.into_iter().flatten().collect(),
            service,
            local: local(&config.socket)?,
            page: page.map(|(listener, _)| listener),
            secured_page: secured_page.map(|(listener, _)| listener),
            roles: config.roles.clone(),
        })
    }

    /// Serves pages and socket by `tasks`, and the service by what is returned, until `stop` is true.
    pub fn serve<H: Health>(
        self,
        desk: Desk,
        health: HealthServer<H>,
        tasks: &mut JoinSet<()>,
        stop: &watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), tonic::transport::Error>> + use<H> {
        let Listeners { certificates, service, local, page, secured_page, roles, .. } = self;
        let mut all = certificates.into_iter();
        let (of_service, of_page) = (all.next(), all.next());
        if let Some(listener) = page {
            tasks.spawn(web::serve(listener, desk.clone(), roles.clone(), stop.clone()));
        }
        if let (Some(listener), Some(certificates)) = (secured_page, of_page) {
            let secured = web::Secured::new(listener, certificates);
            tasks.spawn(web::serve(secured, desk.clone(), roles.clone(), stop.clone()));
        }
        let control = ControlServer::new(Service { desk, roles }).max_decoding_message_size(MAX_MESSAGE);
        let server = || {
            Server::builder()
                .http2_keepalive_interval(Some(KEEPALIVE))
                .http2_keepalive_timeout(Some(KEEPALIVE))
                .add_service(health.clone())
                .add_service(control.clone())
        };
        if let Some((socket, listener)) = local {
            let (server, end) = (server(), wait_for_end(stop.clone()));
            tasks.spawn(async move {
                let connections = UnixListenerStream::new(listener);
                if let Err(error) = server.serve_with_incoming_shutdown(connections, end).await {
                    tracing::error!("the socket for commands on this machine is no longer served: {error}");
                }
                drop(socket);
            });
        }
        let (server, end) = (server(), wait_for_end(stop.clone()));
        async move {
            let connections = TcpListenerStream::new(service);
            match of_service {
                None => server.serve_with_incoming_shutdown(connections, end).await,
                Some(certificates) => {
                    let connections = thc_tls::handshakes(connections, certificates);
                    server.serve_with_incoming_shutdown(connections, end).await
                }
            }
        }
    }
}

async fn wait_for_end(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_to_all_without_certificates_is_warned() {
        let (all, own) = ("0.0.0.0:9700".parse().unwrap(), "127.0.0.1:9700".parse().unwrap());
        assert!(exposure(all, None).unwrap().contains("give [controller.tls]"));
        assert!(exposure(all, Some(false)).unwrap().contains("give client_ca"));
        for (at, tls) in [(all, Some(true)), (own, None), (own, Some(false))] {
            assert_eq!(exposure(at, tls), None, "{at} {tls:?}");
        }
    }
}
