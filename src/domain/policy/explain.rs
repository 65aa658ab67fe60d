//! Why a policy says what it says about a call: every rule, whether its `tools` match, and what its `when` came to.

use serde::Serialize;

use super::compile::{Effect, Rule};
use super::expression::Facts;
use super::{CallFacts, Policy};

/// One rule, looked at for one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleTrace {
    /// Its name.
    pub name: String,
    /// The file it stands in.
    pub file: String,
    /// allow, require_approval or deny.
    pub decision: &'static str,
    /// Whether its `tools` name the tool.
    pub names_the_tool: bool,
    /// Its condition.
    pub when: Option<String>,
    /// What the condition came to; absent without a condition, and where it was not looked at.
    pub held: Option<Held>,
    /// Whether the rule counts for the call.
    pub counts: bool,
}

/// What a condition came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// It holds.
    Yes,
    /// It does not hold.
    No,
    /// It could not be evaluated: why.
    Failed(String),
}

impl Policy {
    /// Looks at every rule, in the order of their names.
    pub fn explain(&self, call: &CallFacts<'_>) -> Vec<RuleTrace> {
        let naming: Vec<&str> =
            self.naming(call.upstream, call.tool).into_iter().map(|rule| rule.name.as_str()).collect();
        let facts = Facts::of(&self.tenant, &self.thresholds, call);
        self.rules.iter().map(|rule| trace(rule, naming.contains(&rule.name.as_str()), &facts)).collect()
    }
}

fn trace(rule: &Rule, names_the_tool: bool, facts: &Facts) -> RuleTrace {
    let held = rule.when.as_ref().filter(|_| names_the_tool).map(|when| match when.evaluate(facts) {
        Ok(true) => Held::Yes,
        Ok(false) => Held::No,
        Err(reason) => Held::Failed(reason.to_string()),
    });
    let holds = match &held {
        None | Some(Held::Yes) => true,
        Some(Held::No) => false,
        // As `decide` takes it: what can't be evaluated counts against the call.
        Some(Held::Failed(_)) => !matches!(rule.effect, Effect::Allow),
    };
    RuleTrace {
        name: rule.name.to_string(),
        file: rule.file.clone(),
        decision: rule.effect.as_str(),
        names_the_tool,
        when: rule.source.get("when").and_then(|when| when.as_str()).map(str::to_owned),
        held,
        counts: names_the_tool && holds,
    }
}
