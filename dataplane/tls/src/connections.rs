//! Connections that have shown their certificates.

use crate::certificates::Certificates;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};

/// How long somebody may take to show a certificate.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections that are at it at a time; further ones wait.
const MOST: usize = 256;
/// Connections that may wait to be served.
const ROOM: usize = 16;

/// Lets connections show who they are, each by itself, and hands on those that have; with the certificates that there are when each
/// begins. It ends when nobody takes them any more. The task that does it runs on the current runtime.
pub fn handshakes<S>(
    connections: impl Stream<Item = io::Result<S>> + Send + 'static,
    certificates: Arc<Certificates>,
) -> impl Stream<Item = io::Result<TlsStream<S>>> + Send + Unpin + 'static
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(ROOM);
    tokio::spawn(async move {
        let mut connections = pin!(connections);
        let mut shaking = JoinSet::new();
        loop {
            tokio::select! {
                () = sender.closed() => return,
                Some(_) = shaking.join_next() => {}
                next = connections.next(), if shaking.len() < MOST => match next {
                    None => break,
                    Some(Err(error)) => {
                        if sender.send(Err(error)).await.is_err() {
                            return;
                        }
                    }
                    Some(Ok(stream)) => {
                        let (sender, acceptor) = (sender.clone(), TlsAcceptor::from(certificates.config()));
                        shaking.spawn(async move {
                            match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                                Ok(Ok(stream)) => drop(sender.send(Ok(stream)).await),
                                Ok(Err(error)) => tracing::debug!("a client is not let in: {error}"),
                                Err(_) => tracing::debug!("a client has not shown who it is in time"),
                            }
                        });
                    }
                },
            }
        }
        while shaking.join_next().await.is_some() {}
    });
    ReceiverStream::new(receiver)
}
