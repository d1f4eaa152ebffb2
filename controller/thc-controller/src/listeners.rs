//! The ports of a controller: that of its service, and that of its metrics.

use crate::config::Config;
use crate::error::ControllerError;
use crate::service::Service;
use crate::web;
use std::net::SocketAddr;
use std::time::Duration;
use thc_config::tls::{CertificateFiles, Certificates, Incoming};
use thc_control_proto::v1::control_server::ControlServer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::transport::Server;

/// Far above any request of ours.
const MAX_MESSAGE: usize = 1 << 20;
/// The interval at which the controller asks whether a client's machine is there, and the time that its answer may take.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The largest number of connections of commands and workers, and of readers of metrics. A worker needs one
/// for a moment when it joins, and one while it reports.
const MAX_CONNECTIONS: usize = 4096;
const MAX_READERS: usize = 64;
/// Requests at a time on each connection.
const MAX_REQUESTS: u32 = 64;

/// The addresses at which a running controller answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The service.
    pub listen: SocketAddr,
    /// Metrics.
    pub http: Option<SocketAddr>,
}

/// Everything that is open.
#[derive(Debug)]
pub struct Listeners {
    /// The address.
    pub addresses: Addresses,
    /// The certificates of the service, if it has any.
    pub certificates: Option<Certificates>,
    listener: TcpListener,
    metrics: Option<TcpListener>,
}

/// The certificates of the service.
pub fn certificates(files: &CertificateFiles) -> Result<Certificates, ControllerError> {
    let what = "the service";
    Certificates::read(what, files)
        .map_err(|error| ControllerError::Tls { what: what.to_owned(), message: error.to_string() })
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

impl Listeners {
    /// Opens all that a configuration asks for.
    pub async fn open(config: &Config) -> Result<Listeners, ControllerError> {
        let (listener, listen) = bind(config.listen).await?;
        if let Some(warning) = exposure(listen, config.tls.as_ref().map(|tls| tls.client_ca.is_some())) {
            tracing::warn!("{warning}");
        }
        if let Some(address) = config.http.filter(|address| !address.ip().is_loopback()) {
            tracing::warn!(
                "metrics on {address}: whoever reaches it can read jobs and who works for them; listen on the loopback or on a network of your own"
            );
        }
        let certificates = config.tls.as_ref().map(certificates).transpose()?;
        let metrics = match config.http {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let http = metrics.as_ref().map(|(_, address)| *address);
        Ok(Listeners {
            addresses: Addresses { listen, http },
            certificates,
            listener,
            metrics: metrics.map(|(listener, _)| listener),
        })
    }

    /// Serves metrics by `tasks`, and the service by what is returned, until `stop` is true.
    pub fn serve(
        self,
        service: Service,
        tasks: &mut JoinSet<()>,
        stop: &watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), tonic::transport::Error>> + use<> {
        let Listeners { certificates, listener, metrics, .. } = self;
        if let Some(metrics) = metrics {
            let incoming = Incoming::new("metrics", metrics, MAX_READERS);
            tasks.spawn(web::serve(incoming, service.clone(), stop.clone()));
        }
        let control = ControlServer::new(service).max_decoding_message_size(MAX_MESSAGE);
        let mut server = Server::builder()
            .max_concurrent_streams(MAX_REQUESTS)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE));
        let end = wait_for_end(stop.clone());
        async move {
            if let Some(certificates) = certificates {
                server = server.tls_config(certificates.config())?;
            }
            let connections = Incoming::new("the service", listener, MAX_CONNECTIONS);
            server.add_service(control).serve_with_incoming_shutdown(connections, end).await
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
