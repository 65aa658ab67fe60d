//! The table as text for people and as JSON Schema for editors.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::{Absent, CONFIG, Key, Kind, POLICY, Section};

/// The reference as it stands in `deploy/REFERENCE.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Configuration reference\n\n\
         Made from the program's own table by `undersign schema markdown`. Unknown keys are refused; all faults of all \
         files come at once, from `undersign check` and from `undersign serve`.\n\n\
         A secret is never written in a file that people copy around: it is `{ env = \"VARIABLE\" }` or \
         `{ file = \"path\" }`. A secret's file must not be readable or writable by everybody (its group may read it; in Kubernetes \
         that is `defaultMode: 0440`); one line end at its end is taken off, and any other white space around the secret is refused, as are placeholders \
         and secrets shorter than their platform's. Configuration and policy files must not be writable by everybody.\n\n\
         Durations are written `\"25s\"`, `\"10m\"`, `\"24h\"`.\n",
    );
    for (heading, sections) in [("`undersign.toml`", CONFIG), ("`policy/TENANT/TEAM.toml`", POLICY)] {
        let _ = write!(text, "\n## {heading}\n");
        for section in sections {
            self::section(&mut text, section);
        }
    }
    text
}

fn section(text: &mut String, section: &Section) {
    // Writing to a String can't fail, here and below.
    if !section.name.is_empty() {
        let _ = write!(text, "\n### {}\n", heading(section.name));
    }
    if !section.about.is_empty() {
        let _ = write!(text, "\n{}\n", section.about);
    }
    text.push_str("\n| key | value | when absent | meaning |\n|---|---|---|---|\n");
    for key in section.keys {
        let absent = match key.absent {
            Absent::Refused => "refused".to_owned(),
            Absent::Value(value) => format!("`{value}`"),
            Absent::Nothing => "–".to_owned(),
        };
        let example = match key.kind {
            Kind::Table(_) | Kind::Tables(_) | Kind::List(_) if key.example.is_empty() => String::new(),
            _ => format!(", as in `{}`", key.example),
        };
        let _ = writeln!(
            text,
            "| `{}` | {}{} | {} | {} |",
            key.name,
            kind(key.kind),
            example.replace('|', "\\|"),
            absent,
            key.meaning
        );
    }
}

/// As the heading is written in the file.
fn heading(name: &str) -> String {
    if name == "rules[].approvers[]" || name.ends_with(".headers") || name == "limits.denials_pause" {
        return format!("`{}`", name.replace("[]", "").replace('*', "NAME"));
    }
    let name = &name.replace("[].", ".");
    match name.strip_suffix("[]") {
        Some(list) => format!("`[[{list}]]`"),
        None => format!("`[{}]`", name.replace('*', "NAME")),
    }
}

fn kind(kind: Kind) -> String {
    match kind {
        Kind::Text => "a string".to_owned(),
        Kind::OneOf(words) => words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", "),
        Kind::Flag => "true or false".to_owned(),
        Kind::Whole => "a whole number".to_owned(),
        Kind::Number => "a number".to_owned(),
        Kind::Duration => "a duration".to_owned(),
        Kind::Secret => "a secret".to_owned(),
        Kind::Secrets => "a secret, or a list of two".to_owned(),
        Kind::Texts => "a list of strings".to_owned(),
        Kind::Table(name) => format!("a table: {}", heading(name)),
        Kind::Tables(name) => format!("tables: {}", heading(name)),
        Kind::List(name) => format!("a list of tables: {}", heading(name)),
    }
}

/// JSON Schema of a file, from its sections.
pub fn json_schema(sections: &[Section]) -> Value {
    let mut schema = sections.first().map_or_else(Map::new, |root| object(root, sections));
    schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    Value::Object(schema)
}

fn object(section: &Section, sections: &[Section]) -> Map<String, Value> {
    let mut properties = Map::new();
    let mut others = json!(false);
    for key in section.keys {
        let mut schema = value(key, sections);
        schema["description"] = json!(key.meaning);
        if key.name == "*" {
            others = schema;
        } else {
            properties.insert(key.name.to_owned(), schema);
        }
    }
    // What only some decisions need can't be required of all.
    let needed = |key: &&Key| {
        key.absent == Absent::Refused
            && !(section.name == "rules[]" && ["approvers", "post_to"].contains(&key.name))
    };
    let required: Vec<_> = section.keys.iter().filter(needed).map(|key| key.name).collect();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    schema.insert("required".to_owned(), json!(required));
    schema.insert("additionalProperties".to_owned(), others);
    schema
}

fn value(key: &Key, sections: &[Section]) -> Value {
    let table = |name: &str| {
        let found = sections.iter().find(|section| section.name == name);
        found.map_or(json!({}), |section| Value::Object(object(section, sections)))
    };
    let reference = |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name], "additionalProperties": false });
    let secret = json!({ "oneOf": [reference("env"), reference("file")] });
    match key.kind {
        Kind::Text | Kind::Duration => json!({ "type": "string" }),
        Kind::OneOf(words) => json!({ "enum": words }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Whole => json!({ "type": "integer", "minimum": 0 }),
        Kind::Number => json!({ "type": "number" }),
        Kind::Secret => secret,
        Kind::Secrets => {
            json!({ "anyOf": [secret.clone(), { "type": "array", "items": secret, "minItems": 1, "maxItems": 2 }] })
        }
        Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Table(name) => table(name),
        Kind::Tables(name) => json!({ "type": "object", "additionalProperties": table(name) }),
        Kind::List(name) => json!({ "type": "array", "items": table(name) }),
    }
}
