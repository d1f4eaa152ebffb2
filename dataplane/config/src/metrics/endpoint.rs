//! A server that answers only `/metrics`, on a thread of its own.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use tokio::sync::oneshot;

/// The content type of an answer.
pub const HTTP_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Requests within this time get the same text, so that the work of the threads that handle packets is bounded, however
/// many clients ask.
const AGE: Duration = Duration::from_millis(200);

/// A server of `/metrics`, which answers until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    local: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

type Last = Option<(Instant, String)>;

struct Source<F> {
    make: F,
    last: Mutex<Last>,
}

impl MetricsServer {
    /// Listens and answers `GET /metrics` with the text that `make` returns. The endpoint's thread calls `make`.
    ///
    /// # Errors
    /// An error if the address is in use or is not an address of this machine, or if no thread can be started. The message
    /// names the address and what to do.
    pub fn serve<F>(address: SocketAddr, make: F) -> io::Result<MetricsServer>
    where
        F: Fn() -> Result<String, fmt::Error> + Send + Sync + 'static,
    {
        MetricsServer::start(address, make).map_err(|error| {
            let mend = "choose another address or port, or stop the other process";
            io::Error::new(error.kind(), format!("cannot serve /metrics on {address}; {mend}: {error}"))
        })
    }

    fn start<F>(address: SocketAddr, make: F) -> io::Result<MetricsServer>
    where
        F: Fn() -> Result<String, fmt::Error> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let local = listener.local_addr()?;
        if !local.ip().is_loopback() {
            tracing::warn!(
                "/metrics on {local}: whoever reaches it can read the statistics; listen on the loopback, or on a network of \
                 your own"
            );
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let source = Arc::new(Source { make, last: Mutex::new(None) });
        let app = Router::new().route("/metrics", get(answer::<F>)).with_state(source);
        let (stop, stopped) = oneshot::channel();
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            // No connection may keep the program from ending.
            tokio::select! {
                ended = axum::serve(listener, app) => ended,
                _ = stopped => Ok(()),
            }
        };
        let thread = thread::Builder::new().name("thc-metrics".to_owned()).spawn(move || {
            if let Err(error) = runtime.block_on(serve) {
                tracing::error!("the server of /metrics has ended: {error}");
            }
        })?;
        Ok(MetricsServer { local, stop: Some(stop), thread: Some(thread) })
    }

    /// The address on which the server listens.
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that serves /metrics has panicked");
        }
    }
}

impl<F: Fn() -> Result<String, fmt::Error>> Source<F> {
    fn text(&self) -> Result<String, fmt::Error> {
        // The text is whole even after a panic, since it is stored in one piece.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, text)) = &*last
            && made.elapsed() < AGE
        {
            return Ok(text.clone());
        }
        let text = (self.make)()?;
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

async fn answer<F>(State(source): State<Arc<Source<F>>>) -> Response
where
    F: Fn() -> Result<String, fmt::Error> + Send + Sync + 'static,
{
    match source.text() {
        Ok(text) => ([(header::CONTENT_TYPE, HTTP_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
