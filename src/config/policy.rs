//! Policy files: `policy/<tenant>/*.toml`, one for each team. Keys that this version has not are refused by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::{Table, Value};

use super::reader::{Kind, Reader, Section, parse};
use super::{is_open, open_fault};
use crate::domain::cosmetic::Cosmetic;
use crate::domain::ids::Tenant;
use crate::domain::policy::{
    ApprovalDefinition, Definition, DenialMemory, DenialsPause, EffectDefinition, Fault, GroupDefinition,
    Known, Limits, LimitsDefinition, PersonDefinition, Policy, PreviewDefinition, Risk, RuleDefinition,
    certain_faults, compile,
};

/// Time to decide, where a rule does not say.
const EXPIRES: Duration = Duration::from_mins(10);

/// Time to redeem, where a rule does not say.
const REDEEM_WITHIN: Duration = Duration::from_mins(10);

/// Keys of a rule that only `require_approval` may have.
const APPROVAL_KEYS: [&str; 8] =
    ["risk", "approvers", "separate_proposer", "post_to", "expires", "redeem_within", "preview", "cosmetic"];

/// Loads and compiles the policy of a tenant from every `*.toml` of a directory.
///
/// # Errors
/// Every fault of every file. Where a file can't be read, or something in it can't, what the others only refer to is
/// not held against them.
pub fn load(tenant: Tenant, directory: &Path, known: &Known) -> Result<Policy, Vec<Fault>> {
    let whole =
        |message: String| vec![Fault { file: directory.display().to_string(), key: String::new(), message }];
    let paths = paths(directory).map_err(|error| whole(format!("can't be read: {}", error.kind())))?;
    if paths.is_empty() {
        return Err(whole("holds no *.toml file: write at least one".to_owned()));
    }
    let (mut files, mut faults) = (Vec::new(), Vec::new());
    let mut open = if is_open(directory) { vec![open_fault(directory)] } else { Vec::new() };
    for path in paths {
        let name = path.display().to_string();
        if is_open(&path) {
            open.push(open_fault(&path));
        }
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let (definition, found) = read(&name, &text);
                files.extend(definition.map(|definition| (name, definition)));
                faults.extend(found);
            }
            Err(error) => {
                let message = format!("can't be read: {}", error.kind());
                faults.push(Fault { file: name, key: String::new(), message });
            }
        }
    }
    if faults.is_empty() {
        return match compile(tenant, &files, known) {
            Ok(policy) if open.is_empty() => Ok(policy),
            Ok(_) => Err(open),
            Err(faults) => Err([open, faults].concat()),
        };
    }
    // What is missing is missing if everything that others refer to could be read.
    let complete =
        faults.iter().all(|fault| ["rules", "limits"].iter().any(|part| fault.key.starts_with(part)));
    let certain = certain_faults(&files, known, complete);
    let others: Vec<_> =
        certain.into_iter().filter(|other| !faults.iter().any(|read| explains(read, other))).collect();
    faults.extend(others);
    Err([open, faults].concat())
}

