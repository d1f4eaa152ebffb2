//! Metrics and probes over HTTP.

mod metrics;

use crate::service::Service;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use axum::{Router, routing::get};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use thc_config::tls::{Connection, Incoming};
use tokio::sync::watch;

/// A controller whose last change has not been in its file for so long is not ready.
const UNSAVED: Duration = Duration::from_secs(5);

struct Readers(Incoming);

impl Listener for Readers {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        std::future::poll_fn(|context| self.0.poll_accept(context)).await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// Serves until `stop` is set.
pub async fn serve(incoming: Incoming, service: Service, mut stop: watch::Receiver<bool>) {
    let app = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_page))
        .with_state(service);
    let end = async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    if let Err(error) = axum::serve(Readers(incoming), app).with_graceful_shutdown(end).await {
        tracing::error!("metrics are no longer served: {error}");
    }
}

/// A controller that cannot write its file is alive, but not ready.
async fn ready(State(service): State<Service>) -> Response {
    let unsaved = service.state().unsaved();
    if unsaved < UNSAVED {
        return "ok\n".into_response();
    }
    let seconds = unsaved.as_secs();
    let text = format!("the state file has not been written for {seconds} s: see to the disk\n");
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn metrics_page(State(service): State<Service>) -> Response {
    match metrics::text(service) {
        Ok(text) => ([(header::CONTENT_TYPE, thc_config::metrics::HTTP_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
