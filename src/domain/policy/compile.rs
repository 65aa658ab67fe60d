//! Compiles one tenant's files into a policy, with all faults at once, each with file, key and what to write instead.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_json::{Value, json};

use super::expression::Expression;
use super::{
    ApprovalDefinition, Definition, EffectDefinition, Group, GroupDefinition, Policy, PreviewTemplates, Risk,
    RuleDefinition,
};
use crate::domain::ids::{GroupName, Installation, Person, RuleName, Tenant, UpstreamName};
use crate::domain::place::{Account, Place, Platform};
use crate::domain::requirement::{ApproverCount, Requirement};

/// One fault of a configuration or policy file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: String,
    /// The key, as a path; empty for the file as a whole.
    pub key: String,
    /// What is wrong and what to write instead. Never a secret's value.
    pub message: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "{}: {}", self.file, self.message),
            key => write!(f, "{}: {key}: {}", self.file, self.message),
        }
    }
}

/// What the server's configuration knows, for policy to refer to.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The Slack installations.
    pub slack: BTreeSet<Installation>,
    /// The tenant's upstreams.
    pub upstreams: BTreeSet<UpstreamName>,
}

/// One compiled rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: RuleName,
    pub(super) when: Option<Expression>,
    pub(super) effect: Effect,
    /// The rule as written, for the policy version.
    pub(super) source: Value,
    /// The thresholds it names.
    pub(super) thresholds: Vec<String>,
}

/// What a compiled rule does.
#[derive(Debug)]
pub(super) enum Effect {
    Allow,
    Deny,
    RequireApproval(Box<Approval>),
}

/// A compiled requirement of one rule.
#[derive(Debug)]
pub(super) struct Approval {
    pub(super) risk: Risk,
    pub(super) requirement: Requirement,
    pub(super) post_to: Vec<Place>,
    pub(super) expires: Duration,
    pub(super) redeem_within: Duration,
    pub(super) templates: Arc<PreviewTemplates>,
}

/// Shortest and longest time to decide.
const EXPIRES: std::ops::RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(24 * 3600);

/// Shortest and longest time to redeem.
const REDEEM_WITHIN: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Compiles the files of one tenant.
///
/// # Errors
/// Every fault of every file.
pub fn compile(tenant: Tenant, files: &[(String, Definition)], known: &Known) -> Result<Policy, Vec<Fault>> {
    let mut compiler = Compiler { files, known, faults: Vec::new() };
    let thresholds = compiler.thresholds();
    let people = compiler.people();
    let groups = compiler.groups(&people);
    let (rules, matcher, owners) = compiler.rules(&thresholds, &groups);
    if rules.is_empty() && compiler.faults.is_empty() {
        compiler.fault(0, "rules", "has no rule: no tool could ever be called");
    }
    if !compiler.faults.is_empty() {
        return Err(compiler.faults);
    }
    let source = json!({
        "tenant": tenant,
        "files": files.iter().map(|(file, definition)| json!({"file": file, "policy": definition})).collect::<Vec<_>>(),
    });
    Ok(Policy { tenant, thresholds, people, groups, rules, matcher, owners, source })
}

struct Compiler<'a> {
    files: &'a [(String, Definition)],
    known: &'a Known,
    faults: Vec<Fault>,
}

