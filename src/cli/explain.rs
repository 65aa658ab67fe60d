//! `undersign explain`: which rules match a call and why, what they come to, and what people would be shown. From the
//! files alone: no database, no network.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Done, Failure, Outcome};
use crate::config::{self, AgentConfig, Config, TenantConfig, UpstreamConfig};
use crate::domain::call::{ArgumentFault, Arguments};
use crate::domain::duration::human;
use crate::domain::ids::{AgentName, Tenant, ToolName, UpstreamName};
use crate::domain::place::Place;
use crate::domain::policy::{CallFacts, Decision, Gate, Held, RuleTrace};
use crate::domain::preview::Preview;

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The tenant; may be left out where there is one.
    #[arg(long)]
    tenant: Option<String>,
    /// The agent that calls; may be left out where the tenant has one.
    #[arg(long)]
    agent: Option<String>,
    /// The tool, as policy names it: upstream/tool
    #[arg(long, value_name = "UPSTREAM/TOOL")]
    tool: String,
    /// The call's arguments: a JSON object
    #[arg(long = "args", value_name = "JSON", default_value = "{}")]
    call: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The call to explain, found in the configuration.
struct Asked<'a> {
    tenant: &'a Tenant,
    settings: &'a TenantConfig,
    agent: &'a AgentName,
    agent_settings: &'a AgentConfig,
    upstream: &'a UpstreamName,
    upstream_settings: &'a UpstreamConfig,
    tool: ToolName,
}

pub(super) fn run(args: &Args) -> Outcome {
    let config = config::load(&args.config)?;
    let asked = find(&config, args)?;
    let read = Arguments::parse(Some(args.call.as_bytes())).map_err(refused)?;
    let address = asked.upstream_settings.url.to_string();
    let call = CallFacts {
        agent: asked.agent,
        owner: asked.agent_settings.owner.as_ref(),
        upstream: asked.upstream,
        upstream_address: &address,
        environment: asked.upstream_settings.environment.as_deref(),
        tool: &asked.tool,
        arguments: read.arguments.value(),
    };
    let policy = &asked.settings.policy;
    let (trace, decision) = (policy.explain(&call), policy.decide(&call));
    let preview = match &decision {
        Decision::RequireApproval(gate) => Some(gate.preview(
            &read.arguments,
            policy.thresholds(),
            &format!("{}/{}", asked.upstream, asked.tool),
        )),
        _ => None,
    };
    if args.json {
        println!("{}", as_json(&asked, &address, &trace, &decision, preview.as_ref()));
    } else {
        print!("{}", in_words(&asked, &address, &trace, &decision, preview.as_ref()));
    }
    Ok(Done)
}

/// Why arguments can't be those of a call.
fn refused(fault: ArgumentFault) -> Failure {
    Failure::usage(match fault {
        ArgumentFault::NotAnObject => {
            "--args: must be a JSON object, such as '{\"order_id\": \"A-17\"}'".to_owned()
        }
        ArgumentFault::Unsupported(fault) => {
            format!("--args: {fault}; a call that needs approval is refused for it, as unsupported_value")
        }
        ArgumentFault::TooLarge | ArgumentFault::Malformed(_) => format!("--args: {fault}"),
    })
}

fn find<'a>(config: &'a Config, args: &Args) -> Result<Asked<'a>, Failure> {
    let (tenant, settings) = choose(&config.tenants, args.tenant.as_deref(), "--tenant")?;
    let (agent, agent_settings) = choose(&settings.agents, args.agent.as_deref(), "--agent")?;
    let Some((upstream, tool)) = args.tool.split_once('/').filter(|(_, tool)| !tool.is_empty()) else {
        return Err(Failure::usage("--tool: write upstream/tool, such as shop/refund_order"));
    };
    let (upstream, upstream_settings) = choose(&settings.upstreams, Some(upstream), "--tool")?;
    Ok(Asked { tenant, settings, agent, agent_settings, upstream, upstream_settings, tool: tool.into() })
}

/// The entry of this name, or the only one.
fn choose<'a, K: Ord + std::fmt::Display, V>(
    all: &'a std::collections::BTreeMap<K, V>,
    name: Option<&str>,
    option: &str,
) -> Result<(&'a K, &'a V), Failure> {
    let found = match name {
        Some(name) => all.iter().find(|(known, _)| known.to_string() == name),
        None if all.len() == 1 => all.iter().next(),
        None => None,
    };
    found.ok_or_else(|| {
        let known: Vec<_> = all.keys().map(ToString::to_string).collect();
        let what = name.map_or_else(|| "is needed".to_owned(), |name| format!("there is no '{name}'"));
        Failure::usage(format!("{option}: {what}; the configuration has {}", known.join(", ")))
    })
}

