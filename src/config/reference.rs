//! Every key of the two files: type, default, example, meaning. The readers take their examples from here, and
//! `deploy/REFERENCE.md` and `undersign schema` are made from it.
//!
//! Keeps true, by a test: a key is in this table exactly if a reader asks for it.

mod render;
mod server;
mod team;

pub use render::{json_schema, markdown};

/// One table of a file, under the name that stands for all of its kind: `tenants.*.agents.*`.
#[derive(Debug)]
pub struct Section {
    /// The path in the file; `*` stands for a name of the writer's choice, `[]` for each entry of a list.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Its name; `*` for names of the writer's choice.
    pub name: &'static str,
    /// What may be written.
    pub kind: Kind,
    /// What holds when it is not written.
    pub absent: Absent,
    /// A value as it is written in TOML; empty for tables.
    pub example: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// What may be written for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Whole,
    /// Any number.
    Number,
    /// A duration such as `"10m"`.
    Duration,
    /// `{ env = "…" }` or `{ file = "…" }`.
    Secret,
    /// A secret, or a list of two during a rotation.
    Secrets,
    /// A list of strings.
    Texts,
    /// A table, described by the section of this name.
    Table(&'static str),
    /// Tables with names of the writer's choice.
    Tables(&'static str),
    /// A list of tables.
    List(&'static str),
}

/// What holds when a key is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// It must be written.
    Refused,
    /// This value, as it is written in TOML.
    Value(&'static str),
    /// What the key is about is not there.
    Nothing,
}

/// The sections of `undersign.toml`; the first is the file itself.
pub const CONFIG: &[Section] = server::SECTIONS;

/// The sections of a team's policy file; the first is the file itself.
pub const POLICY: &[Section] = team::SECTIONS;

/// The key of a section, if there is one.
pub(super) fn key(section: &str, key: &str) -> Option<&'static Key> {
    let sections = CONFIG.iter().chain(POLICY).filter(|found| found.name == section);
    sections.flat_map(|found| found.keys).find(|found| found.name == key)
}

/// For the tables: a key that must be written.
const fn required(name: &'static str, kind: Kind, example: &'static str, meaning: &'static str) -> Key {
    Key { name, kind, absent: Absent::Refused, example, meaning }
}

/// For the tables: a key with a default.
const fn defaulted(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    example: &'static str,
    meaning: &'static str,
) -> Key {
    Key { name, kind, absent: Absent::Value(default), example, meaning }
}

/// For the tables: a key that may be left out, and then means nothing.
const fn optional(name: &'static str, kind: Kind, example: &'static str, meaning: &'static str) -> Key {
    Key { name, kind, absent: Absent::Nothing, example, meaning }
}

#[cfg(test)]
mod tests;
