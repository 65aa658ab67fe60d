//! Policy files: `policy/<tenant>/*.toml`, one for each team. Keys that this version has not are refused by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use toml::{Table, Value};

use super::reader::{Kind, Reader, Section, parse};
use crate::domain::ids::Tenant;
use crate::domain::policy::{
    ApprovalDefinition, Definition, EffectDefinition, Fault, GroupDefinition, Known, PersonDefinition,
    Policy, PreviewDefinition, Risk, RuleDefinition, compile,
};

/// Time to decide, where a rule does not say.
const EXPIRES: Duration = Duration::from_secs(600);

/// Time to redeem, where a rule does not say.
const REDEEM_WITHIN: Duration = Duration::from_secs(600);

/// Keys of a rule that only `require_approval` may have.
const APPROVAL_KEYS: [&str; 7] =
    ["risk", "approvers", "separate_proposer", "post_to", "expires", "redeem_within", "preview"];

/// Loads and compiles the policy of a tenant from every `*.toml` of a directory.
///
/// # Errors
/// Every fault of every file.
pub fn load(tenant: Tenant, directory: &Path, known: &Known) -> Result<Policy, Vec<Fault>> {
    let whole =
        |message: String| vec![Fault { file: directory.display().to_string(), key: String::new(), message }];
    let entries =
        std::fs::read_dir(directory).map_err(|error| whole(format!("can't be read: {}", error.kind())))?;
    let mut paths: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    if paths.is_empty() {
        return Err(whole("holds no *.toml file: write at least one".to_owned()));
    }
    let (mut files, mut faults) = (Vec::new(), Vec::new());
    for path in paths {
        let name = path.display().to_string();
        match std::fs::read_to_string(&path) {
            Ok(text) => match read(&name, &text) {
                Ok(definition) => files.push((name, definition)),
                Err(more) => faults.extend(more),
            },
            Err(error) => faults.push(Fault {
                file: name,
                key: String::new(),
                message: format!("can't be read: {}", error.kind()),
            }),
        }
    }
    match (compile(tenant, &files, known), faults.is_empty()) {
        (compiled, true) => compiled,
        // What one file lacks may be in the file that could not be read: only its own faults are sure.
        (_, false) => Err(faults),
    }
}

/// Reads one file.
fn read(file: &str, text: &str) -> Result<Definition, Vec<Fault>> {
    let table = parse(file, text).map_err(|fault| vec![fault])?;
    let mut reader = Reader::new(file);
    let definition = definition(&mut reader, table);
    let faults = reader.into_faults();
    if faults.is_empty() { Ok(definition) } else { Err(faults) }
}

fn definition(reader: &mut Reader, table: Table) -> Definition {
    let mut root = Section::new(reader, "", table);
    let mut thresholds = BTreeMap::new();
    for (name, value) in root.optional::<Table>("thresholds").unwrap_or_default() {
        match f64::read(value) {
            Some(value) => {
                thresholds.insert(name, value);
            }
            None => root.fault(&format!("thresholds.{name}"), format!("must be {}", f64::WANTED)),
        }
    }
    let people = root.tables("people");
    let groups = root.tables("groups");
    let rules = root.optional::<Vec<Table>>("rules").unwrap_or_default();
    root.not_built(&["caps", "limits"]);
    root.end();
    Definition {
        thresholds,
        people: people
            .into_iter()
            .map(|(name, table)| (name.clone(), person(reader, &name, table)))
            .collect(),
        groups: groups.into_iter().map(|(name, table)| (name.clone(), group(reader, &name, table))).collect(),
        rules: rules.into_iter().enumerate().filter_map(|(at, table)| rule(reader, at, table)).collect(),
    }
}

fn person(reader: &mut Reader, name: &str, table: Table) -> PersonDefinition {
    let mut section = Section::new(reader, format!("people.{name}"), table);
    let slack = section.optional("slack").unwrap_or_default();
    section.not_built(&["discord", "subjects", "totp"]);
    section.end();
    PersonDefinition { slack }
}

fn group(reader: &mut Reader, name: &str, table: Table) -> GroupDefinition {
    let mut section = Section::new(reader, format!("groups.{name}"), table);
    let people = section.optional("people").unwrap_or_default();
    let slack_usergroups = section.optional("slack_usergroups").unwrap_or_default();
    section.not_built(&["discord_roles"]);
    section.end();
    GroupDefinition { people, slack_usergroups }
}

