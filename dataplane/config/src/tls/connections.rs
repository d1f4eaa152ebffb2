//! TLS handshakes of new connections.

use crate::tls::certificates::Certificates;
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

/// The longest time that a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The largest number of handshakes at a time. Further connections wait.
const MOST: usize = 256;
/// The largest number of connections that wait to be served after their handshakes.
const ROOM: usize = 16;

/// Performs the handshakes of connections, each with the certificates that are current when it begins, and passes on the
/// connections that succeed. The task runs on the current runtime, and ends when the receiver of connections is dropped.
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
                                Ok(Err(error)) => tracing::debug!("a client's handshake failed: {error}"),
                                Err(_) => tracing::debug!("a client did not complete its handshake in time"),
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
