//! Checks that look across sections.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::ExposeSecret as _;
use toml::Table;

use super::reader::{Reader, Section};
use super::secret::{self, Rules};
use super::{Environment, ServerConfig, TenantConfig};
use crate::domain::ids::Tenant;
use crate::domain::token::{MIN_KEY, TokenKey, TokenKeys};

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
        let mut section = Section::new(reader, format!("token_keys[{at}]"), table);
        let id: String = section.required("id").unwrap_or_default();
        let secret = secret::required(&mut section, "secret", Rules { shortest: MIN_KEY }, environment);
        let usable = (1..=32).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !usable {
            section.fault("id", "must be 1 to 32 letters, digits, '-' or '_'");
        }
        if !ids.insert(id.clone()) {
            section.fault("id", "is used twice: every key needs an id of its own");
        }
        section.end();
        if let Some(secret) = secret {
            keys.push(TokenKey { id, secret: secret.expose_secret().as_bytes().to_vec().into() });
        }
    }
    TokenKeys::new(keys)
}

/// An address that others can reach needs agents that prove who they are.
pub(super) fn public_bind(
    reader: &mut Reader,
    server: &ServerConfig,
    tenants: &BTreeMap<Tenant, TenantConfig>,
) {
    let agents: usize = tenants.values().map(|tenant| tenant.agents.len()).sum();
    if !server.agents_listen.ip().is_loopback() && agents == 0 {
        reader
            .fault("server.agents_listen", "is public and no agent is configured: add [tenants.*.agents.*]");
    }
    if !server.admin_listen.ip().is_loopback() {
        reader.fault("server.admin_listen", "must be a loopback address: it has no authentication");
    }
}
