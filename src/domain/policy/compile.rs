//! Compiles one tenant's files into a policy, with all faults at once, each with file, key and what to write instead.

mod limits;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::expression::Expression;
use super::{Definition, Group, GroupDefinition, Limits, Policy, PreviewTemplates, Risk};
use crate::domain::cosmetic::Cosmetic;
use crate::domain::ids::{AgentName, GroupName, Installation, Person, RuleName, Tenant, UpstreamName};
use crate::domain::place::{Account, Place};
use crate::domain::requirement::Requirement;
use crate::domain::visible::visible;

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
    /// The tenant's agents that work for somebody, and for whom.
    pub owners: BTreeMap<AgentName, Person>,
}

/// One compiled rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: RuleName,
    /// The file it stands in.
    pub(super) file: String,
    /// Its globs, as written.
    pub(super) tools: Vec<String>,
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

impl Effect {
    /// As it is written in a policy.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::RequireApproval(_) => "require_approval",
        }
    }
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
    pub(super) cosmetic: Cosmetic,
}

/// Compiles the files of one tenant.
///
/// # Errors
/// Every fault of every file.
pub fn compile(tenant: Tenant, files: &[(String, Definition)], known: &Known) -> Result<Policy, Vec<Fault>> {
    let mut compiler = Compiler { files, known, complete: true, faults: Vec::new() };
    let Compiled { thresholds, people, groups, rules, limits } = compiler.compile();
    if !compiler.faults.is_empty() {
        return Err(compiler.faults);
    }
    let source = json!({
        "tenant": tenant,
        "files": files.iter().map(|(file, definition)| json!({"file": file, "policy": definition})).collect::<Vec<_>>(),
    });
    let rules::Rules { sorted, matcher, owners } = rules;
    Ok(Policy { tenant, thresholds, people, groups, rules: sorted, matcher, owners, limits, source })
}

/// The faults that are certain though other files, or parts of these, could not be read: unless all names are `complete`,
/// one that is missing here may be there.
#[must_use]
pub fn certain_faults(files: &[(String, Definition)], known: &Known, complete: bool) -> Vec<Fault> {
    let mut compiler = Compiler { files, known, complete, faults: Vec::new() };
    compiler.compile();
    compiler.faults
}

struct Compiler<'a> {
    files: &'a [(String, Definition)],
    known: &'a Known,
    /// Whether the files are all there is.
    complete: bool,
    faults: Vec<Fault>,
}

struct Compiled {
    thresholds: BTreeMap<String, f64>,
    people: BTreeMap<Person, Vec<Account>>,
    groups: BTreeMap<GroupName, Group>,
    rules: rules::Rules,
    limits: Limits,
}

impl Compiler<'_> {
    fn compile(&mut self) -> Compiled {
        let thresholds = self.thresholds();
        let people = self.people();
        let groups = self.groups(&people);
        let rules = self.rules(&rules::Names { thresholds: &thresholds, groups: &groups });
        let limits = self.limits();
        Compiled { thresholds, people, groups, rules, limits }
    }

    fn fault(&mut self, file: usize, key: &str, message: impl Into<String>) {
        let file = self.files.get(file).map_or_else(String::new, |(name, _)| name.clone());
        self.faults.push(Fault { file, key: key.to_owned(), message: message.into() });
    }

    /// A fault that something is missing, which it is only if nothing is left out.
    fn dangling(&mut self, file: usize, key: &str, message: impl Into<String>) {
        if self.complete {
            self.fault(file, key, message);
        }
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

    /// A name that is shown to people says what it is, and none stands for several.
    fn plain(&mut self, file: usize, what: &str, name: &str) {
        let hidden = name.chars().any(|c| c.is_control() || c == '*') || visible(name) != name;
        if hidden || name.trim() != name || !(1..=64).contains(&name.chars().count()) {
            let message = "must be named in 1 to 64 visible characters, without '*' and without white space around them";
            self.fault(file, &format!("{what}.{name}"), message);
        }
    }

    fn thresholds(&mut self) -> BTreeMap<String, f64> {
        let (mut seen, mut all) = (BTreeMap::new(), BTreeMap::new());
        for (file, (_, definition)) in self.files.iter().enumerate() {
            for (name, value) in &definition.thresholds {
                self.define(&mut seen, file, "thresholds", name);
                if !is_identifier(name) {
                    self.fault(
                        file,
                        &format!("thresholds.{name}"),
                        "can't be named in a condition: use letters, digits and '_', not beginning with a digit",
                    );
                }
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
                self.plain(file, "people", name);
                let mut accounts = Vec::new();
                for text in &person.slack {
                    let wanted =
                        "an account: write \"NAME/U…\", the name of [slack.NAME] and the person's member id";
                    let Some(account) = self.account(file, &key, text, &['U', 'W'], wanted) else { continue };
                    if let Some(other) =
                        owners.insert(account.clone(), name.clone()).filter(|other| other != name)
                    {
                        self.fault(
                            file,
                            &key,
                            format!("'{text}' is {other}'s account already: keep it with one of the two, as people are counted and not accounts"),
                        );
                    }
                    accounts.push(account);
                }
                if person.slack.is_empty() {
                    self.fault(
                        file,
                        &format!("people.{name}"),
                        "has no account: add slack = [\"NAME/U…\"], the name of [slack.NAME] and the person's member id",
                    );
                }
                all.insert(Person::new(name.clone()), accounts);
            }
        }
        all
    }

    fn known_installation(&mut self, file: usize, key: &str, installation: &Installation) {
        if !self.known.slack.contains(installation) {
            self.fault(file, key, format!("there is no installation '{installation}': add [slack.{installation}] to the server's configuration"));
        }
    }

    fn groups(&mut self, people: &BTreeMap<Person, Vec<Account>>) -> BTreeMap<GroupName, Group> {
        let (mut seen, mut all) = (BTreeMap::new(), BTreeMap::new());
        for (file, (_, definition)) in self.files.iter().enumerate() {
            for (name, group) in &definition.groups {
                self.define(&mut seen, file, "groups", name);
                self.plain(file, "groups", name);
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
            let message = "is empty, and nobody could approve: add people = [\"…\"] or slack_usergroups = [\"NAME/S…\"]";
            self.fault(file, &format!("groups.{name}"), message);
        }
        let key = format!("groups.{name}.people");
        for person in &group.people {
            if person.contains('*') {
                self.fault(
                    file,
                    &key,
                    format!("'{person}' stands for nobody: name each person, or use slack_usergroups"),
                );
            } else if !people.contains_key(&Person::new(person.clone())) {
                self.dangling(
                    file,
                    &key,
                    format!("'{person}' is nobody: add [people.{person}], or correct the name"),
                );
            }
        }
        let key = format!("groups.{name}.slack_usergroups");
        let mut usergroups = Vec::new();
        for text in &group.slack_usergroups {
            let wanted = "a user group: write \"NAME/S…\", the name of [slack.NAME] and the user group's id";
            if let Some(account) = self.account(file, &key, text, &['S'], wanted) {
                usergroups.push((account.installation, account.user));
            }
        }
        let mut members: Vec<_> = group.people.iter().cloned().map(Person::new).collect();
        members.sort();
        members.dedup();
        Group { people: members, slack_usergroups: usergroups }
    }
}

fn is_identifier(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a text is an id of Slack's: one of these letters, then capitals and digits.
fn is_id(text: &str, kinds: &[char]) -> bool {
    let rest = text.strip_prefix(kinds).unwrap_or_default();
    !rest.is_empty() && rest.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit())
}

#[cfg(test)]
mod tests;
