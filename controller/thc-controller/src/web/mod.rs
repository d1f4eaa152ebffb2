//! Page and metrics over HTTP: for people and for Prometheus.

mod metrics;

use crate::desk::Desk;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::{Router, routing::get};
use serde::Serialize;
use thc_control_proto::v1;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Everything that the page shows.
#[derive(Debug, Serialize)]
struct Status {
    version: &'static str,
    jobs: Vec<v1::Job>,
    targets: Vec<v1::Target>,
    counters: v1::ReadCountersResponse,
}

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

async fn page() -> Html<&'static str> {
    Html(include_str!("page.html"))
}

async fn status(State(desk): State<Desk>) -> Response {
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        jobs: desk.jobs(),
        targets: desk.targets(),
        counters: desk.counters("").unwrap_or_default(),
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (headers, Json(status)).into_response()
}

async fn measured(State(desk): State<Desk>) -> Response {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match metrics::text(desk) {
        Ok(text) => ([(header::CONTENT_TYPE, TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
