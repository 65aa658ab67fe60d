//! The client that talks to one upstream MCP server (MCP.md 7.5 to 7.10).
//!
//! Keeps true: one execution is sent at most once; what went out and was not answered is doubt, never failure; an
//! upstream gets nothing of the agent's but the arguments, and in a call that policy allows what `Passing` names; it is
//! answered nothing that it asks by itself. Addresses, bodies and error texts of an upstream enter no log.

mod connection;
mod http;
mod outcome;
mod sharing;
mod tap;

use std::time::Duration;

use ::http::{HeaderName, HeaderValue};

pub use self::http::HttpUpstream;

/// How to reach an upstream over streamable HTTP.
pub struct UpstreamConfig {
    /// Its MCP endpoint.
    pub url: String,
    /// Sent with every request; the values are treated as secrets.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How long one relayed call, or one list of tools, may take in all. An execution brings its own limit.
    pub timeout: Duration,
}

/// The client for upstreams: no redirect is followed, nothing is sent twice, and each request has a fresh connection, so
/// that "can't be connected" means "was not sent". Proxies that the environment names are not used.
///
/// # Errors
/// The TLS library can't be set up.
pub fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .pool_max_idle_per_host(0)
        .connect_timeout(Duration::from_secs(5))
        .tcp_nodelay(true)
        .user_agent(concat!("undersign/", env!("CARGO_PKG_VERSION")))
        .build()
}

#[cfg(test)]
mod tests;
