//! The page with certificates, and who looks at it.

use crate::roles::Caller;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use thc_tls::{Certificates, TlsStream};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt};

/// Connections that have shown a certificate, or that they have none.
pub struct Secured {
    local: io::Result<SocketAddr>,
    connections: Pin<Box<dyn Stream<Item = io::Result<TlsStream<TcpStream>>> + Send>>,
}

impl Secured {
    /// A listener with these certificates. It needs the current runtime.
    #[must_use]
    pub fn new(listener: TcpListener, certificates: Arc<Certificates>) -> Secured {
        let local = listener.local_addr();
        let connections = thc_tls::handshakes(TcpListenerStream::new(listener), certificates);
        Secured { local, connections: Box::pin(connections) }
    }
}

impl Listener for Secured {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            match self.connections.next().await {
                Some(Ok(stream)) => {
                    // One that is gone already has no address, and is no loss.
                    if let Ok(address) = stream.get_ref().0.peer_addr() {
                        return (stream, address);
                    }
                }
                Some(Err(error)) => {
                    // Mostly a lack of file descriptors, which may pass.
                    tracing::debug!("the page: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
                None => std::future::pending().await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.local {
            Ok(local) => Ok(*local),
            Err(error) => Err(error.kind().into()),
        }
    }
}

/// Who looks.
#[derive(Clone, Debug)]
pub struct Visitor(pub Caller);

impl Connected<IncomingStream<'_, TcpListener>> for Visitor {
    fn connect_info(_: IncomingStream<'_, TcpListener>) -> Visitor {
        Visitor(Caller::Anybody)
    }
}

impl Connected<IncomingStream<'_, Secured>> for Visitor {
    fn connect_info(stream: IncomingStream<'_, Secured>) -> Visitor {
        let chain = stream.io().get_ref().1.peer_certificates();
        // The first is the client's own; it was checked when the connection was made.
        Visitor(Caller::from_certificate(chain.and_then(|chain| chain.first()).map(AsRef::as_ref)))
    }
}