fn rule(reader: &mut Reader, at: usize, mut table: Table) -> Option<RuleDefinition> {
    // The name first, so that every other fault of the rule carries it.
    let name = match table.remove("name").map(String::read) {
        Some(Some(name)) if !name.is_empty() => name,
        _ => {
            reader.fault(format!("rules[{at}].name"), "is missing: every rule needs a name of its own");
            return None;
        }
    };
    let mut section = Section::new(reader, format!("rules.{name}"), table);
    let tools = section.required("tools").unwrap_or_default();
    let when = section.optional("when");
    let decision: Option<String> = section.required("decision");
    section.not_built(&[
        "second_look",
        "audit_forwarded",
        "step_up",
        "remind_after",
        "escalate",
        "idempotency_argument",
        "facts",
        "preconditions",
        "reconcile",
        "undo",
        "cosmetic",
    ]);
    let effect = match decision.as_deref() {
        Some("require_approval") => EffectDefinition::RequireApproval(Box::new(approval(&mut section))),
        Some(other @ ("allow" | "deny")) => {
            for key in APPROVAL_KEYS {
                if section.optional::<Value>(key).is_some() {
                    section.fault(key, format!("means nothing with decision = \"{other}\": remove it"));
                }
            }
            if other == "allow" { EffectDefinition::Allow } else { EffectDefinition::Deny }
        }
        Some(_) => {
            section.fault("decision", "must be \"allow\", \"require_approval\" or \"deny\"");
            EffectDefinition::Deny
        }
        None => EffectDefinition::Deny,
    };
    section.end();
    Some(RuleDefinition { name, tools, when, effect })
}

fn approval(section: &mut Section<'_>) -> ApprovalDefinition {
    let risk = match section.optional::<String>("risk").as_deref() {
        None => Risk::High,
        Some(text) => Risk::parse(text).unwrap_or_else(|| {
            section.fault("risk", "must be \"medium\", \"high\" or \"critical\"");
            Risk::Critical
        }),
    };
    let approvers = section.required::<Vec<Table>>("approvers").unwrap_or_default();
    let approvers = approvers
        .into_iter()
        .map(|table| {
            let path = section.key("approvers");
            let mut entry = Section::new(section.reader(), path, table);
            let group = entry.required("group").unwrap_or_default();
            let count = entry.optional("count").unwrap_or(1);
            entry.end();
            (group, count)
        })
        .collect();
    let preview = section.optional::<Table>("preview").unwrap_or_default();
    ApprovalDefinition {
        risk,
        approvers,
        separate_proposer: section.optional("separate_proposer").unwrap_or(true),
        post_to: section.required("post_to").unwrap_or_default(),
        expires: section.optional("expires").unwrap_or(EXPIRES),
        redeem_within: section.optional("redeem_within").unwrap_or(REDEEM_WITHIN),
        preview: preview_of(section, preview),
    }
}

fn preview_of(section: &mut Section<'_>, table: Table) -> PreviewDefinition {
    let path = section.key("preview");
    let mut preview = Section::new(section.reader(), path, table);
    let definition = PreviewDefinition {
        title: preview.optional("title"),
        target: preview.optional("target"),
        effect: preview.optional("effect"),
        impact: preview.optional("impact"),
        data_out: preview.optional("data_out"),
        reversible: preview.optional("reversible"),
    };
    preview.not_built(&["must_show", "redact"]);
    preview.end();
    definition
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_of_a_file_is_named_at_once() {
        let text = r#"
            color = "red"
            [thresholds]
            cap = "many"
            [people.ana]
            slack = "main/U1"
            totp = { file = "x" }
            [[rules]]
            tools = ["a/b"]
            [[rules]]
            name = "r"
            tools = ["shop/x"]
            decision = "ask"
            step_up = "totp"
            [[rules]]
            name = "s"
            decision = "require_approval"
            risk = "huge"
            expires = "soon"
            approvers = [{ gruop = "pay" }]
            [rules.preview]
            must_show = ["/x"]
            [[rules]]
            name = "t"
            tools = ["shop/x"]
            decision = "allow"
            expires = "10m"
        "#;
        let faults = read("team.toml", text).unwrap_err();
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        team.toml: thresholds.cap: must be a number
        team.toml: color: is not a known key: remove it, or correct its spelling
        team.toml: people.ana.slack: must be a list
        team.toml: people.ana.totp: is not available in this version: remove it
        team.toml: rules[0].name: is missing: every rule needs a name of its own
        team.toml: rules.r.step_up: is not available in this version: remove it
        team.toml: rules.r.decision: must be "allow", "require_approval" or "deny"
        team.toml: rules.s.tools: is missing: it must be a list
        team.toml: rules.s.risk: must be "medium", "high" or "critical"
        team.toml: rules.s.approvers.group: is missing: it must be a string
        team.toml: rules.s.approvers.gruop: is not a known key: remove it, or correct its spelling
        team.toml: rules.s.post_to: is missing: it must be a list
        team.toml: rules.s.expires: must be a duration such as "25s", "10m" or "24h"
        team.toml: rules.s.preview.must_show: is not available in this version: remove it
        team.toml: rules.t.expires: means nothing with decision = "allow": remove it
        "#);
    }

    #[test]
    fn broken_toml_names_its_line_and_not_its_content() {
        let fault = &read("team.toml", "a = 1\nsecret = hunter2").unwrap_err()[0];
        assert_eq!(fault.to_string(), "team.toml: line 2 is not TOML");
    }
}
