//! The policy in force, in words and as JSON: what `check` prints of a configuration without a fault.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::config::{Config, TenantConfig};
use crate::domain::duration::human;
use crate::domain::policy::{Limits, RuleView};

pub(super) fn as_json(config: &Config) -> Value {
    let tenants = config.tenants.iter().map(|(name, tenant)| {
        let policy = &tenant.policy;
        let agents: Map<_, _> = tenant
            .agents
            .iter()
            .map(|(agent, found)| (agent.to_string(), json!({ "owner": found.owner })))
            .collect();
        let upstreams: Vec<_> = tenant.upstreams.keys().collect();
        let groups: Map<_, _> =
            policy.groups().map(|(name, group)| (name.to_string(), json!(group))).collect();
        let tools: Map<_, _> = policy
            .tools()
            .into_iter()
            .map(|(pattern, rules)| (pattern, rules.iter().map(|rule| json!(rule.name)).collect()))
            .collect();
        let rules: Vec<_> = policy.rules().collect();
        let value = json!({
            "agents": agents,
            "upstreams": upstreams,
            "thresholds": policy.thresholds(),
            "groups": groups,
            "limits": limits_as_json(policy.limits()),
            "rules": rules,
            "tools": tools,
        });
        (name.to_string(), value)
    });
    Value::Object(tenants.collect())
}

fn limits_as_json(limits: &Limits) -> Value {
    json!({
        "asks_per_minute": limits.asks_per_minute,
        "pending_per_agent": limits.pending_per_agent,
        "pending_per_owner": limits.pending_per_owner,
        "pending_per_group": limits.pending_per_group,
        "denials_pause": {
            "count": limits.denials_pause.count,
            "within_seconds": limits.denials_pause.within.as_secs(),
            "pause_for_seconds": limits.denials_pause.pause_for.as_secs(),
        },
        "denial_memory_seconds": limits.denial_memory.duration().map(|time| time.as_secs()),
        "alert_to": limits.alert_to.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// Every tenant's policy as it would be applied.
pub(super) fn effective(config: &Config) -> String {
    let mut text = String::new();
    for (name, tenant) in &config.tenants {
        // Writing to a String can't fail, here and below.
        let _ = writeln!(text, "tenant {name}");
        self::tenant(&mut text, tenant);
    }
    text
}

fn tenant(text: &mut String, tenant: &TenantConfig) {
    let agents = tenant.agents.iter().map(|(name, agent)| match &agent.owner {
        Some(owner) => format!("{name} (works for {owner})"),
        None => name.to_string(),
    });
    let upstreams = tenant.upstreams.iter().map(|(name, upstream)| match &upstream.environment {
        Some(environment) => format!("{name} ({environment})"),
        None => name.to_string(),
    });
    let _ = writeln!(text, "  agents     {}", agents.collect::<Vec<_>>().join(", "));
    let _ = writeln!(text, "  upstreams  {}", upstreams.collect::<Vec<_>>().join(", "));
    let policy = &tenant.policy;
    if policy.groups().next().is_some() {
        let _ = writeln!(text, "  groups");
    }
    for (name, group) in policy.groups() {
        let people = group.people.iter().map(ToString::to_string);
        let usergroups = group
            .slack_usergroups
            .iter()
            .map(|(installation, id)| format!("whoever is in slack:{installation}/{id}"));
        let _ = writeln!(text, "    {name}: {}", people.chain(usergroups).collect::<Vec<_>>().join(", "));
    }
    if !policy.thresholds().is_empty() {
        let _ = writeln!(text, "  thresholds");
    }
    for (name, value) in policy.thresholds() {
        let _ = writeln!(text, "    {name} = {value}");
    }
    limits(text, policy.limits());
    let _ = writeln!(text, "  rules");
    for rule in policy.rules() {
        self::rule(text, &rule);
    }
    let _ = writeln!(text, "  tools");
    for (pattern, rules) in policy.tools() {
        let _ = writeln!(text, "    {pattern}");
        for line in requirements(&rules) {
            let _ = writeln!(text, "      {line}");
        }
    }
    let _ = writeln!(text, "    every other tool: not_allowed");
}

fn limits(text: &mut String, limits: &Limits) {
    let mut pending = vec![format!("{} of one agent", limits.pending_per_agent)];
    pending.extend(limits.pending_per_owner.map(|most| format!("{most} of one owner's agents")));
    pending.extend(limits.pending_per_group.map(|most| format!("{most} with one group")));
    let pause = limits.denials_pause;
    let memory = limits.denial_memory.duration().map_or_else(|| "ever".to_owned(), human);
    let alerts: Vec<_> = limits.alert_to.iter().map(ToString::to_string).collect();
    let _ = writeln!(text, "  limits");
    let _ = writeln!(
        text,
        "    asks     {} a minute; waiting at most {}",
        limits.asks_per_minute,
        pending.join(", ")
    );
    let (within, pause_for) = (human(pause.within), human(pause.pause_for));
    let _ = writeln!(
        text,
        "    denials  {} within {within} pause an agent for {pause_for}; each is remembered for {memory}",
        pause.count
    );
    let _ = writeln!(
        text,
        "    alerts   {}",
        if alerts.is_empty() { "nobody".to_owned() } else { alerts.join(", ") }
    );
}

fn rule(text: &mut String, rule: &RuleView) {
    let _ = writeln!(text, "    {}: {} for {}", rule.name, rule.decision, rule.tools.join(", "));
    if let Some(when) = &rule.when {
        let _ = writeln!(text, "      when    {when}");
    }
    if let Some(approval) = &rule.approval {
        let _ = writeln!(text, "      risk    {}", approval.risk.as_str());
        let apart = if approval.separate_proposer { ", not the agent's owner" } else { "" };
        let _ = writeln!(text, "      needs   {}{apart}", approval.needs);
        let _ = writeln!(text, "      asks    {}", approval.post_to.join(", "));
        let (expires, redeem) = (human(approval.expires), human(approval.redeem_within));
        let _ = writeln!(text, "      within  {expires} to decide, {redeem} to redeem");
    }
}

/// What rules come to for one tool, strictest first.
pub(super) fn requirements(rules: &[RuleView]) -> Vec<String> {
    let line = |rule: &RuleView, what: &str| match &rule.when {
        Some(when) => format!("{what} when {when} ({})", rule.name),
        None => format!("{what} ({})", rule.name),
    };
    let denying = rules.iter().filter(|rule| rule.decision == "deny");
    let mut lines: Vec<String> = denying.clone().map(|rule| line(rule, "denied")).collect();
    if denying.clone().any(|rule| rule.when.is_none()) {
        return lines;
    }
    for rule in rules {
        if let Some(approval) = &rule.approval {
            lines.push(line(rule, &format!("needs {}", approval.needs)));
        }
    }
    let asking = rules.iter().filter(|rule| rule.approval.is_some());
    if !asking.clone().any(|rule| rule.when.is_none()) {
        let allowing: Vec<_> = rules.iter().filter(|rule| rule.decision == "allow").collect();
        lines.extend(allowing.iter().map(|rule| line(rule, "allowed")));
        if !allowing.iter().any(|rule| rule.when.is_none()) {
            lines.push("otherwise not_allowed".to_owned());
        }
    }
    lines
}
