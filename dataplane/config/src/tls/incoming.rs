//! Accepted connections: bounded in number, and closed when the peer says nothing.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};
use tokio_stream::Stream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// The time until the first byte of a connection.
const FIRST: Duration = Duration::from_secs(5);
/// The time between two bytes. Servers ask live HTTP/2 peers for a sign of life more often than this.
const IDLE: Duration = Duration::from_secs(120);
/// The time for which nothing is accepted after accepting has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The connections of a listener. At most a number of them are open at a time; further ones are closed at
/// once. One whose peer sends nothing for 5 s at its beginning, or for two minutes later, is closed.
#[derive(Debug)]
pub struct Incoming {
    what: &'static str,
    listener: TcpListener,
    most: usize,
    live: Arc<AtomicUsize>,
    pause: Option<Pin<Box<Sleep>>>,
    /// `true` if the last connection was closed because there were too many.
    full: bool,
}

impl Incoming {
    /// The connections of this listener, at most `most` at a time. `what` names the service in messages.
    pub fn new(what: &'static str, listener: TcpListener, most: usize) -> Incoming {
        Incoming { what, listener, most, live: Arc::default(), pause: None, full: false }
    }

    /// Waits for the next connection. Lack of file descriptors only delays it.
    pub fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<(Connection, SocketAddr)> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(context)) {
                Ok((stream, from)) if self.live.load(Ordering::Relaxed) < self.most => {
                    self.full = false;
                    // Answers are short and waited for.
                    let _ = stream.set_nodelay(true);
                    self.live.fetch_add(1, Ordering::Relaxed);
                    let silence = Box::pin(tokio::time::sleep(FIRST));
                    return Poll::Ready((Connection { stream, silence, live: Arc::clone(&self.live) }, from));
                }
                Ok((_, from)) => {
                    if !std::mem::replace(&mut self.full, true) {
                        tracing::warn!(
                            "{}: {} connections are open, that from {from} was closed; end clients that hold many",
                            self.what,
                            self.most
                        );
                    }
                }
                Err(error) => {
                    tracing::debug!("{}: a connection was not accepted: {error}", self.what);
                    self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
            }
        }
    }

    /// The listener's own address.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_accept(context).map(|(connection, _)| Some(Ok(connection)))
    }
}

/// A connection of [`Incoming`].
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    silence: Pin<Box<Sleep>>,
    live: Arc<AtomicUsize>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(read) => {
                self.silence.as_mut().reset(Instant::now() + IDLE);
                Poll::Ready(read)
            }
            Poll::Pending => {
                ready!(self.silence.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_stream::StreamExt;

    /// Clients that hold connections and say nothing give way to those that come later.
    #[tokio::test]
    async fn silent_connections_end_and_others_come_in() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut incoming = Incoming::new("a test", listener, 2);
        let mut silent = Vec::new();
        let mut served = Vec::new();
        for _ in 0..2 {
            silent.push(TcpStream::connect(at).await.unwrap());
            served.push(incoming.next().await.unwrap().unwrap());
        }
        // A third one is closed at once, while its client waits.
        let mut third = TcpStream::connect(at).await.unwrap();
        let closed = tokio::select! {
            _ = incoming.next() => unreachable!("two are open"),
            read = third.read_u8() => read.unwrap_err().kind(),
        };
        assert!(matches!(closed, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset), "{closed}");
        let mut first = served.remove(0);
        let began = Instant::now();
        assert_eq!(first.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < 2 * FIRST);
        drop(first);
        let mut next = TcpStream::connect(at).await.unwrap();
        let mut accepted = incoming.next().await.unwrap().unwrap();
        next.write_all(b"a").await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap(), b'a');
        // It has spoken, so it may be silent for longer.
        let longer = tokio::time::timeout(FIRST + Duration::from_secs(1), accepted.read_u8()).await;
        assert!(longer.is_err(), "{longer:?}");
    }
}
