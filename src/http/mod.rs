//! HTTP: the three listeners, their routes, and what is checked before a request means anything.
//!
//! Keeps true: agents, chat platforms and operators never share a listener; a body is read no further than its limit; a
//! 5xx body is constant. Not for the meaning of requests: `mcp` and `chat` have that.

mod auth;
mod health;
mod mcp;
mod slack;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use axum::serve::ListenerExt as _;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::chat::slack::SlackApp;
use crate::domain::source::Clock;
use crate::mcp::server::Services;

pub use auth::AgentKeys;

/// What the handlers share.
pub struct Shared {
    /// The application.
    pub app: App,
    /// The MCP services of every tenant and endpoint.
    pub services: Services,
    /// Who has which key.
    pub keys: AgentKeys,
    /// The Slack installations by the name in their callback address.
    pub slack: BTreeMap<String, SlackApp>,
    /// The process's clock.
    pub clock: Arc<dyn Clock>,
}

/// A listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// For agents.
    Agents,
    /// For chat platforms.
    Callbacks,
    /// For operators, on the loopback interface.
    Admin,
}

/// Every route there is: method, path, listener. Tests walk it.
pub const ROUTES: &[(&str, &str, Listener)] = &[
    ("POST", "/mcp", Listener::Agents),
    ("POST", "/mcp/{upstream}", Listener::Agents),
    ("POST", "/callbacks/slack/{app}", Listener::Callbacks),
    ("GET", "/healthz", Listener::Admin),
    ("GET", "/readyz", Listener::Admin),
];

/// The agents' routes. Another method is 405, another path 404.
pub fn agents(shared: Arc<Shared>) -> Router {
    let router = Router::new().route("/mcp", any(mcp::all)).route("/mcp/{upstream}", any(mcp::one));
    finish(router, shared)
}

/// The chat platforms' routes.
pub fn callbacks(shared: Arc<Shared>) -> Router {
    finish(Router::new().route("/callbacks/slack/{app}", post(slack::callback)), shared)
}

/// The operators' routes.
pub fn admin(shared: Arc<Shared>) -> Router {
    finish(Router::new().route("/healthz", get(health::alive)).route("/readyz", get(health::ready)), shared)
}

fn finish(router: Router<Arc<Shared>>, shared: Arc<Shared>) -> Router {
    router.layer(middleware::from_fn(log)).with_state(shared)
}

/// Serves until `stop`, then finishes what is under way.
///
/// # Errors
/// The listener failed.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> io::Result<()> {
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
    });
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

/// Who asked: put into the response by the handlers that know, for the log line alone.
#[derive(Clone)]
struct LoggedCaller {
    tenant: String,
    agent: String,
}

/// One line for each request: no header, no body, no path beyond the route's pattern.
async fn log(request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let route = request
        .extensions()
        .get::<axum::extract::MatchedPath>()
        .map_or_else(|| "unknown".to_owned(), |path| path.as_str().to_owned());
    let begun = Instant::now();
    let response = next.run(request).await;
    let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let status = response.status().as_u16();
    if let Some(LoggedCaller { tenant, agent }) = response.extensions().get() {
        tracing::info!(%method, route, status, milliseconds, tenant, agent, "request");
    } else {
        tracing::info!(%method, route, status, milliseconds, "request");
    }
    response
}

/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);

/// Reads a body up to a limit and not a byte further, nor for longer than [`BODY_TIME`].
async fn read(body: Body, limit: usize) -> Result<Bytes, Response> {
    match tokio::time::timeout(BODY_TIME, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"))
        }
        Ok(Err(_)) => Err(plain(StatusCode::BAD_REQUEST, "the body broke off")),
        Err(_) => Err(plain(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    (status, text).into_response()
}