fn as_json(
    asked: &Asked<'_>,
    address: &str,
    trace: &[RuleTrace],
    decision: &Decision,
    preview: Option<&Preview>,
) -> Value {
    let mut answer = json!({
        "tenant": asked.tenant,
        "agent": asked.agent,
        "owner": asked.agent_settings.owner,
        "upstream": asked.upstream,
        "address": address,
        "environment": asked.upstream_settings.environment,
        "tool": asked.tool,
        "rules": trace,
        "decision": word(decision),
    });
    if let Decision::RequireApproval(gate) = decision {
        answer["risk"] = json!(gate.risk);
        answer["requirement"] = json!(gate.requirement);
        answer["post_to"] = gate.post_to.iter().map(Place::to_string).collect();
        answer["expires_seconds"] = json!(gate.expires.as_secs());
        answer["redeem_within_seconds"] = json!(gate.redeem_within.as_secs());
        answer["policy_version"] = json!(gate.policy_version.to_string());
    }
    if let Some(preview) = preview {
        answer["preview"] = json!(preview);
        answer["too_large_to_preview"] = json!(preview.check_size().err().map(|error| error.to_string()));
    }
    answer
}

fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Allow(_) => "allow",
        Decision::Deny { .. } => "deny",
        Decision::NotAllowed => "not_allowed",
        Decision::RequireApproval(_) => "require_approval",
    }
}

fn in_words(
    asked: &Asked<'_>,
    address: &str,
    trace: &[RuleTrace],
    decision: &Decision,
    preview: Option<&Preview>,
) -> String {
    let mut text = String::new();
    // Writing to a String can't fail, here and below.
    let owner = asked.agent_settings.owner.as_ref().map(|owner| format!(", who works for {owner},"));
    let _ = writeln!(
        text,
        "tenant {}: {}{} calls {}/{}",
        asked.tenant,
        asked.agent,
        owner.unwrap_or_default(),
        asked.upstream,
        asked.tool
    );
    let _ = writeln!(text, "rules");
    for rule in trace {
        let _ = writeln!(text, "  {}: {}: {}", rule.name, rule.decision, why(rule));
    }
    let outcome = match decision {
        Decision::Allow(_) => "allow: relayed without anybody being asked".to_owned(),
        Decision::Deny { rules } => {
            let rules: Vec<_> = rules.iter().map(ToString::to_string).collect();
            format!("deny: {}", rules.join(", "))
        }
        Decision::NotAllowed => "not_allowed: no rule counts for this call".to_owned(),
        Decision::RequireApproval(gate) => {
            let rules: Vec<_> = gate.rules.iter().map(ToString::to_string).collect();
            format!("require_approval: {}", rules.join(", "))
        }
    };
    let _ = writeln!(text, "decision\n  {outcome}");
    if let Decision::RequireApproval(gate) = decision {
        requirement(&mut text, gate, address, asked.upstream_settings.environment.as_deref());
    }
    if let Some(preview) = preview {
        self::preview(&mut text, preview);
    }
    text
}

fn why(rule: &RuleTrace) -> String {
    if !rule.names_the_tool {
        return "is for other tools".to_owned();
    }
    let when = rule.when.as_deref().unwrap_or_default();
    match &rule.held {
        None => "counts: names the tool, and has no condition".to_owned(),
        Some(Held::Yes) => format!("counts: {when} holds"),
        Some(Held::No) => format!("does not count: {when} does not hold"),
        Some(Held::Failed(reason)) if rule.counts => {
            format!("counts: {when} can't be evaluated ({reason}), and that counts against the call")
        }
        Some(Held::Failed(reason)) => {
            format!("does not count: {when} can't be evaluated ({reason}), and so allows nothing")
        }
    }
}

fn requirement(text: &mut String, gate: &Gate, address: &str, environment: Option<&str>) {
    let places: Vec<_> = gate.post_to.iter().map(Place::to_string).collect();
    let apart = if gate.requirement.separate_proposer { ", not the agent's owner" } else { "" };
    let _ = writeln!(text, "  risk    {}", gate.risk.as_str());
    let _ = writeln!(text, "  needs   {}{apart}", gate.requirement.in_words());
    let _ = writeln!(text, "  asks    {}", places.join(", "));
    let (expires, redeem) = (human(gate.expires), human(gate.redeem_within));
    let _ = writeln!(text, "  within  {expires} to decide, {redeem} to redeem");
    let _ = writeln!(text, "bound besides the call itself");
    let _ = writeln!(text, "  policy_version  {}", gate.policy_version);
    let _ = writeln!(text, "  upstream        {address}");
    let _ = writeln!(text, "  environment     {}", environment.unwrap_or("none"));
    let _ = writeln!(text, "  tool_version    the tool's definition as the upstream lists it then");
}

fn preview(text: &mut String, preview: &Preview) {
    let _ = writeln!(text, "preview");
    let parts = [
        ("title", Some(&preview.title)),
        ("target", preview.target.as_ref()),
        ("effect", preview.effect.as_ref()),
        ("impact", preview.impact.as_ref()),
        ("data out", preview.data_out.as_ref()),
        ("reversible", Some(&preview.reversible)),
    ];
    for (name, part) in parts {
        if let Some(part) = part {
            let _ = writeln!(text, "  {name:<11} {part}");
        }
    }
    let _ = writeln!(text, "  arguments");
    for line in preview.arguments.lines() {
        let _ = writeln!(text, "    {line}");
    }
    for warning in &preview.warnings {
        let _ = writeln!(text, "  beware: {warning}");
    }
    if let Err(error) = preview.check_size() {
        let _ = writeln!(text, "  refused as too_large_to_preview: {error}");
    }
}
