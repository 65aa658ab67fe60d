//! Secrets: `{ file = "…" }` or `{ env = "…" }`, never a value in a file that people copy around.
//!
//! No message repeats what was written there, in case it is the secret itself.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};
use toml::{Table, Value};

use super::Environment;
use super::reader::Section;
use crate::domain::token::MIN_KEY;

/// Words that stand for a secret that nobody has filled in.
const PLACEHOLDERS: [&str; 9] = [
    "changeme",
    "change-me",
    "change_me",
    "replaceme",
    "replace-me",
    "placeholder",
    "example",
    "your-",
    "your_",
];

/// Secrets that stand in public documentation: whoever reads it can sign with them.
const PUBLISHED: [&str; 1] = ["8f742231b10e8888abcd99yyyzzz85a5"];

/// What a secret must be like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Shortest, in bytes.
    shortest: usize,
    /// Whether it is one word of random characters, in which neither white space nor a placeholder has a place.
    random: bool,
}

impl Rules {
    /// A chat platform's secret. Slack's signing secret has 32 hex digits, its tokens more.
    pub(super) const PLATFORM: Self = Self { shortest: 16, random: true };
    /// A key of ours that signs tokens.
    pub(super) const TOKEN_KEY: Self = Self { shortest: MIN_KEY, random: true };
    /// Text with a secret somewhere in it: a database's URL, a header's value.
    pub(super) const TEXT: Self = Self { shortest: 1, random: false };
}

/// Reads a secret that must be there.
pub(super) fn required(
    section: &mut Section<'_>,
    key: &'static str,
    rules: Rules,
    environment: &Environment<'_>,
) -> Option<SecretString> {
    let value = section.required_as(key, WANTED)?;
    resolve(section, key, &value, rules, environment)
}

/// Reads one secret or a list of two, both of which are valid during a rotation.
pub(super) fn one_or_two(
    section: &mut Section<'_>,
    key: &'static str,
    rules: Rules,
    environment: &Environment<'_>,
) -> Vec<SecretString> {
    let Some(value) = section.required_as(key, WANTED) else { return Vec::new() };
    let values = match value {
        Value::Array(values) if (1..=2).contains(&values.len()) => values,
        Value::Array(_) => {
            section.fault(key, "must be one secret, or a list of two during a rotation");
            return Vec::new();
        }
        value => vec![value],
    };
    values.iter().filter_map(|value| resolve(section, key, value, rules, environment)).collect()
}

/// Reads the secret that a value refers to.
pub(super) fn resolve(
    section: &mut Section<'_>,
    key: &str,
    value: &Value,
    rules: Rules,
    environment: &Environment<'_>,
) -> Option<SecretString> {
    let checked =
        read(value, environment).and_then(|secret| check(secret.expose_secret(), rules).map(|()| secret));
    let checked = checked.map_err(|message| section.fault(key, message)).ok();
    if let (Some(_), Some(("env", variable))) = (&checked, value.as_table().and_then(entry)) {
        section.reader().note_variable(variable);
    }
    checked
}

/// How a secret is written.
const WANTED: &str = "{ file = \"…\" } or { env = \"…\" }";

fn read(value: &Value, environment: &Environment<'_>) -> Result<SecretString, String> {
    let Value::Table(table) = value else {
        return Err(format!("must be {WANTED}: a secret is never written here itself"));
    };
    match entry(table) {
        Some(("env", name)) => environment.variable(name).map(SecretString::from).ok_or_else(|| {
            if is_variable_name(name) {
                format!(
                    "the environment variable {name} is not set: set it for this process, or name another"
                )
            } else {
                "names an environment variable that is not set: a secret itself has no place here".to_owned()
            }
        }),
        Some(("file", path)) => from_file(&environment.directory().join(path)),
        _ => Err(format!("must be {WANTED}, one of the two")),
    }
}

/// The only entry of a table with one entry, when it is a string.
fn entry(table: &Table) -> Option<(&str, &str)> {
    let mut entries = table.iter();
    let (key, value) = entries.next()?;
    if entries.next().is_some() {
        return None;
    }
    Some((key.as_str(), value.as_str()?))
}

/// Whether this looks like a variable's name and not like a secret that somebody put in its place.
fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.contains('_')
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

fn from_file(path: &Path) -> Result<SecretString, String> {
    let unreadable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::InvalidData => {
            "the file is not text: write the secret in base64 or hex".to_owned()
        }
        kind => format!("the file can't be read: {kind}; its path is relative to this file's directory"),
    };
    let mode = std::fs::metadata(path).map_err(unreadable)?.permissions().mode();
    if mode & 0o004 != 0 {
        return Err("the file can be read by everybody: chmod o-rw it".to_owned());
    }
    if mode & 0o002 != 0 {
        return Err("the file can be changed by everybody: chmod o-rw it".to_owned());
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    // Editors end a file with a line end; one is not part of the secret.
    let text = text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(&text);
    Ok(SecretString::from(text))
}

fn check(secret: &str, rules: Rules) -> Result<(), String> {
    if secret.is_empty() {
        return Err("is empty: put the secret there".to_owned());
    }
    if secret.trim() != secret || secret.chars().any(char::is_control) {
        return Err(
            "has white space around it, or a line end or control character in it (one line end at the end of a file is taken off): remove that".to_owned()
        );
    }
    if rules.random && secret.chars().any(char::is_whitespace) {
        return Err("has white space in it: put the secret alone there".to_owned());
    }
    if secret.len() < rules.shortest {
        return Err(format!(
            "is too short: put the whole secret there, which has at least {} characters",
            rules.shortest
        ));
    }
    if rules.random && PUBLISHED.contains(&secret) {
        return Err("is the example of public documentation: put the real secret there".to_owned());
    }
    if rules.random && is_placeholder(secret) {
        return Err("is a placeholder: put the real secret there".to_owned());
    }
    Ok(())
}

/// Nobody's random characters hold such words, or are one character over and over.
fn is_placeholder(secret: &str) -> bool {
    let lower = secret.to_lowercase();
    let commonest = lower.bytes().map(|byte| lower.bytes().filter(|other| *other == byte).count()).max();
    commonest.is_some_and(|count| count * 2 > lower.len())
        || PLACEHOLDERS.iter().any(|word| lower.contains(word))
        || (lower.starts_with('<') && lower.ends_with('>'))
}
