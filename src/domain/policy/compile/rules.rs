//! Compiles the rules: patterns, conditions, requirements, places and templates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use super::{Approval, Compiler, Effect, Rule, is_id};
use crate::domain::ids::{GroupName, Person, RuleName};
use crate::domain::place::{Account, Place, Platform};
use crate::domain::policy::expression::{Expression, Named};
use crate::domain::policy::{ApprovalDefinition, EffectDefinition, Group, PreviewTemplates, RuleDefinition};
use crate::domain::requirement::{ApproverCount, Requirement, tally};

/// Shortest and longest time to decide.
const EXPIRES: std::ops::RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_hours(24);

/// Shortest and longest time to redeem.
const REDEEM_WITHIN: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(1);

/// The most people that one entry may ask for.
const MOST_PEOPLE: u32 = 100;

/// What rules may refer to.
pub(super) struct Names<'a> {
    pub(super) thresholds: &'a BTreeMap<String, f64>,
    pub(super) groups: &'a BTreeMap<GroupName, Group>,
}

/// The rules in the order of their names, their patterns, and which rule a pattern is of.
pub(super) struct Rules {
    pub(super) sorted: Vec<Rule>,
    pub(super) matcher: GlobSet,
    pub(super) owners: Vec<usize>,
}

impl Compiler<'_> {
    pub(super) fn rules(&mut self, names: &Names<'_>) -> Rules {
        let mut seen = BTreeMap::new();
        let mut rules: Vec<(Rule, Vec<Glob>)> = Vec::new();
        for (file, (_, definition)) in self.files.iter().enumerate() {
            for rule in &definition.rules {
                self.define(&mut seen, file, "rules", &rule.name);
                self.plain(file, "rules", &rule.name);
                let globs = self.globs(file, rule);
                rules.push((self.rule(file, rule, names), globs));
            }
        }
        if rules.is_empty() {
            self.dangling(0, "rules", "has no rule: no tool could ever be called; add [[rules]]");
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
        Rules { sorted: rules.into_iter().map(|(rule, _)| rule).collect(), matcher, owners }
    }

    fn globs(&mut self, file: usize, rule: &RuleDefinition) -> Vec<Glob> {
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
            match self.glob(pattern) {
                Ok(glob) => globs.push(glob),
                Err(message) => self.fault(file, &key, format!("'{pattern}' {message}")),
            }
        }
        globs
    }

    /// The upstream's part may be a glob too, as in `*/delete_*`, so long as it names an upstream of the tenant.
    fn glob(&self, pattern: &str) -> Result<Glob, String> {
        let whole =
            |_| "is not a glob: '*' stands for any text without '/', {a,b} for one of several".to_owned();
        let (upstream, tool) = match pattern.split_once('/') {
            Some((upstream, tool)) if !upstream.is_empty() && !tool.is_empty() => (upstream, tool),
            _ => {
                return Err("must be \"upstream/tool\", where '*' stands for any text without '/'".to_owned());
            }
        };
        glob(tool).map_err(whole)?;
        let named = glob(upstream).map_err(whole)?.compile_matcher();
        if self.known.upstreams.iter().any(|known| named.is_match(known.as_str())) {
            glob(pattern).map_err(whole)
        } else {
            Err(format!(
                "is for no upstream of this tenant: add [tenants.NAME.upstreams.{upstream}] to the server's configuration, or name another"
            ))
        }
    }

    fn rule(&mut self, file: usize, rule: &RuleDefinition, names: &Names<'_>) -> Rule {
        let mut thresholds = Named::default();
        let when = rule.when.as_ref().and_then(|source| {
            let key = format!("rules.{}.when", rule.name);
            match Expression::parse(source) {
                Ok(expression) => {
                    self.thresholds_exist(file, &key, expression.thresholds(), names);
                    thresholds.add(expression.thresholds());
                    Some(expression)
                }
                Err(message) => {
                    self.fault(file, &key, message);
                    None
                }
            }
        });
        let effect = match &rule.effect {
            EffectDefinition::Allow => Effect::Allow,
            EffectDefinition::Deny => Effect::Deny,
            EffectDefinition::RequireApproval(approval) => {
                let any_agent = !when.as_ref().is_some_and(|when| when.looks_at("agent"));
                match self.approval(file, &rule.name, approval, names, any_agent) {
                    Some(approval) => {
                        thresholds.add(approval.templates.thresholds());
                        Effect::RequireApproval(Box::new(approval))
                    }
                    None => Effect::Deny,
                }
            }
        };
        let thresholds = if thresholds.any {
            names.thresholds.keys().cloned().collect()
        } else {
            thresholds.members.into_iter().collect()
        };
        let source = serde_json::to_value(rule).unwrap_or_default();
        Rule {
            name: RuleName::new(rule.name.clone()),
            file: self.files.get(file).map_or_else(String::new, |(name, _)| name.clone()),
            tools: rule.tools.clone(),
            when,
            effect,
            source,
            thresholds,
        }
    }

    fn thresholds_exist(&mut self, file: usize, key: &str, used: &Named, names: &Names<'_>) {
        for name in used.members.iter().filter(|name| !names.thresholds.contains_key(*name)) {
            self.dangling(file, key, format!("uses thresholds.{name}: add {name} to [thresholds]"));
        }
    }

    fn approval(
        &mut self,
        file: usize,
        rule: &str,
        definition: &ApprovalDefinition,
        names: &Names<'_>,
        any_agent: bool,
    ) -> Option<Approval> {
        let key = |key: &str| format!("rules.{rule}.{key}");
        let requirement = Requirement {
            approvers: self.approvers(file, &key("approvers"), definition, names, any_agent),
            separate_proposer: definition.separate_proposer,
            step_up: None,
            escalate: None,
            second_look_s: None,
        };
        let post_to = self.places(file, &key("post_to"), &definition.post_to);
        if !EXPIRES.contains(&definition.expires) {
            self.fault(file, &key("expires"), "must be from 10s to 24h");
        }
        if !REDEEM_WITHIN.contains(&definition.redeem_within) {
            self.fault(file, &key("redeem_within"), "must be from 1s to 1h");
        }
        for (name, pointers) in
            [("ignore", &definition.cosmetic.ignore), ("unordered", &definition.cosmetic.unordered)]
        {
            for pointer in pointers.iter().filter(|pointer| !is_pointer(pointer)) {
                let message =
                    format!("'{pointer}' is not a JSON Pointer into the arguments: write \"/note\"");
                self.fault(file, &key(&format!("cosmetic.{name}")), message);
            }
        }
        let (templates, faults) = PreviewTemplates::compile(&definition.preview);
        for (template, message) in &faults {
            self.fault(file, &key(&format!("preview.{template}")), message);
        }
        for (template, named) in templates.named() {
            self.thresholds_exist(file, &key(&format!("preview.{template}")), named, names);
        }
        faults.is_empty().then(|| Approval {
            risk: definition.risk,
            requirement,
            post_to,
            expires: definition.expires,
            redeem_within: definition.redeem_within,
            templates: Arc::new(templates),
            cosmetic: definition.cosmetic.clone(),
        })
    }

    fn approvers(
        &mut self,
        file: usize,
        key: &str,
        definition: &ApprovalDefinition,
        names: &Names<'_>,
        any_agent: bool,
    ) -> Vec<ApproverCount> {
        if definition.approvers.is_empty() {
            self.fault(file, key, "is empty: write approvers = [{ group = \"…\", count = 1 }]");
        }
        let mut approvers: Vec<ApproverCount> = Vec::new();
        let mut sound = true;
        for (name, count) in &definition.approvers {
            let entry = ApproverCount { count: *count, group: GroupName::new(name.clone()) };
            if name.contains('*') {
                self.fault(
                    file,
                    key,
                    format!("'{name}' stands for no group: write the name of one of [groups.NAME]"),
                );
                sound = false;
            } else if !names.groups.contains_key(&entry.group) {
                self.dangling(
                    file,
                    key,
                    format!("there is no group '{name}': add [groups.{name}], or correct the name"),
                );
                sound = false;
            }
            if !(1..=MOST_PEOPLE).contains(count) {
                self.fault(
                    file,
                    key,
                    format!("asks for {count} of {name}: count must be from 1 to {MOST_PEOPLE}"),
                );
                sound = false;
            }
            if approvers.iter().any(|other| other.group == entry.group) {
                self.fault(
                    file,
                    key,
                    format!("names {name} twice: write one entry with the count that is meant"),
                );
                sound = false;
            }
            approvers.push(entry);
        }
        approvers.sort_by(|a, b| a.group.cmp(&b.group));
        if sound {
            // A rule that looks at the agent may be for the agents of others.
            let separated = definition.separate_proposer && any_agent;
            self.enough_people(file, key, &approvers, names, separated);
        }
        approvers
    }

    /// Groups of people alone are known now: whether all of them together could ever meet the requirement, and without
    /// the person whom an agent works for, where that is kept from approving.
    fn enough_people(
        &mut self,
        file: usize,
        key: &str,
        approvers: &[ApproverCount],
        names: &Names<'_>,
        separated: bool,
    ) {
        let mut people = BTreeMap::<Person, BTreeSet<GroupName>>::new();
        let mut wanted = Vec::new();
        for entry in approvers {
            // An empty group is a fault of its own.
            let known = |group: &&Group| group.slack_usergroups.is_empty() && !group.people.is_empty();
            let Some(group) = names.groups.get(&entry.group).filter(known) else {
                return;
            };
            for person in &group.people {
                people.entry(person.clone()).or_default().insert(entry.group.clone());
            }
            wanted.push(format!("{} of {}, which has {}", entry.count, entry.group, group.people.len()));
        }
        let requirement = Requirement {
            approvers: approvers.to_vec(),
            separate_proposer: false,
            step_up: None,
            escalate: None,
            second_look_s: None,
        };
        let wanted = wanted.join(", and ");
        let met_without = |absent: Option<&Person>| {
            let present = people.iter().filter(|(person, _)| Some(*person) != absent);
            tally(&requirement, &present.map(|(p, g)| (p.clone(), g.clone())).collect::<Vec<_>>()).met
        };
        if approvers.is_empty() {
        } else if !met_without(None) {
            let message = format!(
                "asks for {wanted}: different people could never meet that; lower a count or add people"
            );
            self.dangling(file, key, message);
        } else if separated {
            for (agent, owner) in self.known.owners.iter().filter(|(_, owner)| !met_without(Some(owner))) {
                let message = format!(
                    "asks for {wanted}; the agent {agent} works for {owner}, who can't approve its calls, and without \
                     {owner} nobody could: add people, or set separate_proposer = false"
                );
                self.dangling(file, key, message);
            }
        }
    }

    fn places(&mut self, file: usize, key: &str, written: &[String]) -> Vec<Place> {
        if written.is_empty() {
            self.fault(
                file,
                key,
                "is empty, and nobody could be asked: write post_to = [\"slack:NAME/C…\"], the name of [slack.NAME] and the channel's id",
            );
        }
        self.known_places(file, key, written)
    }

    pub(super) fn known_places(&mut self, file: usize, key: &str, written: &[String]) -> Vec<Place> {
        let mut places = Vec::new();
        for text in written {
            match Place::parse(text) {
                Some(place) if place.platform == Platform::Slack && is_id(&place.channel, &['C', 'G']) => {
                    self.known_installation(file, key, &place.installation);
                    places.push(place);
                }
                Some(place) if place.platform == Platform::Discord => {
                    self.fault(file, key, format!("'{text}': Discord is not available in this version"));
                }
                _ => self.fault(
                    file,
                    key,
                    format!(
                        "'{text}' is not a place: write \"slack:NAME/C…\", the name of [slack.NAME] and the channel's id"
                    ),
                ),
            }
        }
        places
    }

    /// Reads `installation/id`, where the id begins with one of these letters.
    pub(super) fn account(
        &mut self,
        file: usize,
        key: &str,
        text: &str,
        kinds: &[char],
        wanted: &str,
    ) -> Option<Account> {
        let account = Account::parse(Platform::Slack, text).filter(|account| is_id(&account.user, kinds));
        match &account {
            Some(account) => self.known_installation(file, key, &account.installation),
            None => self.fault(file, key, format!("'{text}' is not {wanted}")),
        }
        account
    }
}

/// A JSON Pointer (RFC 6901) to something inside.
fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && !text.replace("~0", "").replace("~1", "").contains('~')
}

fn glob(pattern: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(pattern).literal_separator(true).build()
}
