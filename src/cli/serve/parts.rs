//! From configuration to the parts that a service is made of.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use secrecy::ExposeSecret as _;

use super::StartError;
use crate::app::{Caller, ChatEntry, Chats, TenantEntry, UpstreamEntry};
use crate::chat::slack::{SlackApp, SlackDirectory, SlackMessenger, WebApi};
use crate::config::{SlackConfig, TenantConfig, UpstreamConfig};
use crate::domain::audit::Event;
use crate::domain::canonical::canonical;
use crate::domain::digest::sha256;
use crate::domain::ids::{Installation, Tenant};
use crate::domain::place::Platform;
use crate::mcp::upstream::{self, HttpUpstream};
use crate::storage::{self, Db};

pub(super) fn chats(
    slack: &BTreeMap<Installation, SlackConfig>,
) -> Result<(BTreeMap<String, SlackApp>, Chats), StartError> {
    let (mut apps, mut chats) = (BTreeMap::new(), HashMap::new());
    for (name, config) in slack {
        let app = slack_app(name, config);
        let api = WebApi::new(&app)
            .map_err(|error| StartError::Io { what: format!("[slack.{name}]: no HTTPS client"), error })?;
        let api = Arc::new(api);
        let entry = ChatEntry {
            messenger: Arc::new(SlackMessenger::new(api.clone())),
            directory: Arc::new(SlackDirectory::new(api)),
        };
        chats.insert((Platform::Slack, name.clone()), entry);
        apps.insert(name.to_string(), app);
    }
    Ok((apps, chats))
}

/// An installation as the adapter wants it.
pub(in crate::cli) fn slack_app(name: &Installation, config: &SlackConfig) -> SlackApp {
    SlackApp {
        name: name.clone(),
        team_id: config.team_id.clone(),
        app_id: config.app_id.clone(),
        enterprise_id: config.enterprise_id.clone(),
        signing_secrets: config.signing_secrets.clone(),
        bot_token: config.bot_token.clone(),
        api_url: config.api_url.clone(),
    }
}

pub(super) fn callers(tenants: &BTreeMap<Tenant, TenantConfig>) -> Vec<([u8; 32], Caller)> {
    let mut callers = Vec::new();
    for (tenant, config) in tenants {
        for (agent, agent_config) in &config.agents {
            let caller =
                Caller { tenant: tenant.clone(), agent: agent.clone(), owner: agent_config.owner.clone() };
            callers.extend(agent_config.key_sha256.iter().map(|key| (*key, caller.clone())));
        }
    }
    callers
}

pub(super) fn tenants(
    configured: BTreeMap<Tenant, TenantConfig>,
) -> Result<HashMap<Tenant, TenantEntry>, StartError> {
    let client = upstream::http_client().map_err(|_| StartError::Client)?;
    let mut tenants = HashMap::new();
    for (name, config) in configured {
        let mut upstreams = BTreeMap::new();
        for (upstream, settings) in config.upstreams {
            let port = upstream_port(&client, &settings)?;
            upstreams.insert(
                upstream,
                UpstreamEntry {
                    port: Arc::new(port),
                    address: settings.url.to_string(),
                    environment: settings.environment,
                    timeout: settings.timeout,
                },
            );
        }
        tenants.insert(name, TenantEntry { policy: ArcSwap::new(config.policy), upstreams });
    }
    Ok(tenants)
}

/// The client of one upstream.
pub(in crate::cli) fn upstream_port(
    client: &reqwest::Client,
    settings: &UpstreamConfig,
) -> Result<HttpUpstream, StartError> {
    let mut headers = Vec::new();
    for (header, value) in &settings.headers {
        // Both were checked when the configuration was loaded; what is no header value is not sent.
        let (Ok(header), Ok(mut value)) =
            (::http::HeaderName::try_from(header), ::http::HeaderValue::try_from(value.expose_secret()))
        else {
            return Err(StartError::Client);
        };
        value.set_sensitive(true);
        headers.push((header, value));
    }
    let (url, timeout) = (settings.url.to_string(), settings.timeout);
    Ok(HttpUpstream::new(client.clone(), upstream::UpstreamConfig { url, headers, timeout }))
}

/// Writes down which policies of which tenants come into force, all of it or nothing.
pub(super) async fn announce<'a>(
    db: &Db,
    tenants: impl IntoIterator<Item = (&'a Tenant, &'a TenantConfig)>,
) -> storage::Result<()> {
    let mut events = Vec::new();
    for (tenant, configured) in tenants {
        // The policy's own numbers may be fractions; its text is what is hashed.
        let text = canonical(configured.policy.source()).unwrap_or_default();
        let event = Event::PolicyLoaded {
            policy_sha256: hex::encode(sha256(&text)),
            upstreams: configured.upstreams.keys().cloned().collect(),
        };
        events.push((tenant.clone(), event));
    }
    db.append_audit_of_each(&events).await
}
