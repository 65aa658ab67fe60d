//! `check --online`: asks the database, the upstreams and Slack what no file can tell. Nothing is posted or changed.

use std::collections::BTreeMap;

use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde_json::Value;

use super::{slack, words};
use crate::app::ports::Upstream as _;
use crate::cli::{Failure, serve};
use crate::config::{Config, TenantConfig};
use crate::domain::call::ToolDefinition;
use crate::domain::ids::UpstreamName;
use crate::domain::policy::Offer;
use crate::domain::visible::visible;
use crate::mcp::server::is_own_tool;
use crate::mcp::upstream;
use crate::storage::Db;

/// The longest name of a tool that every client takes.
const LONGEST_NAME: usize = 64;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// As it should be.
    Ok,
    /// It works, and is probably not meant.
    Warning,
    /// Something will not work.
    Fault,
}

/// What came of one question.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    level: Level,
    /// What was asked: `database`, `slack.main`, `acme/shop`.
    about: String,
    message: String,
}

impl Finding {
    pub(super) fn ok(about: &str, message: impl Into<String>) -> Self {
        Self { level: Level::Ok, about: about.to_owned(), message: message.into() }
    }

    pub(super) fn warning(about: &str, message: impl Into<String>) -> Self {
        Self { level: Level::Warning, about: about.to_owned(), message: message.into() }
    }

    pub(super) fn fault(about: &str, message: impl Into<String>) -> Self {
        Self { level: Level::Fault, about: about.to_owned(), message: message.into() }
    }

    pub(super) fn is_fault(&self) -> bool {
        self.level == Level::Fault
    }

    pub(super) fn is_warning(&self) -> bool {
        self.level == Level::Warning
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Fault => "fault",
        };
        write!(f, "{level}: {}: {}", self.about, self.message)
    }
}

/// Asks everything that the configuration names.
///
/// # Errors
/// No client can be made at all.
pub(super) async fn ask(config: &Config) -> Result<Vec<Finding>, Failure> {
    // The SDK's HTTP client wants one; the same provider again is no fault.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = upstream::http_client().map_err(|_| Failure::usage("no HTTP client can be made"))?;
    let mut findings = database(config).await;
    findings.extend(slack::ask(config).await?);
    for (name, tenant) in &config.tenants {
        let mut listed = BTreeMap::new();
        for (upstream, settings) in &tenant.upstreams {
            let about = format!("{name}/{upstream}");
            let port = serve::upstream_port(&client, settings)?;
            match port.tools().await {
                Ok(tools) => {
                    findings.push(Finding::ok(&about, format!("lists {}", super::count(tools.len(), "tool"))));
                    listed.insert(upstream, tools);
                }
                Err(_) => findings.push(Finding::fault(
                    &about,
                    "can't be reached, or gives no list of tools: see that its url answers MCP over streamable HTTP, \
                     and that its headers hold a credential that it takes",
                )),
            }
        }
        for (upstream, tools) in &listed {
            findings.extend(tools.iter().flat_map(|tool| about_tool(name.as_str(), tenant, upstream, tool)));
        }
        findings.extend(unmatched(name.as_str(), tenant, &listed));
    }
    Ok(findings)
}

async fn database(config: &Config) -> Vec<Finding> {
    const ABOUT: &str = "database";
    let url = config.database.url.expose_secret();
    let db = match Db::connect(url, 2).await {
        Ok(db) => db,
        Err(error) => {
            let message = format!(
                "{error}: see that database.url is right, and that Postgres takes connections from here"
            );
            return vec![Finding::fault(ABOUT, message)];
        }
    };
    let mut findings = Vec::new();
    match db.check_schema().await {
        Ok(()) => findings.push(Finding::ok(ABOUT, "its schema is this version's")),
        // A new database has none, and `serve` makes it.
        Err(error) if config.database.migrate => findings.push(Finding::warning(
            ABOUT,
            format!("{error}; `undersign serve` would migrate it, or refuse to start"),
        )),
        Err(error) => findings.push(Finding::fault(ABOUT, error.to_string())),
    }
    match db.examine().await {
        Ok(found) => {
            if !found.unusable.is_empty() {
                let message = format!(
                    "the role {} may not read and write {}: grant it SELECT and INSERT there, and UPDATE where it needs it",
                    found.role,
                    found.unusable.join(", ")
                );
                findings.push(Finding::fault(ABOUT, message));
            }
            if found.may_change_audit {
                let message = format!(
                    "the role {} owns the audit rows or may change them; a trigger refuses that all the same, and a role \
                     of its own for the service is safer",
                    found.role
                );
                findings.push(Finding::warning(ABOUT, message));
            }
            if !found.durable {
                let message =
                    "fsync is off: a crash may lose what people approved; switch it on in postgresql.conf";
                findings.push(Finding::warning(ABOUT, message));
            }
            if found.version < 14 {
                let message = format!("is Postgres {}: 14 or newer is needed", found.version);
                findings.push(Finding::fault(ABOUT, message));
            }
        }
        Err(error) => findings.push(Finding::fault(ABOUT, error.to_string())),
    }
    db.close().await;
    findings
}

