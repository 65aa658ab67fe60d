//! The policy as `check` shows it.

use std::time::Duration;

use serde::Serialize;

use super::compile::{Effect, Rule};
use super::{Policy, Risk};
use crate::domain::place::Place;

/// One rule, for people to read.
#[derive(Debug, Clone, Serialize)]
pub struct RuleView {
    /// Its name.
    pub name: String,
    /// Its globs.
    pub tools: Vec<String>,
    /// Its condition.
    pub when: Option<String>,
    /// allow, deny or require_approval.
    pub decision: &'static str,
    /// Whom it asks.
    pub approval: Option<ApprovalView>,
}

/// Whom a rule asks.
#[derive(Debug, Clone, Serialize)]
pub struct ApprovalView {
    /// Its risk.
    pub risk: Risk,
    /// "1 of payments".
    pub needs: String,
    /// Whether the agent's owner is kept from approving.
    pub separate_proposer: bool,
    /// Where cards go.
    pub post_to: Vec<String>,
    /// Time to decide.
    pub expires: Duration,
    /// Time to redeem.
    pub redeem_within: Duration,
}

impl Policy {
    /// The rules, in the order of their names.
    pub fn rules(&self) -> impl Iterator<Item = RuleView> {
        self.rules.iter().map(view)
    }
}

fn view(rule: &Rule) -> RuleView {
    let text = |key: &str| rule.source.get(key).and_then(|value| value.as_str()).map(str::to_owned);
    let tools = rule.source.get("tools").and_then(|tools| serde_json::from_value(tools.clone()).ok());
    let (decision, approval) = match &rule.effect {
        Effect::Allow => ("allow", None),
        Effect::Deny => ("deny", None),
        Effect::RequireApproval(approval) => (
            "require_approval",
            Some(ApprovalView {
                risk: approval.risk,
                needs: approval.requirement.in_words(),
                separate_proposer: approval.requirement.separate_proposer,
                post_to: approval.post_to.iter().map(Place::to_string).collect(),
                expires: approval.expires,
                redeem_within: approval.redeem_within,
            }),
        ),
    };
    RuleView {
        name: rule.name.to_string(),
        tools: tools.unwrap_or_default(),
        when: text("when"),
        decision,
        approval,
    }
}
