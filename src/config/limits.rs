//! `[[token_keys]]`, and what must hold between the listeners and the agents.

use std::collections::BTreeSet;

use secrecy::ExposeSecret as _;
use toml::Table;
use url::Host;

use super::reader::{Reader, Section};
use super::secret::{self, Rules};
use super::{Environment, ServerConfig};
use crate::domain::token::{TokenKey, TokenKeys};

/// Reads `[[token_keys]]`.
pub(super) fn token_keys(
    reader: &mut Reader,
    tables: Vec<Table>,
    environment: &Environment<'_>,
) -> Option<TokenKeys> {
    if tables.is_empty() {
        reader.fault("token_keys", "is missing: add [[token_keys]] with id and secret = { file = \"…\" }");
        return None;
    }
    let mut ids = BTreeSet::new();
    let mut keys = Vec::new();
    for (at, table) in tables.into_iter().enumerate() {
        let mut section = Section::new(reader, "token_keys[]", format!("token_keys[{at}]"), table);
        let id: Option<String> = section.required("id");
        let secret = secret::required(&mut section, "secret", Rules::TOKEN_KEY, environment);
        if let Some(id) = &id {
            let usable = (1..=32).contains(&id.len())
                && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
            if !usable {
                section.fault("id", "must be 1 to 32 letters, digits, '-' or '_'");
            }
            if !ids.insert(id.clone()) {
                section.fault("id", "is used twice: every key needs an id of its own");
            }
        }
        section.end();
        if let (Some(id), Some(secret)) = (id, secret) {
            keys.push(TokenKey { id, secret: secret.expose_secret().as_bytes().to_vec().into() });
        }
    }
    TokenKeys::new(keys)
}

/// What crosses a network in the clear can be read there.
pub(super) fn exposure(reader: &mut Reader, server: &ServerConfig) {
    let local = match server.public_url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    if server.public_url.scheme() == "http" && !local {
        reader.warning(
            "server.public_url",
            "is plain http to another host, and agents send their keys there: put TLS in front, and write https",
        );
    } else if local && !server.agents_listen.ip().is_loopback() {
        reader.warning(
            "server.public_url",
            "is an address on this machine, and agents_listen is open to others: write the address that they use",
        );
    }
}

/// An address that others can reach needs agents that prove who they are, and no two listeners share one.
pub(super) fn listeners(reader: &mut Reader, server: &ServerConfig, agents: usize) {
    if !server.agents_listen.ip().is_loopback() && agents == 0 {
        let message = "is open to others and no agent is configured: add [tenants.NAME.agents.NAME] with key_sha256, \
                       or listen on 127.0.0.1";
        reader.fault("server.agents_listen", message);
    }
    if !server.admin_listen.ip().is_loopback() {
        reader.fault("server.admin_listen", "must be a loopback address: it has no authentication");
    }
    let all = [
        ("server.agents_listen", server.agents_listen),
        ("server.callbacks_listen", server.callbacks_listen),
        ("server.admin_listen", server.admin_listen),
    ];
    for (at, (key, address)) in all.iter().enumerate() {
        // Port 0 is any free one.
        if address.port() != 0 && all[..at].iter().any(|(_, earlier)| earlier == address) {
            reader.fault(*key, "is another listener's address already: give it a port of its own");
        }
    }
}
