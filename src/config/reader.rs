//! Reads TOML key by key, so that every fault of a file comes at once, with its key and what to write instead.
//!
//! A value's own text is never repeated: it may be a secret in the wrong place.

use std::time::Duration;

use toml::{Table, Value};

use super::reference;
use crate::domain::duration;
use crate::domain::policy::Fault;

/// Collects the faults of one file.
pub(super) struct Reader {
    file: String,
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
    /// The environment variables that secrets were taken from.
    variables: Vec<String>,
}

impl Reader {
    pub(super) fn new(file: impl Into<String>) -> Self {
        Self { file: file.into(), faults: Vec::new(), warnings: Vec::new(), variables: Vec::new() }
    }

    pub(super) fn fault(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.faults.push(Fault { file: self.file.clone(), key: key.into(), message: message.into() });
    }

    /// What is accepted, and probably not meant.
    pub(super) fn warning(&mut self, key: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(Fault { file: self.file.clone(), key: key.into(), message: message.into() });
    }

    /// Notes that a secret came from the environment.
    pub(super) fn note_variable(&mut self, variable: &str) {
        self.variables.push(variable.to_owned());
    }

    pub(super) fn into_faults(self) -> Vec<Fault> {
        self.faults
    }

    /// The warnings that there are so far, the one about the environment last.
    pub(super) fn take_warnings(&mut self) -> Vec<Fault> {
        let mut variables = std::mem::take(&mut self.variables);
        variables.sort();
        variables.dedup();
        if !variables.is_empty() {
            let message = format!(
                "secrets come from the environment ({}), which every process of this user and every crash report may \
                 read: {{ file = \"…\" }} with mode 0600 keeps them closer",
                variables.join(", ")
            );
            self.warning("", message);
        }
        std::mem::take(&mut self.warnings)
    }

    pub(super) fn add(&mut self, faults: Vec<Fault>) {
        self.faults.extend(faults);
    }
}

/// Parses a file's text; the fault names the line and nothing of its content.
pub(super) fn parse(file: &str, text: &str) -> Result<Table, Fault> {
    text.parse::<Table>().map_err(|error| {
        let line =
            error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let written = text.lines().nth(line - 1).unwrap_or_default();
        let message = match harmless(error.message(), written) {
            Some(reason) => format!("line {line} is not TOML: {reason}"),
            None => format!("line {line} is not TOML"),
        };
        Fault { file: file.to_owned(), key: String::new(), message }
    })
}

/// The parser's reason, unless a word of the line stands in it, which may be a secret's.
fn harmless(reason: &str, written: &str) -> Option<String> {
    let words = written.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 3);
    let quoted = words.into_iter().any(|word| reason.contains(word));
    let reason = reason.lines().map(str::trim).collect::<Vec<_>>().join(", ");
    (!quoted && !reason.is_empty() && reason.is_ascii()).then_some(reason)
}

/// Whether a name has the form of those that become part of a path or of another name.
pub(super) fn is_name(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
}

/// A value that a key may have.
pub(super) trait Kind: Sized {
    /// What to write: "a string".
    const WANTED: &'static str;
    /// What to write for several.
    const SEVERAL: &'static str = "a list";
    fn read(value: Value) -> Option<Self>;
}

impl Kind for String {
    const WANTED: &'static str = "a string";
    const SEVERAL: &'static str = "a list of strings";
    fn read(value: Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl Kind for bool {
    const WANTED: &'static str = "true or false";
    fn read(value: Value) -> Option<Self> {
        value.as_bool()
    }
}

impl Kind for u32 {
    const WANTED: &'static str = "a whole number";
    fn read(value: Value) -> Option<Self> {
        value.as_integer().and_then(|n| n.try_into().ok())
    }
}

impl Kind for f64 {
    const WANTED: &'static str = "a number";
    fn read(value: Value) -> Option<Self> {
        match value {
            #[expect(
                clippy::cast_precision_loss,
                reason = "checked to be a whole number that a double carries"
            )]
            Value::Integer(n) if n.unsigned_abs() < 1 << 53 => Some(n as f64),
            Value::Float(n) => Some(n),
            _ => None,
        }
    }
}

impl Kind for Duration {
    const WANTED: &'static str = "a duration such as \"25s\", \"10m\" or \"24h\"";
    fn read(value: Value) -> Option<Self> {
        duration::parse(value.as_str()?).ok()
    }
}

impl Kind for Table {
    const WANTED: &'static str = "a table";
    const SEVERAL: &'static str = "a list of tables, each below a heading in [[…]] or within [{ … }]";
    fn read(value: Value) -> Option<Self> {
        match value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }
}

impl Kind for Value {
    const WANTED: &'static str = "a value";
    fn read(value: Value) -> Option<Self> {
        Some(value)
    }
}

impl<T: Kind> Kind for Vec<T> {
    const WANTED: &'static str = T::SEVERAL;
    fn read(value: Value) -> Option<Self> {
        match value {
            Value::Array(items) => items.into_iter().map(T::read).collect(),
            _ => None,
        }
    }
}

