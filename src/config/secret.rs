//! Secrets: `{ file = "…" }` or `{ env = "…" }`, never a value in a file that people copy around.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};
use toml::{Table, Value};

use super::Environment;
use super::reader::Section;

/// Words that stand for a secret that nobody has filled in.
const PLACEHOLDERS: [&str; 6] = ["changeme", "change-me", "placeholder", "example", "your-", "xxxx"];

/// What a secret must be like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Shortest, in bytes.
    pub(super) shortest: usize,
}

/// Reads a secret that must be there.
pub(super) fn required(
    section: &mut Section<'_>,
    key: &str,
    rules: Rules,
    environment: &Environment<'_>,
) -> Option<SecretString> {
    let value = section.required::<Value>(key)?;
    resolve(section, key, value, rules, environment)
}

/// Reads one secret or a list of one or two: two are valid during a rotation.
pub(super) fn one_or_two(
    section: &mut Section<'_>,
    key: &str,
    rules: Rules,
    environment: &Environment<'_>,
) -> Vec<SecretString> {
    let Some(value) = section.required::<Value>(key) else { return Vec::new() };
    let values = match value {
        Value::Array(values) if (1..=2).contains(&values.len()) => values,
        Value::Array(_) => {
            section.fault(key, "must be one secret, or a list of two during a rotation");
            return Vec::new();
        }
        value => vec![value],
    };
    values.into_iter().filter_map(|value| resolve(section, key, value, rules, environment)).collect()
}

pub(super) fn resolve(
    section: &mut Section<'_>,
    key: &str,
    value: Value,
    rules: Rules,
    environment: &Environment<'_>,
) -> Option<SecretString> {
    match read(value, environment) {
        Ok(secret) => match check(secret.expose_secret(), rules) {
            Ok(()) => Some(secret),
            Err(message) => {
                section.fault(key, message);
                None
            }
        },
        Err(message) => {
            section.fault(key, message);
            None
        }
    }
}

fn read(value: Value, environment: &Environment<'_>) -> Result<SecretString, String> {
    let wanted =
        || "must be { file = \"…\" } or { env = \"…\" }; a secret is never written here itself".to_owned();
    let Value::Table(table) = value else { return Err(wanted()) };
    if table.len() != 1 {
        return Err(wanted());
    }
    match entry(&table) {
        Some(("env", name)) => environment
            .variable(name)
            .map(SecretString::from)
            .ok_or_else(|| format!("the environment variable {name} is not set")),
        Some(("file", path)) => from_file(&environment.directory().join(path)),
        _ => Err(wanted()),
    }
}

fn entry(table: &Table) -> Option<(&str, &str)> {
    let (key, value) = table.iter().next()?;
    Some((key.as_str(), value.as_str()?))
}

fn from_file(path: &Path) -> Result<SecretString, String> {
    let unreadable = |error: std::io::Error| format!("{} can't be read: {}", path.display(), error.kind());
    let mode = std::fs::metadata(path).map_err(unreadable)?.permissions().mode();
    if mode & 0o004 != 0 {
        return Err(format!("{} can be read by everybody: chmod o-r it", path.display()));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    // Editors end a file with a line end; one is not part of the secret.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(SecretString::from(text.strip_suffix('\r').unwrap_or(text)))
}

fn check(secret: &str, rules: Rules) -> Result<(), String> {
    if secret.is_empty() {
        return Err("is empty".to_owned());
    }
    if secret.chars().any(char::is_control) || secret.trim() != secret {
        return Err(
            "has white space or line ends around it or control characters in it: remove them".to_owned()
        );
    }
    if secret.len() < rules.shortest {
        return Err(format!("is too short: it must have at least {} bytes", rules.shortest));
    }
    let lower = secret.to_lowercase();
    if PLACEHOLDERS.iter().any(|word| lower.contains(word)) {
        return Err("is a placeholder: put the real secret there".to_owned());
    }
    Ok(())
}
