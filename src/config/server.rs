//! `[server]` and `[database]`.

use std::net::SocketAddr;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use toml::Table;
use url::Url;

use super::Environment;
use super::reader::{Reader, Section};
use super::secret::{self, Rules};
use crate::domain::network::Network;

/// How long a first gated call waits, where the file does not say.
const HOLD: Duration = Duration::from_secs(25);

/// How long it may wait at most.
const LONGEST_HOLD: Duration = Duration::from_secs(50);

/// `[server]`.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// `/mcp` and `/mcp/{upstream}`.
    pub agents_listen: SocketAddr,
    /// `/callbacks/…`.
    pub callbacks_listen: SocketAddr,
    /// `/healthz` and `/readyz`.
    pub admin_listen: SocketAddr,
    /// The address that agents are told.
    pub public_url: Url,
    /// Hosts accepted besides the listen addresses and the public URL's.
    pub allowed_hosts: Vec<String>,
    /// Origins accepted from browsers.
    pub allowed_origins: Vec<String>,
    /// How long a first gated call waits for a quick decision.
    pub hold: Duration,
    /// Proxies in front, whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Network>,
}

/// `[database]`.
#[derive(Debug, Clone)]
pub struct DatabaseConfig {
    /// Where it is; holds a password.
    pub url: SecretString,
    /// Connections of the pool.
    pub max_connections: u32,
    /// Whether `serve` applies migrations.
    pub migrate: bool,
}

/// Reads `[server]`; every key has a default.
pub(super) fn server(reader: &mut Reader, table: Option<Table>) -> Option<ServerConfig> {
    let mut section = Section::new(reader, "server", "server", table.unwrap_or_default());
    let agents_listen = address(&mut section, "agents_listen", 8080);
    let callbacks_listen = address(&mut section, "callbacks_listen", 8081);
    let admin_listen = address(&mut section, "admin_listen", 9090);
    let public_url: String =
        section.optional("public_url").unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let parsed = Url::parse(&public_url).ok().filter(|url| {
        let bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        bare && url.has_host() && matches!(url.scheme(), "http" | "https")
    });
    if parsed.is_none() {
        section
            .fault("public_url", "must be an http or https address, such as \"https://undersign.example\"");
    }
    let allowed_hosts: Vec<String> = section.optional("allowed_hosts").unwrap_or_default();
    if !allowed_hosts.iter().all(|host| is_authority(host)) {
        section.fault("allowed_hosts", "must list names such as \"gate.example\" or \"gate.example:8443\"");
    }
    let allowed_origins: Vec<String> = section.optional("allowed_origins").unwrap_or_default();
    if !allowed_origins.iter().all(|origin| is_origin(origin)) {
        section.fault(
            "allowed_origins",
            "must list origins such as \"https://app.example\", each of them whole",
        );
    }
    let hold = section.optional("hold").unwrap_or(HOLD);
    if hold > LONGEST_HOLD {
        section.fault("hold", "must be from 0s to 50s: many clients give a request up after a minute");
    }
    let proxies: Vec<String> = section.optional("trusted_proxies").unwrap_or_default();
    let trusted_proxies: Option<Vec<Network>> = proxies.iter().map(|text| text.parse().ok()).collect();
    if trusted_proxies.is_none() {
        section.fault(
            "trusted_proxies",
            "must list addresses or networks such as \"10.0.0.7\" or \"10.0.0.0/8\" (nothing set behind the prefix)",
        );
    }
    section.end();
    Some(ServerConfig {
        agents_listen: agents_listen?,
        callbacks_listen: callbacks_listen?,
        admin_listen: admin_listen?,
        public_url: parsed?,
        allowed_hosts,
        allowed_origins,
        hold,
        trusted_proxies: trusted_proxies?,
    })
}

/// A host, or a host and a port. There are no wildcards.
fn is_authority(text: &str) -> bool {
    let usable = !text.is_empty() && !text.contains(['*', '/', '@', '?', '#', ' ']);
    usable && Url::parse(&format!("http://{text}")).is_ok_and(|url| url.has_host())
}

fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(is_authority)
}

fn address(section: &mut Section<'_>, key: &'static str, port: u16) -> Option<SocketAddr> {
    let Some(text) = section.optional::<String>(key) else {
        return Some(SocketAddr::from(([127, 0, 0, 1], port)));
    };
    let parsed = text.parse().ok();
    if parsed.is_none() {
        section.fault(key, "must be an address and a port, such as \"127.0.0.1:8080\"");
    }
    parsed
}

/// Reads `[database]`.
pub(super) fn database(
    reader: &mut Reader,
    table: Option<Table>,
    environment: &Environment<'_>,
) -> Option<DatabaseConfig> {
    let Some(table) = table else {
        reader.fault("database", "is missing: add [database] with url = { env = \"DATABASE_URL\" }");
        return None;
    };
    let mut section = Section::new(reader, "database", "database", table);
    let url = secret::required(&mut section, "url", Rules::TEXT, environment);
    if let Some(url) = &url {
        let parsed = Url::parse(url.expose_secret()).ok();
        match parsed {
            Some(url) if matches!(url.scheme(), "postgres" | "postgresql") => {
                if url.username().is_empty() {
                    section.fault("url", "names no user: write postgres://USER@HOST/DATABASE");
                }
            }
            _ => section.fault("url", "must be a postgres:// address"),
        }
    }
    let max_connections = section.optional("max_connections").unwrap_or(16);
    if !(2..=1000).contains(&max_connections) {
        section.fault("max_connections", "must be from 2 to 1000");
    }
    let migrate = section.optional("migrate").unwrap_or(true);
    section.end();
    Some(DatabaseConfig { url: url?, max_connections, migrate })
}
