//! What a request says about itself before anything else is looked at: the host it means, the page it comes from.

use std::net::IpAddr;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::header::{CACHE_CONTROL, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, StatusCode};
use url::{Origin, Url};

use super::plain;

/// The hosts that are ours and the pages that may ask.
pub struct Sites {
    hosts: Vec<(String, Option<u16>)>,
    origins: Vec<Origin>,
}

impl Sites {
    /// `hosts` are names (`name` for any port, `name:port` for that one), `origins` are `scheme://host:port`, the port
    /// left out for the scheme's own. What can't be read opens nothing.
    pub fn new(hosts: &[String], origins: &[String]) -> Self {
        Self {
            hosts: hosts.iter().filter_map(|host| authority(host)).collect(),
            origins: origins.iter().filter_map(|origin| page(origin)).collect(),
        }
    }

    /// Whether the request means one of our hosts and comes from no page, or from one that may ask.
    pub(super) fn admit(&self, parts: &Parts) -> bool {
        self.names_us(parts) && self.may_ask(parts)
    }

    /// HTTP/1 names the host in `Host`, HTTP/2 in `:authority`, and a request may do both: each must be ours.
    fn names_us(&self, parts: &Parts) -> bool {
        named(parts).is_some_and(|named| {
            named.iter().all(|(name, port)| {
                self.hosts.iter().any(|(ours, only)| ours == name && (only.is_none() || only == port))
            })
        })
    }

    fn may_ask(&self, parts: &Parts) -> bool {
        let mut origins = parts.headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (None, _) => true,
            (Some(origin), None) => {
                origin.to_str().ok().and_then(page).is_some_and(|origin| self.origins.contains(&origin))
            }
            (Some(_), Some(_)) => false,
        }
    }
}

/// Refuses what a browser sent for a page: chat platforms and probes are no browsers.
pub(super) async fn no_pages(request: Request, next: Next) -> Response {
    if request.headers().contains_key(ORIGIN) { forbidden() } else { next.run(request).await }
}

/// Refuses what was sent for another host than this machine: a page whose name was made to mean 127.0.0.1 must not read
/// what operators read. There is no `Origin` in that case.
pub(super) async fn this_machine(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let local = named(&parts).is_some_and(|named| {
        named.iter().all(|(name, _)| name == "localhost" || name.parse::<IpAddr>().is_ok())
    });
    if local { next.run(Request::from_parts(parts, body)).await } else { forbidden() }
}

/// Keeps answers out of caches, and from being taken for something else than they say.
pub(super) async fn harden(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(super) fn forbidden() -> Response {
    plain(StatusCode::FORBIDDEN, "this host or origin is not served here")
}

/// Every host that a request names, in lower case, without brackets; none if it names none, or in a way that readers
/// may understand differently.
fn named(parts: &Parts) -> Option<Vec<(String, Option<u16>)>> {
    let mut headers = parts.headers.get_all(HOST).iter();
    let (host, again) = (headers.next(), headers.next());
    if again.is_some() {
        return None;
    }
    let mut named = Vec::new();
    if let Some(host) = host {
        named.push(authority(host.to_str().ok()?)?);
    }
    if let Some(of_uri) = parts.uri.authority() {
        named.push(authority(of_uri.as_str())?);
    }
    (!named.is_empty()).then_some(named)
}

fn authority(text: &str) -> Option<(String, Option<u16>)> {
    // IPv6 addresses of the configuration come without brackets.
    if let Ok(IpAddr::V6(address)) = text.parse() {
        return Some((address.to_string(), None));
    }
    let authority: Authority = text.parse().ok()?;
    let (host, port) = (authority.host(), authority.port());
    // Neither user information nor a port that is no port: `a:b@c`, `a:99999`.
    let whole = host.len() + port.as_ref().map_or(0, |port| port.as_str().len() + 1);
    if text.len() != whole || host.is_empty() {
        return None;
    }
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    Some((host, port.map(|port| port.as_u16())))
}

/// A page's origin, exactly as browsers write it.
fn page(text: &str) -> Option<Origin> {
    let origin = Url::parse(text).ok()?.origin();
    let written = origin.is_tuple() && origin.ascii_serialization().eq_ignore_ascii_case(text);
    // The scheme's own port may be written out in the configuration.
    let with_port = matches!(&origin, Origin::Tuple(scheme, host, port)
        if format!("{scheme}://{host}:{port}").eq_ignore_ascii_case(text));
    (written || with_port).then_some(origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites() -> Sites {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        Sites::new(
            &list(&["127.0.0.1", "gate.example:8443", "::1", "Name.Example"]),
            &list(&["https://app.example", "http://localhost:3000"]),
        )
    }

    fn admit(uri: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = http::Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        sites().admit(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn a_host_is_ours_or_refused() {
        for host in
            ["127.0.0.1", "127.0.0.1:9", "gate.example:8443", "[::1]:80", "name.example", "NAME.example:1"]
        {
            assert!(admit("/mcp", &[("host", host)]), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "gate.example",
            "gate.example:80",
            "127.0.0.1.evil.example",
            "user@127.0.0.1",
            "127.0.0.1:99999",
            "127.0.0.1:",
            "127.0.0.1/",
            "127.0.0.1 ",
            "localhost",
            "name.example.",
            "[127.0.0.1",
        ] {
            assert!(!admit("/mcp", &[("host", host)]), "{host}");
        }
        assert!(!admit("/mcp", &[]), "no host at all");
        assert!(!admit("/mcp", &[("host", "127.0.0.1"), ("host", "127.0.0.1")]), "two");
    }

    #[test]
    fn the_request_line_and_the_header_must_both_name_us() {
        assert!(admit("http://127.0.0.1/mcp", &[]));
        assert!(admit("http://127.0.0.1/mcp", &[("host", "127.0.0.1")]));
        assert!(!admit("http://evil.example/mcp", &[("host", "127.0.0.1")]));
        assert!(!admit("http://127.0.0.1/mcp", &[("host", "evil.example")]));
    }

    #[test]
    fn only_listed_pages_may_ask() {
        let asks = |origins: &[&str]| {
            let mut headers = vec![("host", "127.0.0.1")];
            headers.extend(origins.iter().map(|origin| ("origin", *origin)));
            admit("/mcp", &headers)
        };
        assert!(asks(&[]));
        assert!(asks(&["https://app.example"]) && asks(&["http://localhost:3000"]));
        for origin in [
            "null",
            "",
            "https://evil.example",
            "http://app.example",
            "https://app.example:444",
            "http://localhost",
            "https://app.example/",
            "https://app.example.evil.example",
            "https://user@app.example",
            "app.example",
        ] {
            assert!(!asks(&[origin]), "{origin}");
        }
        assert!(!asks(&["https://app.example", "https://app.example"]), "two");
    }
}