/// What one listed tool would require, and what is strange about it.
fn about_tool(
    tenant: &str,
    config: &TenantConfig,
    upstream: &UpstreamName,
    tool: &ToolDefinition,
) -> Vec<Finding> {
    let name = visible(tool.name.as_str());
    let about = format!("{tenant}/{upstream}/{name}");
    let rules = config.policy.rules_for(upstream, &tool.name);
    if rules.is_empty() {
        let message = "no rule names it, so it is not_allowed and not offered: add it to the tools of a rule if agents need it";
        return vec![Finding::warning(&about, message)];
    }
    let mut findings = vec![Finding::ok(&about, words::requirements(&rules).join("; "))];
    let offer = config.policy.offer(upstream, &tool.name);
    if offer == Offer::Never {
        return findings;
    }
    let mut warn = |message: String| findings.push(Finding::warning(&about, message));
    if is_own_tool(tool.name.as_str()) {
        warn(
            "has the name of a tool of undersign's own, and is not offered: rename it at the upstream"
                .to_owned(),
        );
    }
    if tool.owns_token_argument() {
        warn("has a property approval_token of its own, and is not offered: rename the property at the upstream".to_owned());
    }
    let prefixed = format!("{upstream}__{}", tool.name);
    if prefixed.len() > LONGEST_NAME {
        warn(format!(
            "is called {} on /mcp, which is longer than {LONGEST_NAME} characters, and some clients refuse that: use \
             /mcp/{upstream}, or shorten the upstream's name",
            visible(&prefixed)
        ));
    }
    if offer == Offer::Gated && closes_itself(tool.input_schema()) {
        warn(
            "composes its inputSchema ($ref, oneOf, anyOf or allOf at its root), where a client may refuse the argument \
             approval_token: send the token in _meta, or list the properties at the root"
                .to_owned(),
        );
    }
    let claims_destructive =
        tool.definition.pointer("/annotations/destructiveHint") == Some(&Value::Bool(true));
    if offer == Offer::Ungated && claims_destructive {
        warn(
            "is allowed without approval, and says of itself that it destroys: see that this is meant"
                .to_owned(),
        );
    }
    findings
}

/// Whether a property that is added at the root may be refused by a part of the schema.
fn closes_itself(schema: &Value) -> bool {
    ["$ref", "oneOf", "anyOf", "allOf"].iter().any(|keyword| schema.get(keyword).is_some())
}

/// Rules that match no listed tool, where every upstream that they could mean has been listed.
fn unmatched(
    tenant: &str,
    config: &TenantConfig,
    listed: &BTreeMap<&UpstreamName, Vec<ToolDefinition>>,
) -> Vec<Finding> {
    if listed.len() < config.upstreams.len() {
        return Vec::new();
    }
    let mut matched: Vec<String> = Vec::new();
    for (upstream, tools) in listed {
        for tool in tools {
            matched.extend(config.policy.rules_for(upstream, &tool.name).into_iter().map(|rule| rule.name));
        }
    }
    let idle = config.policy.rules().filter(|rule| !matched.contains(&rule.name));
    idle.map(|rule| {
        let about = format!("{tenant}: rules.{}", rule.name);
        let message = format!(
            "matches no tool that is listed now: correct tools = {:?}, or remove the rule if it is not kept for later",
            rule.tools
        );
        Finding::warning(&about, message)
    })
    .collect()
}
