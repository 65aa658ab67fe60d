//! Policy: what must happen to a call. All matching rules are taken together and the strictest wins, so no team's file
//! can loosen another's.

mod compile;
mod decide;
mod definition;
mod explain;
mod expression;
mod limits;
mod lint;
mod template;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cosmetic::Cosmetic;
use super::digest::PolicyVersion;
use super::ids::{AgentName, GroupName, Installation, Person, RuleName, Tenant, ToolName, UpstreamName};
use super::place::{Account, Place};
use super::requirement::Requirement;

pub use compile::{Fault, Known, certain_faults, compile};
pub use decide::Offer;
pub use definition::*;
pub use explain::{Held, RuleTrace};
pub use limits::{DenialMemory, DenialsPause, Limits};
pub use template::PreviewTemplates;
pub use view::{ApprovalView, RuleView};

/// How bad it can get. Ordered: the highest of the matching rules counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// Noticeable.
    Medium,
    /// Serious.
    High,
    /// As bad as it gets.
    Critical,
}

impl Risk {
    /// As stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// Reads a stored name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Medium, Self::High, Self::Critical].into_iter().find(|risk| risk.as_str() == text)
    }
}

/// What is known about a call when policy looks at it.
#[derive(Debug, Clone, Copy)]
pub struct CallFacts<'a> {
    /// The agent.
    pub agent: &'a AgentName,
    /// The person it works for.
    pub owner: Option<&'a Person>,
    /// The upstream.
    pub upstream: &'a UpstreamName,
    /// The upstream's configured address: part of the policy version.
    pub upstream_address: &'a str,
    /// The upstream's environment.
    pub environment: Option<&'a str>,
    /// The tool.
    pub tool: &'a ToolName,
    /// The arguments, without `approval_token`.
    pub arguments: &'a Map<String, Value>,
}

/// What policy says about a call.
#[derive(Debug, Clone)]
pub enum Decision {
    /// Relay it. The permit is what opens the relay.
    Allow(Allowed),
    /// A rule denies it.
    Deny {
        /// The denying rules.
        rules: Vec<RuleName>,
    },
    /// No rule names it.
    NotAllowed,
    /// People must approve it.
    RequireApproval(Box<Gate>),
}

/// Proof that policy allows a call without approval. Made by [`Policy::decide`] alone.
#[derive(Debug, Clone)]
pub struct Allowed {
    rules: Vec<RuleName>,
}

impl Allowed {
    /// The rules that allow it.
    pub fn rules(&self) -> &[RuleName] {
        &self.rules
    }
}

/// All matching `require_approval` rules, merged.
#[derive(Debug, Clone)]
pub struct Gate {
    /// The rules, in the order of their names.
    pub rules: Vec<RuleName>,
    /// The highest risk.
    pub risk: Risk,
    /// Every requirement together.
    pub requirement: Requirement,
    /// Every place, without repeats, in order of first mention.
    pub post_to: Vec<Place>,
    /// The shortest time to decide.
    pub expires: Duration,
    /// The shortest time to redeem.
    pub redeem_within: Duration,
    /// Digest over what decided.
    pub policy_version: PolicyVersion,
    /// The rules' preview templates, in the order of the rules.
    pub templates: Vec<Arc<PreviewTemplates>>,
    /// What of the arguments carries no meaning to any of the rules.
    pub cosmetic: Cosmetic,
}

/// Who belongs to a group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Group {
    /// People by name.
    pub people: Vec<Person>,
    /// Slack user groups: installation and id.
    pub slack_usergroups: Vec<(Installation, String)>,
}

/// The compiled policy of one tenant.
#[derive(Debug)]
pub struct Policy {
    tenant: Tenant,
    thresholds: BTreeMap<String, f64>,
    people: BTreeMap<Person, Vec<Account>>,
    groups: BTreeMap<GroupName, Group>,
    rules: Vec<compile::Rule>,
    /// Every pattern of every rule in one set; `owners` says which rule a pattern is of.
    matcher: globset::GlobSet,
    owners: Vec<usize>,
    limits: Limits,
    source: Value,
}

impl Policy {
    /// The person behind an account; an account without an entry is a person of its own.
    pub fn person_of(&self, account: &Account) -> Person {
        self.people
            .iter()
            .find(|(_, accounts)| accounts.contains(account))
            .map_or_else(|| account.anonymous_person(), |(person, _)| person.clone())
    }

    /// Every account of a person with an entry; the account itself for one without.
    pub fn accounts_of(&self, person: &Person, pressed_with: &Account) -> Vec<Account> {
        self.people.get(person).cloned().unwrap_or_else(|| vec![pressed_with.clone()])
    }

    /// Whether the policy has an entry for this person.
    pub fn knows(&self, person: &Person) -> bool {
        self.people.contains_key(person)
    }

    /// A group's definition.
    pub fn group(&self, name: &GroupName) -> Option<&Group> {
        self.groups.get(name)
    }

    /// The tenant.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// The whole policy in normalised JSON, for the `policy_loaded` event and `check`.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The thresholds, for templates.
    pub fn thresholds(&self) -> &BTreeMap<String, f64> {
        &self.thresholds
    }
}
