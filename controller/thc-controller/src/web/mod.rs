//! Page and metrics over HTTP: for people and for Prometheus.

mod metrics;
mod secured;
mod status;

pub use secured::{Secured, Visitor};

use crate::desk::Desk;
use crate::roles::{Act, Caller, Roles};
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::serve::{IncomingStream, Listener};
use axum::{Router, routing::get};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::sync::watch;

/// The page has everything in itself, and asks this controller only.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Serves until told to stop, to those who may look.
pub async fn serve<L>(listener: L, desk: Desk, roles: Roles, mut stop: watch::Receiver<bool>)
where
    L: Listener<Addr = SocketAddr>,
    Visitor: for<'a> Connected<IncomingStream<'a, L>>,
{
    let own = listener.local_addr().map(|address| address.ip().to_string()).unwrap_or_default();
    let roles = Arc::new(roles);
    let of_readers = middleware::from_fn(move |visitor, request, next| {
        who_may_look(Arc::clone(&roles), visitor, request, next)
    });
    // A page of somebody else's that a browser takes for this one, by a name that leads here, reads nothing.
    let pages = Router::new()
        .route("/", get(page))
        .route("/api/status", get(status))
        .layer(middleware::from_fn(move |request, next| check_host(own.clone(), request, next)));
    let shown = Router::new().route("/metrics", get(metrics_page)).merge(pages).layer(of_readers);
    let app = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .merge(shown)
        .with_state(desk)
        .into_make_service_with_connect_info::<Visitor>();
    let end = async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    if let Err(error) = axum::serve(listener, app).with_graceful_shutdown(end).await {
        tracing::error!("the status page ended: {error}");
    }
}

/// Who looks: the role that this takes is a certificate's.
async fn who_may_look(
    roles: Arc<Roles>,
    ConnectInfo(Visitor(caller)): ConnectInfo<Visitor>,
    request: Request,
    next: Next,
) -> Response {
    match roles.check(&caller, Act::Look) {
        Ok(()) => next.run(request).await,
        Err(refusal) if caller == Caller::Anybody => {
            let text = format!(
                "{}; ask with it by https:// (https in [controller] of the controller)\n",
                refusal.message
            );
            (StatusCode::FORBIDDEN, text).into_response()
        }
        Err(refusal) => (StatusCode::FORBIDDEN, format!("{}\n", refusal.message)).into_response(),
    }
}

/// Whether a request's Host is an address, this machine, or where this listens; names of others' pages are refused.
fn is_own(own: &str, host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.parse::<IpAddr>().is_ok() || name == "localhost" || name == own || name == machine.trim()
}

async fn check_host(own: String, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    // HTTP/1.0 has none, and no browser speaks it.
    if host.is_empty() || is_own(&own, host) {
        return next.run(request).await;
    }
    let text = format!("the page is not at {host:?}: ask for it by this machine's name or address\n");
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
}

/// Whether this controller is active: a standby is alive, but not ready.
async fn ready(State(desk): State<Desk>) -> Response {
    match desk.state().book().may_change() {
        Ok(()) => "ok\n".into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
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

async fn metrics_page(State(desk): State<Desk>) -> Response {
    match metrics::text(desk) {
        Ok(text) => ([(header::CONTENT_TYPE, thc_metrics::HTTP_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_not_its_own() {
        for own in ["127.0.0.1:9701", "localhost:9701", "[::1]:9701", "10.1.2.3", "head"] {
            assert!(is_own("head", own), "{own}");
        }
        for other in ["evil.example:9701", "127.0.0.1.evil.example", "localhost.evil.example"] {
            assert!(!is_own("127.0.0.1", other), "{other}");
        }
    }
}
