//! The policy in force, in words and as JSON: what `check` prints of a configuration without a fault.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::config::{Config, TenantConfig};
use crate::domain::duration::human;
use crate::domain::policy::RuleView;

pub(super) fn as_json(config: &Config) -> Value {
    let tenants = config.tenants.iter().map(|(name, tenant)| {
        let policy = &tenant.policy;
        let agents: Map<_, _> =
            tenant.agents.iter().map(|(agent, found)| (agent.to_string(), json!({ "owner": found.owner }))).collect();
        let upstreams: Vec<_> = tenant.upstreams.keys().collect();
        let groups: Map<_, _> = policy.groups().map(|(name, group)| (name.to_string(), json!(group))).collect();
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
            "rules": rules,
            "tools": tools,
        });
        (name.to_string(), value)
    });
    Value::Object(tenants.collect())
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
        let usergroups =
            group.slack_usergroups.iter().map(|(installation, id)| format!("whoever is in slack:{installation}/{id}"));
        let _ = writeln!(text, "    {name}: {}", people.chain(usergroups).collect::<Vec<_>>().join(", "));
    }
    if !policy.thresholds().is_empty() {
        let _ = writeln!(text, "  thresholds");
    }
    for (name, value) in policy.thresholds() {
        let _ = writeln!(text, "    {name} = {value}");
    }
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
