//! The policy as one team's file says it: read and typed, not yet checked against the other files.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::{DenialMemory, DenialsPause, Risk};
use crate::domain::cosmetic::Cosmetic;

/// One team's file.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Definition {
    /// `[thresholds]`.
    pub thresholds: BTreeMap<String, f64>,
    /// `[people.*]`: accounts as written, `installation/user`.
    pub people: BTreeMap<String, PersonDefinition>,
    /// `[groups.*]`.
    pub groups: BTreeMap<String, GroupDefinition>,
    /// `[[rules]]`.
    pub rules: Vec<RuleDefinition>,
    /// `[limits]`.
    pub limits: LimitsDefinition,
}

/// `[limits]`: what this file sets.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LimitsDefinition {
    /// New approvals an agent may ask for within a minute.
    pub asks_per_minute: Option<u32>,
    /// Actions of one agent that may be pending.
    pub pending_per_agent: Option<u32>,
    /// Actions of one owner's agents that may be pending.
    pub pending_per_owner: Option<u32>,
    /// Actions that may be pending with one group.
    pub pending_per_group: Option<u32>,
    /// When denials pause an agent.
    pub denials_pause: Option<DenialsPause>,
    /// How long a denial is remembered.
    pub denial_memory: Option<DenialMemory>,
    /// Where pauses, foreign tokens and unknown outcomes are told.
    pub alert_to: Option<Vec<String>>,
}

/// `[people.NAME]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PersonDefinition {
    /// Slack accounts.
    pub slack: Vec<String>,
}

/// `[groups.NAME]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GroupDefinition {
    /// People by name.
    pub people: Vec<String>,
    /// Slack user groups, `installation/id`.
    pub slack_usergroups: Vec<String>,
}

/// `[[rules]]`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleDefinition {
    /// Unique over all files of the tenant.
    pub name: String,
    /// Globs over `upstream/tool`.
    pub tools: Vec<String>,
    /// A CEL condition.
    pub when: Option<String>,
    /// What happens to calls that match.
    pub effect: EffectDefinition,
}

/// What a rule does.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectDefinition {
    /// Relay.
    Allow,
    /// Refuse.
    Deny,
    /// Ask people.
    RequireApproval(Box<ApprovalDefinition>),
}

/// The keys of a rule that asks people.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApprovalDefinition {
    /// How bad it can get; `high` where the rule does not say.
    pub risk: Risk,
    /// Who must approve: group and count.
    pub approvers: Vec<(String, u32)>,
    /// Whether the agent's owner is kept from approving; true where the rule does not say.
    pub separate_proposer: bool,
    /// Where cards go.
    pub post_to: Vec<String>,
    /// Time to decide.
    pub expires: Duration,
    /// Time to redeem.
    pub redeem_within: Duration,
    /// `[rules.preview]`.
    pub preview: PreviewDefinition,
    /// `[rules.cosmetic]`.
    pub cosmetic: Cosmetic,
}

/// `[rules.preview]`: MiniJinja templates.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PreviewDefinition {
    /// The effect in one line.
    pub title: Option<String>,
    /// What is acted upon.
    pub target: Option<String>,
    /// What happens.
    pub effect: Option<String>,
    /// How much.
    pub impact: Option<String>,
    /// What leaves the house.
    pub data_out: Option<String>,
    /// Whether it can be undone.
    pub reversible: Option<String>,
}

impl PreviewDefinition {
    /// The templates with the names of their keys.
    pub fn entries(&self) -> [(&'static str, Option<&str>); 6] {
        [
            ("title", self.title.as_deref()),
            ("target", self.target.as_deref()),
            ("effect", self.effect.as_deref()),
            ("impact", self.impact.as_deref()),
            ("data_out", self.data_out.as_deref()),
            ("reversible", self.reversible.as_deref()),
        ]
    }
}
