//! Decides over a call: all matching rules together, the strictest wins, the order of rules and files decides nothing.

use std::cell::OnceCell;

use serde_json::{Map, Value, json};

use super::compile::{Approval, Effect, Rule};
use super::expression::Facts;
use super::{Allowed, CallFacts, Decision, Gate, Policy};
use crate::domain::digest::PolicyVersion;
use crate::domain::ids::{ToolName, UpstreamName};

/// Whether a tool can be offered to agents at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// No call of it could ever pass.
    Never,
    /// Some call of it may pass without approval, and none needs one.
    Ungated,
    /// Some call of it needs approval.
    Gated,
}

impl Policy {
    /// What must happen to a call.
    pub fn decide(&self, call: &CallFacts<'_>) -> Decision {
        let facts = OnceCell::new();
        let matching: Vec<&Rule> = self
            .naming(call.upstream, call.tool)
            .into_iter()
            .filter(|rule| match &rule.when {
                None => true,
                // What can't be evaluated counts against the call.
                Some(when) => when
                    .evaluate(facts.get_or_init(|| Facts::of(&self.tenant, &self.thresholds, call)))
                    .unwrap_or(!matches!(rule.effect, Effect::Allow)),
            })
            .collect();
        let denying: Vec<_> = matching
            .iter()
            .filter(|rule| matches!(rule.effect, Effect::Deny))
            .map(|rule| rule.name.clone())
            .collect();
        if !denying.is_empty() {
            return Decision::Deny { rules: denying };
        }
        let asking: Vec<(&Rule, &Approval)> = matching
            .iter()
            .filter_map(|rule| match &rule.effect {
                Effect::RequireApproval(approval) => Some((*rule, &**approval)),
                _ => None,
            })
            .collect();
        if let Some(gate) = self.merge(&asking, call) {
            return Decision::RequireApproval(Box::new(gate));
        }
        if matching.is_empty() {
            return Decision::NotAllowed;
        }
        Decision::Allow(Allowed { rules: matching.iter().map(|rule| rule.name.clone()).collect() })
    }

    /// Whether policy could allow any call of this tool.
    pub fn offer(&self, upstream: &UpstreamName, tool: &ToolName) -> Offer {
        let naming = self.naming(upstream, tool);
        let has = |wanted: fn(&Effect) -> bool| naming.iter().any(|rule| wanted(&rule.effect));
        let always_denied =
            naming.iter().any(|rule| matches!(rule.effect, Effect::Deny) && rule.when.is_none());
        if always_denied {
            Offer::Never
        } else if has(|effect| matches!(effect, Effect::RequireApproval(_))) {
            Offer::Gated
        } else if has(|effect| matches!(effect, Effect::Allow)) {
            Offer::Ungated
        } else {
            Offer::Never
        }
    }

    /// The rules whose `tools` name this tool, in the order of their names.
    ///
    /// None names a tool that ends in `..`: the set of patterns takes names for paths of files, where that is no name
    /// of a file, and would leave out rules that deny.
    pub(super) fn naming(&self, upstream: &UpstreamName, tool: &ToolName) -> Vec<&Rule> {
        if tool.as_str().rsplit('/').next() == Some("..") {
            return Vec::new();
        }
        let mut indices: Vec<usize> = self
            .matcher
            .matches(format!("{upstream}/{tool}"))
            .into_iter()
            .map(|pattern| self.owners[pattern])
            .collect();
        indices.sort_unstable();
        indices.dedup();
        indices.into_iter().map(|index| &self.rules[index]).collect()
    }

    fn merge(&self, asking: &[(&Rule, &Approval)], call: &CallFacts<'_>) -> Option<Gate> {
        let (_, first) = asking.first()?;
        let mut gate = Gate {
            rules: asking.iter().map(|(rule, _)| rule.name.clone()).collect(),
            risk: first.risk,
            requirement: first.requirement.clone(),
            post_to: Vec::new(),
            expires: first.expires,
            redeem_within: first.redeem_within,
            policy_version: self.version(asking, call),
            templates: asking.iter().map(|(_, approval)| approval.templates.clone()).collect(),
            cosmetic: first.cosmetic.clone(),
        };
        for (_, approval) in asking {
            gate.risk = gate.risk.max(approval.risk);
            gate.requirement = gate.requirement.merge(approval.requirement.clone());
            gate.expires = gate.expires.min(approval.expires);
            gate.redeem_within = gate.redeem_within.min(approval.redeem_within);
            gate.cosmetic = gate.cosmetic.merge(&approval.cosmetic);
            for place in &approval.post_to {
                if !gate.post_to.contains(place) {
                    gate.post_to.push(place.clone());
                }
            }
        }
        Some(gate)
    }

    /// Over the matched rules, the thresholds and groups they name, and the upstream's id and address: an edit
    /// elsewhere in the policy changes nothing here.
    fn version(&self, asking: &[(&Rule, &Approval)], call: &CallFacts<'_>) -> PolicyVersion {
        let mut thresholds = Map::new();
        let mut groups = Map::new();
        for (rule, approval) in asking {
            for name in &rule.thresholds {
                // As text: a threshold may be a fraction that RFC 8785 would print otherwise.
                thresholds.insert(name.clone(), json!(self.thresholds.get(name).map(f64::to_string)));
            }
            for name in approval.requirement.groups() {
                let group = self.groups.get(name).and_then(|group| serde_json::to_value(group).ok());
                groups.insert(name.to_string(), group.unwrap_or(Value::Null));
            }
        }
        PolicyVersion::of(&json!({
            "rules": asking.iter().map(|(rule, _)| &rule.source).collect::<Vec<_>>(),
            "thresholds": thresholds,
            "groups": groups,
            "upstream": call.upstream,
            "address": call.upstream_address,
        }))
    }
}
