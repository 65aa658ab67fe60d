//! `[tenants.*]`: agents, upstreams and the policy of each tenant.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use toml::Table;
use url::{Host, Url};

use super::reader::{Reader, Section};
use super::secret::{self, Rules};
use super::{Environment, policy};
use crate::domain::ids::{AgentName, Installation, Person, Tenant, UpstreamName};
use crate::domain::policy::{Known, Policy};

/// `[tenants.NAME]`.
#[derive(Debug)]
pub struct TenantConfig {
    /// Its policy, compiled.
    pub policy: Arc<Policy>,
    /// Its agents.
    pub agents: BTreeMap<AgentName, AgentConfig>,
    /// Its upstreams.
    pub upstreams: BTreeMap<UpstreamName, UpstreamConfig>,
}

/// `[tenants.NAME.agents.NAME]`.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// SHA-256 of its key; two during a rotation.
    pub key_sha256: Vec<[u8; 32]>,
    /// The person it works for.
    pub owner: Option<Person>,
}

/// `[tenants.NAME.upstreams.NAME]`.
#[derive(Debug, Clone)]
pub struct UpstreamConfig {
    /// Streamable HTTP endpoint.
    pub url: Url,
    /// Headers sent with every request; their values are secrets.
    pub headers: BTreeMap<String, SecretString>,
    /// How long one call may take.
    pub timeout: Duration,
    /// Shown on every card and bound.
    pub environment: Option<String>,
}

/// Reads every `[tenants.*]` and its policy.
pub(super) fn tenants(
    reader: &mut Reader,
    tables: Vec<(String, Table)>,
    installations: &BTreeSet<Installation>,
    environment: &Environment<'_>,
) -> BTreeMap<Tenant, TenantConfig> {
    let mut all = BTreeMap::new();
    let mut keys = BTreeSet::new();
    for (name, table) in tables {
        let mut section = Section::new(reader, format!("tenants.{name}"), table);
        let directory: Option<String> = section.required("policy");
        let agents = section.tables("agents");
        let upstreams = section.tables("upstreams");
        if agents.is_empty() {
            section.fault("agents", "is missing: add [tenants.NAME.agents.NAME] with key_sha256");
        }
        if upstreams.is_empty() {
            section.fault("upstreams", "is missing: add [tenants.NAME.upstreams.NAME] with url");
        }
        section.end();
        let agents: BTreeMap<_, _> = agents
            .into_iter()
            .map(|(agent, table)| self::agent(reader, &name, agent, table, &mut keys))
            .collect();
        let names: BTreeSet<_> =
            upstreams.iter().map(|(name, _)| UpstreamName::from(name.as_str())).collect();
        let upstreams = upstreams
            .into_iter()
            .filter_map(|(upstream, table)| self::upstream(reader, &name, upstream, table, environment))
            .collect();
        let Some(directory) = directory else { continue };
        let known = Known { slack: installations.clone(), upstreams: names };
        let tenant = Tenant::new(name.clone());
        match policy::load(tenant.clone(), &environment.directory().join(directory), &known) {
            Ok(policy) => {
                for (agent, config) in &agents {
                    if config.owner.as_ref().is_some_and(|owner| !policy.knows(owner)) {
                        reader.fault(
                            format!("tenants.{name}.agents.{agent}.owner"),
                            "is nobody of the policy's [people]",
                        );
                    }
                }
                all.insert(tenant, TenantConfig { policy: Arc::new(policy), agents, upstreams });
            }
            Err(faults) => reader.add(faults),
        }
    }
    all
}

