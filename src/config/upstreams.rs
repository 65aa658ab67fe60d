//! `[tenants.NAME.upstreams.*]`: where calls go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use toml::Table;
use url::{Host, Url};

use super::Environment;
use super::reader::{Reader, Section, is_name};
use super::secret::{self, Rules};
use crate::domain::ids::UpstreamName;

/// How long a call may take, where the configuration does not say.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest text of `environment`, which stands on every card.
const LONGEST_ENVIRONMENT: usize = 64;

/// Headers that the protocol gives a meaning, so that nobody may set them.
const RESERVED: [&str; 13] = [
    "accept",
    "connection",
    "expect",
    "keep-alive",
    "proxy-connection",
    "trailer",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Names and addresses of metadata services, besides the link-local ones.
const METADATA_HOSTS: [&str; 2] = ["metadata", "metadata.google.internal"];
const METADATA_ADDRESSES: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// `[tenants.NAME.upstreams.NAME]`.
#[derive(Debug, Clone)]
pub struct UpstreamConfig {
    /// Streamable HTTP endpoint.
    pub url: Url,
    /// Headers sent with every request; their values are secrets, and valid header values.
    pub headers: BTreeMap<String, SecretString>,
    /// How long one call may take.
    pub timeout: Duration,
    /// Shown on every card and bound.
    pub environment: Option<String>,
}

/// Reads one upstream.
pub(super) fn upstream(
    reader: &mut Reader,
    tenant: &str,
    name: String,
    table: Table,
    environment: &Environment<'_>,
) -> Option<(UpstreamName, UpstreamConfig)> {
    let mut section =
        Section::new(reader, "tenants.*.upstreams.*", format!("tenants.{tenant}.upstreams.{name}"), table);
    // Agents see `NAME__tool`, which must be read back in one way only.
    if !is_name(&name) || name.contains("__") || name.ends_with('_') {
        section.fault("", "must have a name of 1 to 32 characters a-z, 0-9, '-' and '_', without '__' and no '_' at its end");
    }
    let stdio = section.has("command");
    section.not_built(&["command", "env", "read_only", "pass"]);
    let insecure = section.optional("allow_insecure").unwrap_or(false);
    let written: Option<String> = if stdio { section.optional("url") } else { section.required("url") };
    let url =
        written.and_then(|text| address(&text, insecure).map_err(|fault| section.fault("url", fault)).ok());
    let headers = headers(&mut section, environment);
    let timeout = section.optional("timeout").unwrap_or(TIMEOUT);
    if !(Duration::from_secs(1)..=Duration::from_secs(300)).contains(&timeout) {
        section.fault("timeout", "must be from 1s to 5m");
    }
    let shown: Option<String> = section.optional("environment");
    if shown.as_ref().is_some_and(|text| !is_plain(text)) {
        section.fault("environment", "must be 1 to 64 printable ASCII characters, such as \"production\"");
    }
    section.end();
    Some((UpstreamName::new(name), UpstreamConfig { url: url?, headers, timeout, environment: shown }))
}

fn is_plain(text: &str) -> bool {
    let printable = text.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    printable && !text.trim().is_empty() && text.len() <= LONGEST_ENVIRONMENT
}

fn headers(section: &mut Section<'_>, environment: &Environment<'_>) -> BTreeMap<String, SecretString> {
    let mut headers = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (header, value) in section.optional::<Table>("headers").unwrap_or_default() {
        let key = format!("headers.{header}");
        let lower = header.to_ascii_lowercase();
        if http::HeaderName::try_from(&header).is_err() {
            section.fault(&key, "is not a header's name");
        } else if RESERVED.contains(&lower.as_str()) || lower.starts_with("mcp-") {
            section.fault(&key, "is set by undersign itself: remove it");
        } else if !seen.insert(lower) {
            section.fault(&key, "is there twice: header names differ in more than case");
        }
        let Some(secret) = secret::resolve(section, &key, &value, Rules::TEXT, environment) else { continue };
        if http::HeaderValue::try_from(secret.expose_secret()).is_err() {
            section.fault(
                &key,
                "has characters in it that no header may have: only printable ASCII can be sent",
            );
        }
        headers.insert(header, secret);
    }
    headers
}

/// Where an upstream may be: no address that a metadata service hides behind, no credentials in it, and no plain http
/// across a network unless somebody says so.
fn address(text: &str, insecure: bool) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "is not an address, such as \"http://127.0.0.1:9001/mcp\"")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with https:// or, on this machine, http://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user name or password: use headers");
    }
    if url.fragment().is_some() {
        return Err("must not have a '#' in it");
    }
    let ip = match url.host() {
        Some(Host::Ipv4(ip)) if !is_written_plainly(text, ip) => {
            return Err("must have its address written with four decimal numbers, such as 127.0.0.1");
        }
        Some(Host::Ipv6(ip)) if stands_for_ipv4(ip) => {
            return Err("must not have an IPv4 address within an IPv6 one: write the IPv4 address itself");
        }
        Some(Host::Ipv4(ip)) => Some(IpAddr::V4(ip)),
        Some(Host::Ipv6(ip)) => Some(IpAddr::V6(ip)),
        Some(Host::Domain(name)) if METADATA_HOSTS.contains(&name.trim_end_matches('.')) => {
            return Err("must not be a metadata service");
        }
        Some(Host::Domain(_)) => None,
        None => return Err("names no host"),
    };
    if ip.is_some_and(is_forbidden) {
        return Err("must not be a link-local, multicast, unspecified or metadata address");
    }
    let loopback = ip.is_some_and(|ip| ip.is_loopback()) || url.host_str() == Some("localhost");
    if url.scheme() == "http" && !loopback && !insecure {
        return Err("is plain http to another host: use https, or set allow_insecure = true");
    }
    Ok(url)
}

/// Whether people who read the file see the address that is meant, and not a decimal, octal or hexadecimal form of it.
fn is_written_plainly(text: &str, ip: Ipv4Addr) -> bool {
    let after = text.split_once("://").and_then(|(_, rest)| rest.strip_prefix(&ip.to_string()));
    after.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/', '?']))
}

/// Whether it is an IPv4 address in disguise: mapped, compatible, NAT64 or 6to4.
fn stands_for_ipv4(ip: Ipv6Addr) -> bool {
    match ip.segments() {
        // The unspecified and loopback addresses are IPv6's own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => false,
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0x64, 0xff9b, ..] | [0x2002, ..] => true,
        _ => false,
    }
}

fn is_forbidden(ip: IpAddr) -> bool {
    let by_kind = match ip {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    by_kind || ip.is_multicast() || ip.is_unspecified() || METADATA_ADDRESSES.contains(&ip)
}
