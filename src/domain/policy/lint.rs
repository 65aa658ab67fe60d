//! What is no fault and yet probably not what a policy's author meant.

use serde_json::{Map, Value};

use super::compile::{Effect, Fault, Rule};
use super::expression::Facts;
use super::{CallFacts, Policy};
use crate::domain::ids::{AgentName, ToolName, UpstreamName};

impl Policy {
    /// Rules that can never match or change nothing, and names that no rule uses.
    pub fn warnings(&self) -> Vec<Fault> {
        let mut warnings: Vec<Fault> = self.rules.iter().filter_map(|rule| self.warning(rule)).collect();
        for (group, _) in self.groups.iter().filter(|(name, _)| !self.is_asked(name.as_str())) {
            warnings.push(self.unused(
                "groups",
                group.as_str(),
                "is asked by no rule: name it in approvers, or remove it",
            ));
        }
        let used = |name: &String| self.rules.iter().any(|rule| rule.thresholds.contains(name));
        for name in self.thresholds.keys().filter(|name| !used(name)) {
            warnings.push(self.unused(
                "thresholds",
                name,
                "is used by no rule: use it in a condition or a preview, or remove it",
            ));
        }
        warnings
    }

    fn warning(&self, rule: &Rule) -> Option<Fault> {
        let tell = |key: &str, message: String| {
            Some(Fault { file: rule.file.clone(), key: format!("rules.{}{key}", rule.name), message })
        };
        if let Some(when) = rule.when.as_ref().filter(|when| when.is_constant()) {
            match when.evaluate(&self.nothing()) {
                Ok(true) => return tell(".when", "always holds: remove it".to_owned()),
                Ok(false) => {
                    return tell(
                        ".when",
                        "never holds, so the rule can never match: correct it, or remove the rule".to_owned(),
                    );
                }
                Err(_) => {
                    return tell(
                        ".when",
                        "can never be evaluated: correct it, or remove the rule".to_owned(),
                    );
                }
            }
        }
        let denying = self.covering(rule, |effect| matches!(effect, Effect::Deny));
        if !denying.is_empty() && !matches!(rule.effect, Effect::Deny) {
            let message = format!(
                "can never decide anything, as {} denies all of its tools, always: narrow the tools there, or remove \
                 this rule",
                quoted(&denying)
            );
            return tell("", message);
        }
        let asking = self.covering(rule, |effect| matches!(effect, Effect::RequireApproval(_)));
        if !asking.is_empty() && matches!(rule.effect, Effect::Allow) {
            let message = format!(
                "changes nothing, as {} asks people about all of its tools, always, and an allow never loosens that: \
                 narrow the tools there or give it a when, or remove this rule",
                quoted(&asking)
            );
            return tell("", message);
        }
        None
    }

    /// The rules without a condition that together name everything this rule names; none when something is left.
    fn covering(&self, rule: &Rule, wanted: fn(&Effect) -> bool) -> Vec<&str> {
        let mut names = Vec::new();
        for pattern in &rule.tools {
            let covers = |other: &&Rule| {
                let unconditional = other.when.is_none() && wanted(&other.effect) && other.name != rule.name;
                unconditional && other.tools.iter().any(|wide| covers(wide, pattern))
            };
            match self.rules.iter().find(covers) {
                Some(other) if names.contains(&other.name.as_str()) => {}
                Some(other) => names.push(other.name.as_str()),
                None => return Vec::new(),
            }
        }
        names
    }

    fn is_asked(&self, group: &str) -> bool {
        // The members of `stop` may pause agents, whatever rules ask.
        let asked = |rule: &Rule| match &rule.effect {
            Effect::RequireApproval(approval) => {
                approval.requirement.groups().any(|name| name.as_str() == group)
            }
            Effect::Allow | Effect::Deny => false,
        };
        group == "stop" || self.rules.iter().any(asked)
    }

    /// The file that defines a name, from the source.
    fn unused(&self, table: &str, name: &str, message: &str) -> Fault {
        let files = self.source.get("files").and_then(Value::as_array).into_iter().flatten();
        let mut defining = files.filter(|file| file["policy"][table].get(name).is_some());
        let file = defining.next().and_then(|file| file["file"].as_str()).unwrap_or_default();
        Fault { file: file.to_owned(), key: format!("{table}.{name}"), message: message.to_owned() }
    }

    /// A call that a condition without names can be asked about.
    fn nothing(&self) -> Facts {
        let (agent, upstream, tool): (AgentName, UpstreamName, ToolName) = ("".into(), "".into(), "".into());
        let call = CallFacts {
            agent: &agent,
            owner: None,
            upstream: &upstream,
            upstream_address: "",
            environment: None,
            tool: &tool,
            arguments: &Map::new(),
        };
        Facts::of(&self.tenant, &self.thresholds, &call)
    }
}

fn quoted(rules: &[&str]) -> String {
    let names: Vec<_> = rules.iter().map(|name| format!("'{name}'")).collect();
    format!("the rule {}", names.join(" with "))
}

/// Whether every tool that `narrow` names is certainly named by `wide` too. For more than plain text and `*` the answer
/// is no unless they are the same.
pub(super) fn covers(wide: &str, narrow: &str) -> bool {
    if wide == narrow {
        return true;
    }
    let plain =
        |pattern: &str| !pattern.contains(['?', '[', ']', '{', '}', '\\', '!']) && !pattern.contains("**");
    if !plain(wide) || narrow.contains("**") || narrow.contains('\\') {
        return false;
    }
    // A `*` of the narrow pattern is text here, and only a `*` of the wide one can take it in: no more than what lies
    // between two slashes, which is as much as the narrow one's stands for.
    match_stars(wide.as_bytes(), narrow.as_bytes())
}

fn match_stars(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => {
            let reach = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
            (0..=reach).any(|taken| match_stars(rest, &text[taken..]))
        }
        // A group of the narrow pattern may hold a slash or be empty; only a `*` may take it in.
        Some((byte, rest)) => text.first() == Some(byte) && match_stars(rest, &text[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_certain_counts_as_covered() {
        for (wide, narrow) in [
            ("shop/*", "shop/*"),
            ("shop/*", "shop/refund_*"),
            ("shop/*", "shop/{a,b}"),
            ("shop/re*", "shop/refund?"),
            ("*/delete_*", "shop/delete_x"),
            ("*/*", "*/x"),
        ] {
            assert!(covers(wide, narrow), "{wide} {narrow}");
        }
        for (wide, narrow) in [
            ("shop/refund_*", "shop/*"),
            ("shop/*", "shop/**"),
            ("shop/*", "shop/a/b"),
            ("shop/*", "shop/{a/b,c}"),
            ("shop/?", "shop/*"),
            ("shop/[ab]", "shop/a"),
            ("shop/x*", "shop/*x"),
            ("*", "shop/x"),
        ] {
            assert!(!covers(wide, narrow), "{wide} {narrow}");
        }
    }
}