fn agent(
    reader: &mut Reader,
    tenant: &str,
    name: String,
    table: Table,
    keys: &mut BTreeSet<[u8; 32]>,
) -> (AgentName, AgentConfig) {
    let mut section = Section::new(reader, format!("tenants.{tenant}.agents.{name}"), table);
    let written: Vec<String> = section.required("key_sha256").unwrap_or_default();
    if !(1..=2).contains(&written.len()) {
        section.fault("key_sha256", "must list one hash, or two during a rotation");
    }
    let mut key_sha256 = Vec::new();
    for text in written {
        match <[u8; 32]>::try_from(hex::decode(&text).unwrap_or_default()) {
            Ok(hash) => {
                if !keys.insert(hash) {
                    section.fault(
                        "key_sha256",
                        "is another agent's already: every agent needs a key of its own",
                    );
                }
                key_sha256.push(hash);
            }
            Err(_) => {
                section.fault("key_sha256", "must be 64 hex digits, as `undersign agent-key` prints them");
            }
        }
    }
    let owner = section.optional::<String>("owner").map(Person::new);
    section.not_built(&["jwt", "owner_claim"]);
    section.end();
    (AgentName::new(name), AgentConfig { key_sha256, owner })
}

fn upstream(
    reader: &mut Reader,
    tenant: &str,
    name: String,
    table: Table,
    environment: &Environment<'_>,
) -> Option<(UpstreamName, UpstreamConfig)> {
    let mut section = Section::new(reader, format!("tenants.{tenant}.upstreams.{name}"), table);
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'));
    if name.is_empty() || !plain || name.contains("__") || name.ends_with('_') {
        section
            .fault("", "is named with other than a-z, 0-9, '-' and '_', or has '__' in it or '_' at its end");
    }
    section.not_built(&["command", "env", "read_only", "pass"]);
    let insecure = section.optional("allow_insecure").unwrap_or(false);
    let url = section.required::<String>("url").and_then(|text| match address(&text, insecure) {
        Ok(url) => Some(url),
        Err(message) => {
            section.fault("url", message);
            None
        }
    });
    let mut headers = BTreeMap::new();
    for (header, value) in section.optional::<Table>("headers").unwrap_or_default() {
        let key = format!("headers.{header}");
        if http::HeaderName::try_from(&header).is_err() {
            section.fault(&key, "is not a header name");
        }
        if let Some(secret) = secret::resolve(&mut section, &key, value, Rules { shortest: 1 }, environment) {
            headers.insert(header, secret);
        }
    }
    let timeout = section.optional("timeout").unwrap_or(Duration::from_secs(30));
    if !(Duration::from_secs(1)..=Duration::from_secs(300)).contains(&timeout) {
        section.fault("timeout", "must be from 1s to 5m");
    }
    let shown = section.optional("environment");
    section.end();
    Some((UpstreamName::new(name), UpstreamConfig { url: url?, headers, timeout, environment: shown }))
}

/// Where an upstream may be: no address that a metadata service hides behind, no credentials in it, and no plain http
/// across a network unless somebody says so.
fn address(text: &str, insecure: bool) -> Result<Url, String> {
    let url = Url::parse(text)
        .map_err(|_| "is not an address, such as \"http://127.0.0.1:9001/mcp\"".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must be http or https".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user name or password: use headers".to_owned());
    }
    let ip = match url.host() {
        // The parser has read decimal, octal and hexadecimal forms into the address they mean.
        Some(Host::Ipv4(ip)) => Some(IpAddr::V4(ip)),
        Some(Host::Ipv6(ip)) => Some(ip.to_canonical()),
        Some(Host::Domain(_)) => None,
        None => return Err("names no host".to_owned()),
    };
    let link_local = match ip {
        Some(IpAddr::V4(ip)) => ip.is_link_local() || ip == Ipv4Addr::UNSPECIFIED,
        Some(IpAddr::V6(ip)) => ip.is_unicast_link_local() || ip.is_unspecified(),
        None => false,
    };
    if link_local {
        return Err("must not be a link-local or unspecified address".to_owned());
    }
    let loopback = ip.is_some_and(|ip| ip.is_loopback()) || url.host_str() == Some("localhost");
    if url.scheme() == "http" && !loopback && !insecure {
        return Err("is plain http to another host: use https, or set allow_insecure = true".to_owned());
    }
    Ok(url)
}