/// The files in the order of their names. An entry that can't be read is a fault: its rules may be the ones that deny.
pub(super) fn paths(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Whether a value that could not be read is the reason for another fault: one of its key, of a part or of the whole.
fn explains(read: &Fault, other: &Fault) -> bool {
    let within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    read.file == other.file && (within(&read.key, &other.key) || within(&other.key, &read.key))
}

/// Reads one file: what of it could be read, and every fault.
fn read(file: &str, text: &str) -> (Option<Definition>, Vec<Fault>) {
    match parse(file, text) {
        Ok(table) => {
            let mut reader = Reader::new(file);
            let definition = definition(&mut reader, table);
            (Some(definition), reader.into_faults())
        }
        Err(fault) => (None, vec![fault]),
    }
}

fn definition(reader: &mut Reader, table: Table) -> Definition {
    let mut root = Section::new(reader, "", "", table);
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
    let limits = root.optional::<Table>("limits");
    root.not_built(&["caps"]);
    root.end();
    Definition {
        thresholds,
        people: people
            .into_iter()
            .map(|(name, table)| (name.clone(), person(reader, &name, table)))
            .collect(),
        groups: groups.into_iter().map(|(name, table)| (name.clone(), group(reader, &name, table))).collect(),
        rules: rules.into_iter().enumerate().filter_map(|(at, table)| rule(reader, at, table)).collect(),
        limits: limits.map(|table| self::limits(reader, table)).unwrap_or_default(),
    }
}

fn person(reader: &mut Reader, name: &str, table: Table) -> PersonDefinition {
    let mut section = Section::new(reader, "people.*", format!("people.{name}"), table);
    let slack = section.optional("slack").unwrap_or_default();
    section.not_built(&["discord", "subjects", "totp"]);
    section.end();
    PersonDefinition { slack }
}

fn group(reader: &mut Reader, name: &str, table: Table) -> GroupDefinition {
    let mut section = Section::new(reader, "groups.*", format!("groups.{name}"), table);
    let people = section.optional("people").unwrap_or_default();
    let slack_usergroups = section.optional("slack_usergroups").unwrap_or_default();
    section.not_built(&["discord_roles"]);
    section.end();
    GroupDefinition { people, slack_usergroups }
}

fn rule(reader: &mut Reader, at: usize, table: Table) -> Option<RuleDefinition> {
    // The name first, so that every other fault of the rule carries it.
    let name = match table.get("name").cloned().map(String::read) {
        Some(Some(name)) if !name.is_empty() => name,
        _ => {
            let message = "is missing: every rule needs a name of its own, such as name = \"large-refunds\"";
            reader.fault(format!("rules[{at}].name"), message);
            return None;
        }
    };
    let mut section = Section::new(reader, "rules[]", format!("rules.{name}"), table);
    let _: Option<String> = section.optional("name");
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
        // A second confirmation is what `critical` means; without it one click would do.
        Some("critical") => {
            let message = "\"critical\" asks each approver a second time, which is not available in this version: write \"high\"";
            section.fault("risk", message);
            Risk::Critical
        }
        Some(text) => Risk::parse(text).unwrap_or_else(|| {
            section.fault("risk", "must be \"medium\" or \"high\"");
            Risk::Critical
        }),
    };
    let approvers = section.required::<Vec<Table>>("approvers").unwrap_or_default();
    let approvers = approvers
        .into_iter()
        .map(|table| {
            let path = section.key("approvers");
            let mut entry = Section::new(section.reader(), "rules[].approvers[]", path, table);
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
        cosmetic: cosmetic(section),
    }
}

fn cosmetic(section: &mut Section<'_>) -> Cosmetic {
    let table = section.optional::<Table>("cosmetic").unwrap_or_default();
    let path = section.key("cosmetic");
    let mut cosmetic = Section::new(section.reader(), "rules[].cosmetic", path, table);
    let definition = Cosmetic {
        ignore: cosmetic.optional("ignore").unwrap_or_default(),
        unordered: cosmetic.optional("unordered").unwrap_or_default(),
    };
    cosmetic.end();
    definition
}

fn limits(reader: &mut Reader, table: Table) -> LimitsDefinition {
    let mut section = Section::new(reader, "limits", "limits", table);
    let definition = LimitsDefinition {
        asks_per_minute: section.optional("asks_per_minute"),
        pending_per_agent: section.optional("pending_per_agent"),
        pending_per_owner: section.optional("pending_per_owner"),
        pending_per_group: section.optional("pending_per_group"),
        denials_pause: section.optional("denials_pause").map(|table| denials_pause(&mut section, table)),
        denial_memory: section.optional("denial_memory"),
        alert_to: section.optional("alert_to"),
    };
    section.end();
    definition
}

fn denials_pause(section: &mut Section<'_>, table: Table) -> DenialsPause {
    let default = Limits::default().denials_pause;
    let path = section.key("denials_pause");
    let mut pause = Section::new(section.reader(), "limits.denials_pause", path, table);
    let definition = DenialsPause {
        count: pause.optional("count").unwrap_or(default.count),
        within: pause.optional("within").unwrap_or(default.within),
        pause_for: pause.optional("pause_for").unwrap_or(default.pause_for),
    };
    pause.end();
    definition
}

impl Kind for DenialMemory {
    const WANTED: &'static str = "a duration such as \"24h\", or \"forever\"";
    fn read(value: Value) -> Option<Self> {
        match value.as_str()? {
            "forever" => Some(Self::Forever),
            _ => Duration::read(value).map(Self::For),
        }
    }
}

fn preview_of(section: &mut Section<'_>, table: Table) -> PreviewDefinition {
    let path = section.key("preview");
    let mut preview = Section::new(section.reader(), "rules[].preview", path, table);
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
mod tests;
