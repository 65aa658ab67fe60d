//! HTTP: the three listeners, their routes, and what is checked before a request means anything.
//!
//! Keeps true: agents, chat platforms and operators never share a listener; a body is read no further than its limit and
//! no longer than its time; whoever proves nothing costs no query; a 5xx body is constant. Not for the meaning of
//! requests: `mcp` and `chat` have that.

mod auth;
mod body;
mod client;
mod guard;
mod health;
mod mcp;
mod rate;
pub mod server;
mod slack;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use crate::app::App;
use crate::chat::slack::SlackApp;
use crate::domain::source::Clock;
use crate::mcp::server::Services;

use server::{Arrival, Caps, Timeouts};

pub use auth::AgentKeys;
pub use body::Bodies;
pub use client::TrustedProxies;
pub use guard::Sites;
pub use rate::{Limits, Rate, Rates};

/// What the handlers share.
pub struct Shared {
    /// The application.
    pub app: App,
    /// The MCP services of every tenant and endpoint.
    pub services: Services,
    /// Who has which key.
    pub keys: AgentKeys,
    /// The Slack installations by the name in their callback address.
    pub slack: ArcSwap<BTreeMap<String, SlackApp>>,
    /// The process's clock.
    pub clock: Arc<dyn Clock>,
    /// The hosts and origins of the agents' listener.
    pub sites: Sites,
    /// How much anyone may send.
    pub limits: Limits,
    /// Memory for the bodies of agents that have proved who they are.
    pub bodies: Bodies,
    /// Memory for the bodies of callbacks, which prove nothing before they are read.
    pub callback_bodies: Bodies,
}

/// What can be set otherwise than it is served with: for tests, which can't wait for minutes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tuning {
    /// Time limits of connections.
    pub timeouts: Timeouts,
    /// Connections of each listener.
    pub caps: Caps,
    /// Requests.
    pub rates: Rates,
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
    let router = Router::new().route("/callbacks/slack/{app}", post(slack::callback));
    finish(router.layer(middleware::from_fn(guard::no_pages)), shared)
}

/// The operators' routes.
pub fn admin(shared: Arc<Shared>) -> Router {
    let router = Router::new().route("/healthz", get(health::alive)).route("/readyz", get(health::ready));
    let local = middleware::from_fn(guard::this_machine);
    finish(router.layer(local).layer(middleware::from_fn(guard::no_pages)), shared)
}

fn finish(router: Router<Arc<Shared>>, shared: Arc<Shared>) -> Router {
    router.layer(middleware::from_fn(guard::harden)).layer(middleware::from_fn(log)).with_state(shared)
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

/// Who is counted for a request.
fn client(parts: &Parts) -> IpAddr {
    let arrival = parts.extensions.get::<Arrival>();
    arrival.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |arrival| arrival.client)
}

/// Answers a request beyond a rate: constant but for the seconds to wait.
fn too_many(wait: Duration) -> Response {
    let mut response = plain(StatusCode::TOO_MANY_REQUESTS, "too many requests");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}