/// One table being read. Whatever is left at the end is an unknown key.
pub(super) struct Section<'r> {
    reader: &'r mut Reader,
    /// The section of the reference that this is one of.
    kind: &'static str,
    path: String,
    table: Table,
    asked: Vec<&'static str>,
}

impl<'r> Section<'r> {
    pub(super) fn new(
        reader: &'r mut Reader,
        kind: &'static str,
        path: impl Into<String>,
        table: Table,
    ) -> Self {
        Self { reader, kind, path: path.into(), table, asked: Vec::new() }
    }

    pub(super) fn key(&self, key: &str) -> String {
        match (self.path.as_str(), key) {
            ("", key) => key.to_owned(),
            (path, "") => path.to_owned(),
            (path, key) => format!("{path}.{key}"),
        }
    }

    /// A fault of a key, or with an empty key of the table itself: its name, say.
    pub(super) fn fault(&mut self, key: &str, message: impl Into<String>) {
        let key = self.key(key);
        self.reader.fault(key, message);
    }

    pub(super) fn reader(&mut self) -> &mut Reader {
        self.reader
    }

    /// Whether the key is there and not read yet.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// A key that may be absent.
    pub(super) fn optional<T: Kind>(&mut self, key: &'static str) -> Option<T> {
        self.asked.push(key);
        let value = self.table.remove(key)?;
        let read = T::read(value);
        if read.is_none() {
            let example = self.example(key).map(|text| format!(", such as {text}")).unwrap_or_default();
            // Some kinds say themselves what to write.
            let example =
                if T::WANTED.contains("such as") || T::WANTED == bool::WANTED { "" } else { &example };
            self.fault(key, format!("must be {}{example}", T::WANTED));
        }
        read
    }

    /// A key that must be there.
    pub(super) fn required<T: Kind>(&mut self, key: &'static str) -> Option<T> {
        if !self.has(key) {
            self.asked.push(key);
            self.missing(key, T::WANTED);
            return None;
        }
        self.optional(key)
    }

    /// A key that must be there, in a form that the caller reads.
    pub(super) fn required_as(&mut self, key: &'static str, wanted: &str) -> Option<Value> {
        self.asked.push(key);
        let value = self.table.remove(key);
        if value.is_none() {
            self.missing(key, wanted);
        }
        value
    }

    fn missing(&mut self, key: &str, wanted: &str) {
        let message = match self.example(key) {
            Some(example) => format!("is missing: add {key} = {example}"),
            None => format!("is missing: it must be {wanted}"),
        };
        self.fault(key, message);
    }

    /// A value of the reference, as it is written in a file.
    fn example(&self, key: &str) -> Option<&'static str> {
        reference::key(self.kind, key).map(|found| found.example).filter(|example| !example.is_empty())
    }

    /// The named tables of a table: `[people.*]`.
    pub(super) fn tables(&mut self, key: &'static str) -> Vec<(String, Table)> {
        let Some(table) = self.optional::<Table>(key) else { return Vec::new() };
        let mut tables = Vec::new();
        for (name, value) in table {
            match value {
                Value::Table(table) => tables.push((name, table)),
                _ => self.fault(
                    &format!("{key}.{name}"),
                    format!("must be a table: keys stand below [{}]", self.key(&format!("{key}.NAME"))),
                ),
            }
        }
        tables
    }

    /// Keys that DESIGN.md has and this version has not: refused by name, never ignored.
    pub(super) fn not_built(&mut self, keys: &[&str]) {
        for key in keys {
            if self.table.remove(*key).is_some() {
                self.fault(key, "is not available in this version: remove it");
            }
        }
    }

    /// Every key that nothing has asked for is unknown.
    pub(super) fn end(mut self) {
        #[cfg(test)]
        ASKED.with_borrow_mut(|all| all.extend(self.asked.iter().map(|key| (self.kind, *key))));
        let left: Vec<String> = self.table.keys().cloned().collect();
        for key in left {
            let message = match self.near(&key) {
                Some(near) => format!("is not a known key: did you mean {near}?"),
                None => "is not a known key: remove it, or correct its spelling".to_owned(),
            };
            self.fault(&key, message);
        }
    }

    /// The key that was probably meant.
    fn near(&self, key: &str) -> Option<&'static str> {
        let distance = |known: &&'static str| strsim::osa_distance(&key.to_lowercase(), known);
        let nearest = self.asked.iter().copied().min_by_key(distance)?;
        let close = distance(&nearest) <= 2 && key.len() > 3 || key.eq_ignore_ascii_case(nearest);
        close.then_some(nearest)
    }
}

#[cfg(test)]
thread_local! {
    /// Every key that this thread's readers have asked for, with its section.
    pub(super) static ASKED: std::cell::RefCell<std::collections::BTreeSet<(&'static str, &'static str)>> =
        const { std::cell::RefCell::new(std::collections::BTreeSet::new()) };
}
