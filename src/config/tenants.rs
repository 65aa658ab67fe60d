//! `[tenants.*]`: agents, upstreams and the policy of each tenant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use toml::{Table, Value};

use super::reader::{Reader, Section};
use super::upstreams::{UpstreamConfig, upstream};
use super::{Environment, policy};
use crate::domain::digest::sha256;
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

/// How many agents all tenants have, whatever else is wrong with them.
pub(super) fn count_agents(tables: &[(String, Table)]) -> usize {
    let agents = |table: &Table| table.get("agents").and_then(Value::as_table).map_or(0, Table::len);
    tables.iter().map(|(_, table)| agents(table)).sum()
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
        let mut section = Section::new(reader, "tenants.*", format!("tenants.{name}"), table);
        if !is_shown_name(&name) {
            section.fault("", NAMED);
        }
        let directory: Option<String> = section.required("policy");
        let agents = section.tables("agents");
        let upstreams = section.tables("upstreams");
        if agents.is_empty() {
            section.fault("agents", format!("is missing: add [tenants.{name}.agents.NAME] with key_sha256"));
        }
        if upstreams.is_empty() {
            section.fault("upstreams", format!("is missing: add [tenants.{name}.upstreams.NAME] with url"));
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
        let directory = environment.directory().join(directory);
        let owned =
            |(agent, config): (&AgentName, &AgentConfig)| Some((agent.clone(), config.owner.clone()?));
        let owners = agents.iter().filter_map(owned).collect();
        let known = Known { slack: installations.clone(), upstreams: names, owners };
        let tenant = Tenant::new(name.clone());
        match policy::load(tenant.clone(), &directory, &known) {
            Ok(policy) => {
                for (agent, config) in &agents {
                    if config.owner.as_ref().is_some_and(|owner| !policy.knows(owner)) {
                        reader.fault(
                            format!("tenants.{name}.agents.{agent}.owner"),
                            "is nobody of the policy's [people]: add [people.NAME] to a policy file, or correct the name",
                        );
                    }
                }
                all.insert(tenant, TenantConfig { policy: Arc::new(policy), agents, upstreams });
            }
            Err(faults) => {
                let directory = directory.display().to_string();
                // The directory is this file's to name; everything else is the policy files' own.
                let (of_directory, own): (Vec<_>, Vec<_>) =
                    faults.into_iter().partition(|fault| fault.file == directory);
                for fault in of_directory {
                    reader
                        .fault(format!("tenants.{name}.policy"), format!("the directory {}", fault.message));
                }
                reader.add(own);
            }
        }
    }
    all
}

/// What the names of tenants and agents must be like.
const NAMED: &str = "must have a name of 1 to 64 letters, digits, '.', '-' and '_'";

/// Whether a name shows people what it is: in a card, in the audit trail, in a log line.
fn is_shown_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

/// Whether a hash is of nothing, or of a word that stands in examples.
fn is_well_known(hash: &[u8; 32]) -> bool {
    WORDS.iter().any(|word| sha256(word.as_bytes()) == *hash)
}

/// Keys that somebody tries things with, and forgets.
const WORDS: [&str; 8] = ["", "test", "secret", "password", "changeme", "key", "agent", "undersign"];

fn agent(
    reader: &mut Reader,
    tenant: &str,
    name: String,
    table: Table,
    keys: &mut BTreeSet<[u8; 32]>,
) -> (AgentName, AgentConfig) {
    let mut section =
        Section::new(reader, "tenants.*.agents.*", format!("tenants.{tenant}.agents.{name}"), table);
    if !is_shown_name(&name) {
        section.fault("", NAMED);
    }
    // With jwt, which comes later, there is no key to miss.
    let written =
        if section.has("jwt") { section.optional("key_sha256") } else { section.required("key_sha256") };
    let written: Vec<String> = match written {
        Some(written) if !(1..=2).contains(&Vec::len(&written)) => {
            section.fault("key_sha256", "must list one hash, or two during a rotation");
            written
        }
        written => written.unwrap_or_default(),
    };
    let mut key_sha256 = Vec::new();
    for text in written {
        match <[u8; 32]>::try_from(hex::decode(&text).unwrap_or_default()) {
            Ok(hash) if is_well_known(&hash) => section.fault(
                "key_sha256",
                "is the hash of a word that anybody could guess: make a key with `undersign agent-key`",
            ),
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
