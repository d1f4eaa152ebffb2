//! Page and metrics over HTTP: for people and for Prometheus.

mod metrics;
mod status;

use crate::desk::Desk;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::{Router, routing::get};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The page has everything in itself, and asks this controller only.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Serves until told to stop.
pub async fn serve(listener: TcpListener, desk: Desk, mut stop: watch::Receiver<bool>) {
    let app = Router::new()
        .route("/", get(page))
        .route("/api/status", get(status))
        .route("/metrics", get(measured))
        .with_state(desk);
    let end = async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    if let Err(error) = axum::serve(listener, app).with_graceful_shutdown(end).await {
        tracing::error!("the status page ended: {error}");
    }
}

async fn page() -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
    ];
    (headers, Html(include_str!("page.html"))).into_response()
}

async fn status(State(desk): State<Desk>) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], Json(status::read(&desk))).into_response()
}

async fn measured(State(desk): State<Desk>) -> Response {
    match metrics::text(desk) {
        Ok(text) => ([(header::CONTENT_TYPE, thc_metrics::HTTP_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
