//! The policy as `check` shows it.

use std::time::Duration;

use serde::Serialize;

use super::compile::{Approval, Effect, Rule};
use super::lint::covers;
use super::{Group, Policy, Risk};
use crate::domain::ids::{GroupName, Person, ToolName, UpstreamName};
use crate::domain::place::{Account, Place};

/// One rule, for people to read.
#[derive(Debug, Clone, Serialize)]
pub struct RuleView {
    /// Its name.
    pub name: String,
    /// The file it stands in.
    pub file: String,
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

    /// The groups, in the order of their names.
    pub fn groups(&self) -> impl Iterator<Item = (&GroupName, &Group)> {
        self.groups.iter()
    }

    /// Every glob that a rule has, each with the rules that name all of its tools.
    pub fn tools(&self) -> Vec<(String, Vec<RuleView>)> {
        let mut patterns: Vec<&String> = self.rules.iter().flat_map(|rule| &rule.tools).collect();
        patterns.sort();
        patterns.dedup();
        let naming = |pattern: &str| {
            let all = self.rules.iter().filter(|rule| rule.tools.iter().any(|wide| covers(wide, pattern)));
            all.map(view).collect()
        };
        patterns.into_iter().map(|pattern| (pattern.clone(), naming(pattern))).collect()
    }

    /// Every place that something is posted to, without repeats.
    pub fn places(&self) -> Vec<Place> {
        let asked = self.approvals().flat_map(|approval| &approval.post_to);
        let mut places: Vec<Place> = asked.chain(&self.limits.alert_to).cloned().collect();
        places.sort();
        places.dedup();
        places
    }

    /// Every account of everybody with an entry.
    pub fn accounts(&self) -> impl Iterator<Item = (&Person, &Account)> {
        self.people
            .iter()
            .flat_map(|(person, accounts)| accounts.iter().map(move |account| (person, account)))
    }

    /// The most people that a rule asks of a group.
    pub fn most_asked_of(&self, group: &GroupName) -> usize {
        let entries = self.approvals().flat_map(|approval| &approval.requirement.approvers);
        entries.filter(|entry| entry.group == *group).map(|entry| entry.count as usize).max().unwrap_or(0)
    }

    fn approvals(&self) -> impl Iterator<Item = &Approval> {
        self.rules.iter().filter_map(|rule| match &rule.effect {
            Effect::RequireApproval(approval) => Some(&**approval),
            Effect::Allow | Effect::Deny => None,
        })
    }

    /// The rules whose `tools` name this tool.
    pub fn rules_for(&self, upstream: &UpstreamName, tool: &ToolName) -> Vec<RuleView> {
        self.naming(upstream, tool).into_iter().map(view).collect()
    }
}

fn view(rule: &Rule) -> RuleView {
    let approval = match &rule.effect {
        Effect::Allow | Effect::Deny => None,
        Effect::RequireApproval(approval) => Some(ApprovalView {
            risk: approval.risk,
            needs: approval.requirement.in_words(),
            separate_proposer: approval.requirement.separate_proposer,
            post_to: approval.post_to.iter().map(Place::to_string).collect(),
            expires: approval.expires,
            redeem_within: approval.redeem_within,
        }),
    };
    RuleView {
        name: rule.name.to_string(),
        file: rule.file.clone(),
        tools: rule.tools.clone(),
        when: rule.source.get("when").and_then(|when| when.as_str()).map(str::to_owned),
        decision: rule.effect.as_str(),
        approval,
    }
}