impl Compiler<'_> {
    fn fault(&mut self, file: usize, key: &str, message: impl Into<String>) {
        let file = self.files.get(file).map_or_else(String::new, |(name, _)| name.clone());
        self.faults.push(Fault { file, key: key.to_owned(), message: message.into() });
    }

    /// Notes a definition; defining one name twice is a fault that names both files.
    fn define(&mut self, seen: &mut BTreeMap<String, usize>, file: usize, what: &str, name: &str) {
        if let Some(first) = seen.insert(name.to_owned(), file) {
            let first = self.files.get(first).map_or_else(String::new, |(name, _)| name.clone());
            self.fault(
                file,
                &format!("{what}.{name}"),
                format!("is defined in {first} already: keep one of the two"),
            );
        }
    }

    fn thresholds(&mut self) -> BTreeMap<String, f64> {
        let (mut seen, mut all) = (BTreeMap::new(), BTreeMap::new());
        for (file, (_, definition)) in self.files.iter().enumerate() {
            for (name, value) in &definition.thresholds {
                self.define(&mut seen, file, "thresholds", name);
                if !value.is_finite() {
                    self.fault(file, &format!("thresholds.{name}"), "must be a finite number");
                }
                all.insert(name.clone(), *value);
            }
        }
        all
    }

    fn people(&mut self) -> BTreeMap<Person, Vec<Account>> {
        let (mut seen, mut all) = (BTreeMap::new(), BTreeMap::new());
        let mut owners = BTreeMap::<Account, String>::new();
        for (file, (_, definition)) in self.files.iter().enumerate() {
            for (name, person) in &definition.people {
                let key = format!("people.{name}.slack");
                self.define(&mut seen, file, "people", name);
                if name.contains([':', '/']) {
                    self.fault(
                        file,
                        &format!("people.{name}"),
                        "must not contain ':' or '/': those mark accounts",
                    );
                }
                let mut accounts = Vec::new();
                for text in &person.slack {
                    let Some(account) = Account::parse(Platform::Slack, text) else {
                        self.fault(
                            file,
                            &key,
                            format!("'{text}' is not an account: write \"installation/U…\""),
                        );
                        continue;
                    };
                    self.known_installation(file, &key, &account.installation);
                    if let Some(other) =
                        owners.insert(account.clone(), name.clone()).filter(|other| other != name)
                    {
                        self.fault(
                            file,
                            &key,
                            format!("'{text}' is {other}'s account already: a person is one person"),
                        );
                    }
                    accounts.push(account);
                }
                if person.slack.is_empty() {
                    self.fault(
                        file,
                        &format!("people.{name}"),
                        "has no account: add slack = [\"installation/U…\"]",
                    );
                }
                all.insert(Person::new(name.clone()), accounts);
            }
        }
        all
    }

    fn known_installation(&mut self, file: usize, key: &str, installation: &Installation) {
        if !self.known.slack.contains(installation) {
            self.fault(file, key, format!("no [slack.{installation}] is configured"));
        }
    }

    fn groups(&mut self, people: &BTreeMap<Person, Vec<Account>>) -> BTreeMap<GroupName, Group> {
        let (mut seen, mut all) = (BTreeMap::new(), BTreeMap::new());
        for (file, (_, definition)) in self.files.iter().enumerate() {
            for (name, group) in &definition.groups {
                self.define(&mut seen, file, "groups", name);
                let compiled = self.group(file, name, group, people);
                all.insert(GroupName::new(name.clone()), compiled);
            }
        }
        all
    }

    fn group(
        &mut self,
        file: usize,
        name: &str,
        group: &GroupDefinition,
        people: &BTreeMap<Person, Vec<Account>>,
    ) -> Group {
        if group.people.is_empty() && group.slack_usergroups.is_empty() {
            let message = "is empty, and nobody could approve: add people = [\"…\"] or slack_usergroups = [\"installation/S…\"]";
            self.fault(file, &format!("groups.{name}"), message);
        }
        let key = format!("groups.{name}.people");
        for person in &group.people {
            if !people.contains_key(&Person::new(person.clone())) {
                self.fault(file, &key, format!("'{person}' is nobody: add [people.{person}]"));
            }
        }
        let key = format!("groups.{name}.slack_usergroups");
        let mut usergroups = Vec::new();
        for text in &group.slack_usergroups {
            match Account::parse(Platform::Slack, text) {
                Some(account) if account.user.starts_with('S') => {
                    self.known_installation(file, &key, &account.installation);
                    usergroups.push((account.installation, account.user));
                }
                _ => {
                    self.fault(
                        file,
                        &key,
                        format!("'{text}' is not a user group: write \"installation/S…\""),
                    );
                }
            }
        }
        let mut members: Vec<_> = group.people.iter().cloned().map(Person::new).collect();
        members.sort();
        members.dedup();
        Group { people: members, slack_usergroups: usergroups }
    }

    fn rules(
        &mut self,
        thresholds: &BTreeMap<String, f64>,
        groups: &BTreeMap<GroupName, Group>,
    ) -> (Vec<Rule>, GlobSet, Vec<usize>) {
        let mut seen = BTreeMap::new();
        let mut rules: Vec<(Rule, Vec<globset::Glob>)> = Vec::new();
        for (file, (_, definition)) in self.files.iter().enumerate() {
            for rule in &definition.rules {
                self.define(&mut seen, file, "rules", &rule.name);
                let globs = self.globs(file, rule);
                rules.push((self.rule(file, rule, thresholds, groups), globs));
            }
        }
        // In the order of their names: file order and rule order decide nothing.
        rules.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        let (mut builder, mut owners) = (GlobSetBuilder::new(), Vec::new());
        for (index, (_, globs)) in rules.iter().enumerate() {
            for glob in globs {
                builder.add(glob.clone());
                owners.push(index);
            }
        }
        let matcher = builder.build().unwrap_or_else(|_| {
            self.fault(0, "rules", "the tools of all rules together are too large to be compiled");
            GlobSet::empty()
        });
        (rules.into_iter().map(|(rule, _)| rule).collect(), matcher, owners)
    }

    fn globs(&mut self, file: usize, rule: &RuleDefinition) -> Vec<globset::Glob> {
        let key = format!("rules.{}.tools", rule.name);
        if rule.tools.is_empty() {
            self.fault(
                file,
                &key,
                "is empty: name tools as \"upstream/tool\"; '*' stands for any text without '/'",
            );
        }
        let mut globs = Vec::new();
        for pattern in &rule.tools {
            let upstream = pattern.split_once('/').map(|(upstream, _)| upstream);
            match upstream {
                None => {
                    self.fault(file, &key, format!("'{pattern}' names no upstream: write \"upstream/tool\""));
                }
                Some(upstream)
                    if !upstream.contains(['*', '?', '[', '{'])
                        && !self.known.upstreams.contains(&UpstreamName::from(upstream)) =>
                {
                    self.fault(file, &key, format!("'{pattern}': this tenant has no upstream '{upstream}'"));
                }
                Some(_) => {}
            }
            match GlobBuilder::new(pattern).literal_separator(true).build() {
                Ok(glob) => globs.push(glob),
                Err(_) => self.fault(file, &key, format!("'{pattern}' is not a glob")),
            }
        }
        globs
    }

    fn rule(
        &mut self,
        file: usize,
        rule: &RuleDefinition,
        thresholds: &BTreeMap<String, f64>,
        groups: &BTreeMap<GroupName, Group>,
    ) -> Rule {
        let when = rule.when.as_ref().and_then(|source| match Expression::parse(source) {
            Ok(expression) => Some(expression),
            Err(message) => {
                self.fault(file, &format!("rules.{}.when", rule.name), message);
                None
            }
        });
        let named = named_thresholds(rule);
        for name in named.iter().filter(|name| !thresholds.contains_key(*name)) {
            self.fault(
                file,
                &format!("rules.{}", rule.name),
                format!("uses thresholds.{name}, which [thresholds] does not have"),
            );
        }
        let effect = match &rule.effect {
            EffectDefinition::Allow => Effect::Allow,
            EffectDefinition::Deny => Effect::Deny,
            EffectDefinition::RequireApproval(approval) => {
                match self.approval(file, &rule.name, approval, thresholds, groups) {
                    Some(approval) => Effect::RequireApproval(Box::new(approval)),
                    None => Effect::Deny,
                }
            }
        };
        let named = if dynamic_thresholds(rule) { thresholds.keys().cloned().collect() } else { named };
        Rule {
            name: RuleName::new(rule.name.clone()),
            when,
            effect,
            source: serde_json::to_value(rule).unwrap_or_default(),
            thresholds: named,
        }
    }

    fn approval(
        &mut self,
        file: usize,
        rule: &str,
        definition: &ApprovalDefinition,
        thresholds: &BTreeMap<String, f64>,
        groups: &BTreeMap<GroupName, Group>,
    ) -> Option<Approval> {
        let key = |key: &str| format!("rules.{rule}.{key}");
        let mut approvers = Vec::new();
        if definition.approvers.is_empty() {
            self.fault(file, &key("approvers"), "is empty: write approvers = [{ group = \"…\", count = 1 }]");
        }
        for (name, count) in &definition.approvers {
            let group = groups.get(&GroupName::new(name.clone()));
            match group {
                None => self.fault(
                    file,
                    &key("approvers"),
                    format!("there is no group '{name}': add [groups.{name}]"),
                ),
                Some(_) if *count == 0 => self.fault(file, &key("approvers"), "count must be at least 1"),
                Some(group) if group.slack_usergroups.is_empty() && group.people.len() < *count as usize => {
                    self.fault(
                        file,
                        &key("approvers"),
                        format!(
                            "asks for {count} of {name}, which has {} people: nobody could ever meet it",
                            group.people.len()
                        ),
                    );
                }
                Some(_) => {}
            }
            approvers.push(ApproverCount { count: *count, group: GroupName::new(name.clone()) });
        }
        approvers.sort_by(|a, b| a.group.cmp(&b.group));
        let post_to = self.places(file, &key("post_to"), &definition.post_to);
        if !EXPIRES.contains(&definition.expires) {
            self.fault(file, &key("expires"), "must be from 10s to 24h");
        }
        if !REDEEM_WITHIN.contains(&definition.redeem_within) {
            self.fault(file, &key("redeem_within"), "must be from 1s to 1h");
        }
        let names = thresholds.keys().map(String::as_str).collect();
        let templates = match PreviewTemplates::compile(&definition.preview, &names) {
            Ok(templates) => templates,
            Err(faults) => {
                for (template, message) in faults {
                    self.fault(file, &key(&format!("preview.{template}")), message);
                }
                return None;
            }
        };
        Some(Approval {
            risk: definition.risk,
            requirement: Requirement {
                approvers,
                separate_proposer: definition.separate_proposer,
                step_up: None,
                escalate: None,
                second_look_s: None,
            },
            post_to,
            expires: definition.expires,
            redeem_within: definition.redeem_within,
            templates: Arc::new(templates),
        })
    }

    fn places(&mut self, file: usize, key: &str, written: &[String]) -> Vec<Place> {
        if written.is_empty() {
            self.fault(
                file,
                key,
                "is empty, and nobody could be asked: write post_to = [\"slack:installation/C…\"]",
            );
        }
        let mut places = Vec::new();
        for text in written {
            match Place::parse(text) {
                Some(place) if place.platform == Platform::Slack => {
                    self.known_installation(file, key, &place.installation);
                    places.push(place);
                }
                Some(_) => {
                    self.fault(file, key, format!("'{text}': Discord is not available in this version"));
                }
                None => {
                    self.fault(
                        file,
                        key,
                        format!("'{text}' is not a place: write \"slack:installation/C…\""),
                    );
                }
            }
        }
        places
    }
}

/// The text of a rule that may name thresholds.
fn texts(rule: &RuleDefinition) -> Vec<&str> {
    let mut texts: Vec<&str> = rule.when.as_deref().into_iter().collect();
    if let EffectDefinition::RequireApproval(approval) = &rule.effect {
        texts.extend(approval.preview.entries().into_iter().filter_map(|(_, template)| template));
    }
    texts
}

/// The members of `thresholds` that a rule names.
fn named_thresholds(rule: &RuleDefinition) -> Vec<String> {
    let mut names = BTreeSet::new();
    for text in texts(rule) {
        for (at, word) in text.match_indices("thresholds.") {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.') {
                continue;
            }
            let name: String =
                text[at + word.len()..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            names.insert(name);
        }
    }
    names.into_iter().collect()
}

/// Whether a rule reaches thresholds in a way that does not name them: then it depends on all of them.
fn dynamic_thresholds(rule: &RuleDefinition) -> bool {
    texts(rule).iter().any(|text| text.matches("thresholds").count() > text.matches("thresholds.").count())
}

#[cfg(test)]
mod tests;
