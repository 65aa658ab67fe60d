//! Configuration: `undersign.toml` and the policy files it names. Everything is checked before anything starts, and all
//! faults come at once. Only this module reads the environment.

mod chat;
mod limits;
pub mod policy;
mod reader;
pub mod reference;
mod secret;
mod server;
mod tenants;
mod upstreams;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::domain::ids::{Installation, Tenant};
use crate::domain::policy::Fault;
use crate::domain::token::TokenKeys;

use reader::{Reader, Section, parse};

pub use chat::SlackConfig;
pub use server::{DatabaseConfig, ServerConfig};
pub use tenants::{AgentConfig, TenantConfig};
pub use upstreams::UpstreamConfig;

/// The whole configuration, checked.
pub struct Config {
    /// `[server]`.
    pub server: ServerConfig,
    /// `[database]`.
    pub database: DatabaseConfig,
    /// `[[token_keys]]`.
    pub token_keys: TokenKeys,
    /// `[slack.*]`.
    pub slack: BTreeMap<Installation, SlackConfig>,
    /// `[tenants.*]`.
    pub tenants: BTreeMap<Tenant, TenantConfig>,
    /// What is accepted, and probably not meant.
    pub warnings: Vec<Fault>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file or one of the policy's can't be read or is not TOML; what is wrong with the others comes along.
    #[error("{}", lines(.0))]
    Unreadable(Vec<Fault>),
    /// All are read, and refused.
    #[error("{}", lines(.0))]
    Refused(Vec<Fault>),
}

impl LoadError {
    /// Everything that was found.
    pub fn faults(&self) -> &[Fault] {
        match self {
            Self::Unreadable(faults) | Self::Refused(faults) => faults,
        }
    }
}

fn lines(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// A variable of the process's environment.
pub fn env(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    std::env::var(name).ok()
}

/// The outside that a configuration refers to.
pub(crate) struct Environment<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    directory: PathBuf,
}

impl Environment<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        (self.lookup)(name)
    }

    fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Loads the configuration from a file and the process's environment.
///
/// # Errors
/// The file can't be read, or anything in it or in the policies is refused: all faults at once.
pub fn load(path: &Path) -> Result<Config, LoadError> {
    load_with(path, &env)
}

/// The same, with the environment handed in.
///
/// # Errors
/// As [`load`].
pub fn load_with(path: &Path, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Config, LoadError> {
    let (reader, sections) = open(path)?;
    let directory = path.parent().map(Path::to_path_buf).unwrap_or_default();
    build(reader, sections, &Environment { lookup, directory })
}

/// Loads `[database]` alone: what `migrate` and `audit` need.
///
/// # Errors
/// As [`load`], for that section.
pub fn load_database(path: &Path) -> Result<DatabaseConfig, LoadError> {
    let (mut reader, mut table) = open(path)?;
    let directory = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let environment = Environment { lookup: &env, directory };
    let section = table.remove("database").and_then(|value| value.as_table().cloned());
    let database = server::database(&mut reader, section, &environment);
    finish(reader, database)
}

/// Loads `[database]` and `[[token_keys]]` alone: what proving the audit trail needs.
///
/// # Errors
/// As [`load`], for those sections.
pub fn load_keys(path: &Path) -> Result<(DatabaseConfig, TokenKeys), LoadError> {
    let (mut reader, table) = open(path)?;
    let directory = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let environment = Environment { lookup: &env, directory };
    // The other sections are not looked at: they have their own secrets, which this must work without.
    let wanted = ["database", "token_keys"];
    let table: toml::Table = table.into_iter().filter(|(name, _)| wanted.contains(&name.as_str())).collect();
    let mut root = Section::new(&mut reader, "", "", table);
    let database = root.optional("database");
    let token_keys = root.optional("token_keys").unwrap_or_default();
    root.end();
    let database = server::database(&mut reader, database, &environment);
    let token_keys = limits::token_keys(&mut reader, token_keys, &environment);
    finish(reader, database.zip(token_keys))
}

/// The policy files that a configuration names, as far as it can be read: what to watch for changes.
pub fn policy_files(path: &Path) -> Vec<PathBuf> {
    let Ok((_, table)) = open(path) else { return Vec::new() };
    let base = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let tenants = table.get("tenants").and_then(toml::Value::as_table).into_iter().flatten();
    let directories = tenants.filter_map(|(_, tenant)| Some(base.join(tenant.get("policy")?.as_str()?)));
    directories.flat_map(|directory| policy::paths(&directory).unwrap_or_default()).collect()
}

fn open(path: &Path) -> Result<(Reader, toml::Table), LoadError> {
    let name = path.display().to_string();
    let unreadable = |fault| LoadError::Unreadable(vec![fault]);
    let text = std::fs::read_to_string(path).map_err(|error| {
        unreadable(Fault {
            file: name.clone(),
            key: String::new(),
            message: format!("can't be read: {}", error.kind()),
        })
    })?;
    let table = parse(&name, &text).map_err(unreadable)?;
    let mut reader = Reader::new(name);
    if is_open(path) {
        reader.add(vec![open_fault(path)]);
    }
    Ok((reader, table))
}

/// Whether everybody may change a file or directory, and with it who approves what.
fn is_open(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o002 != 0)
}

fn open_fault(path: &Path) -> Fault {
    Fault {
        file: path.display().to_string(),
        key: PERMISSIONS.to_owned(),
        message: "can be changed by everybody: chmod o-w it".to_owned(),
    }
}

/// What stands for the key where the permissions of a file are at fault.
const PERMISSIONS: &str = "(permissions)";

fn build(mut reader: Reader, table: toml::Table, environment: &Environment<'_>) -> Result<Config, LoadError> {
    let mut root = Section::new(&mut reader, "", "", table);
    let server = root.optional("server");
    let database = root.optional("database");
    let token_keys = root.optional("token_keys").unwrap_or_default();
    let slack = root.tables("slack");
    let tenants = root.tables("tenants");
    root.not_built(&["discord"]);
    root.end();

    let server = server::server(&mut reader, server);
    let database = server::database(&mut reader, database, environment);
    let token_keys = limits::token_keys(&mut reader, token_keys, environment);
    // What is declared counts as known, so that a fault in it is told once and not again by every policy.
    let installations = slack.iter().map(|(name, _)| Installation::new(name.clone())).collect();
    let slack = chat::slack(&mut reader, slack, environment);
    if tenants.is_empty() {
        reader.fault("tenants", "is missing: add [tenants.NAME] with policy, agents and upstreams");
    }
    if let Some(server) = &server {
        limits::listeners(&mut reader, server, tenants::count_agents(&tenants));
    }
    let tenants = tenants::tenants(&mut reader, tenants, &installations, environment);
    if let Some(server) = &server {
        limits::exposure(&mut reader, server);
    }
    let mut warnings = reader.take_warnings();
    warnings.extend(tenants.values().flat_map(|tenant| tenant.policy.warnings()));
    let config = (|| {
        let (server, database, token_keys) = (server?, database?, token_keys?);
        Some(Config { server, database, token_keys, slack, tenants, warnings })
    })();
    finish(reader, config)
}

/// A configuration without a fault, or all faults.
fn finish<T>(reader: Reader, value: Option<T>) -> Result<T, LoadError> {
    let faults = reader.into_faults();
    match value {
        Some(value) if faults.is_empty() => Ok(value),
        // A fault of a whole file has no key.
        _ if faults.iter().any(|fault| fault.key.is_empty()) => Err(LoadError::Unreadable(faults)),
        _ => Err(LoadError::Refused(faults)),
    }
}

#[cfg(test)]
mod tests;
