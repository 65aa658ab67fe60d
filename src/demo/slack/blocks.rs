//! Block Kit as documented, for the blocks that undersign uses: every other block or element, every unknown field, every
//! exceeded limit is refused, with the JSON pointer of the place.
//!
//! Stricter than Slack on purpose: what passes here has no field that Slack might one day read differently.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// `msg_blocks_too_long` was seen from about this many characters of serialised blocks on; it is not documented.
const CUMULATIVE_LIMIT: usize = 13_200;

/// A rich text was refused at 11,341 characters of text; that is not documented either.
const RICH_TEXT_LIMIT: usize = 11_340;

/// Why blocks are refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BlocksError {
    /// `invalid_blocks`, with what is wrong where.
    Invalid(Vec<String>),
    /// `msg_blocks_too_long`.
    TooLong,
}

/// Checks the `blocks` of a message.
pub(super) fn check(blocks: &Value) -> Result<Vec<Value>, BlocksError> {
    let mut check = Check::default();
    let Some(list) = blocks.as_array() else {
        return Err(BlocksError::Invalid(vec!["must be an array [json-pointer:/blocks]".to_owned()]));
    };
    if list.len() > 50 {
        check.error("no more than 50 items allowed", "/blocks");
    }
    for (i, block) in list.iter().enumerate() {
        check.block(block, &format!("/blocks/{i}"));
    }
    if !check.errors.is_empty() {
        return Err(BlocksError::Invalid(check.errors));
    }
    if units(&blocks.to_string()) > CUMULATIVE_LIMIT || check.rich_text > RICH_TEXT_LIMIT {
        return Err(BlocksError::TooLong);
    }
    Ok(list.clone())
}

/// The blocks as Slack gives them back: an id for each block, the defaults of text objects, `<>&` as entities.
pub(super) fn echo(blocks: &[Value], serial: u32) -> Vec<Value> {
    let with_id = |(i, block): (usize, &Value)| {
        let mut block = echo_value(block);
        if let Some(fields) = block.as_object_mut() {
            fields.entry("block_id").or_insert_with(|| json!(format!("b{serial}{i}")));
        }
        block
    };
    blocks.iter().enumerate().map(with_id).collect()
}

fn echo_value(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(echo_value).collect(),
        Value::Object(fields) => {
            let mut out: Map<String, Value> =
                fields.iter().map(|(k, v)| (k.clone(), echo_value(v))).collect();
            let kind = fields.get("type").and_then(Value::as_str);
            if let (Some("plain_text" | "text"), Some(text)) =
                (kind, fields.get("text").and_then(Value::as_str))
            {
                out.insert("text".to_owned(), json!(escape(text)));
            }
            match kind {
                Some("plain_text") => drop(out.entry("emoji").or_insert(json!(true))),
                Some("mrkdwn") => drop(out.entry("verbatim").or_insert(json!(false))),
                _ => {}
            }
            Value::Object(out)
        }
        other => other.clone(),
    }
}

/// Escapes as Slack stores: entities that are there already stay.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (i, c) in text.char_indices() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' if !["&amp;", "&lt;", "&gt;"].iter().any(|e| text[i..].starts_with(e)) => {
                out.push_str("&amp;");
            }
            c => out.push(c),
        }
    }
    out
}

/// Length as Slack counts, on the safe side: UTF-16 units.
fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

#[derive(Default)]
struct Check {
    errors: Vec<String>,
    block_ids: BTreeSet<String>,
    action_ids: BTreeSet<String>,
    rich_text: usize,
}

impl Check {
    fn error(&mut self, what: &str, at: &str) {
        self.errors.push(format!("{what} [json-pointer:{at}]"));
    }

    /// An object with all of the required and none but the optional fields.
    fn object<'a>(
        &mut self,
        value: &'a Value,
        at: &str,
        required: &[&str],
        optional: &[&str],
    ) -> &'a Map<String, Value> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        let Some(fields) = value.as_object() else {
            self.error("must be an object", at);
            return &EMPTY;
        };
        for name in required {
            if !fields.contains_key(*name) {
                self.error(&format!("missing required field: {name}"), at);
            }
        }
        for name in fields.keys() {
            if !required.contains(&name.as_str()) && !optional.contains(&name.as_str()) {
                self.error(&format!("invalid additional property: {name}"), at);
            }
        }
        fields
    }

    /// A string of 1 to `most` characters, counted as escaped.
    fn string(&mut self, fields: &Map<String, Value>, name: &str, most: usize, at: &str) {
        let at = format!("{at}/{name}");
        match fields.get(name) {
            Some(Value::String(text)) if text.is_empty() => self.error("must be more than 0 characters", &at),
            Some(Value::String(text)) if units(&escape(text)) > most => {
                self.error(&format!("must be less than {} characters", most + 1), &at);
            }
            None | Some(Value::String(_)) => {}
            Some(_) => self.error("must be a string", &at),
        }
    }

    fn boolean(&mut self, fields: &Map<String, Value>, name: &str, at: &str) {
        if fields.get(name).is_some_and(|v| !v.is_boolean()) {
            self.error("must be a boolean", &format!("{at}/{name}"));
        }
    }

    fn one_of(&mut self, fields: &Map<String, Value>, name: &str, allowed: &[&str], at: &str) {
        if let Some(value) = fields.get(name)
            && !value.as_str().is_some_and(|v| allowed.contains(&v))
        {
            self.error(&format!("must be one of {allowed:?}"), &format!("{at}/{name}"));
        }
    }

    /// A list of 1 to `most` items, each checked.
    fn list(
        &mut self,
        fields: &Map<String, Value>,
        name: &str,
        most: usize,
        at: &str,
        item: fn(&mut Self, &Value, &str),
    ) {
        let at = format!("{at}/{name}");
        let Some(items) = fields.get(name).and_then(Value::as_array) else {
            if fields.contains_key(name) {
                self.error("must be an array", &at);
            }
            return;
        };
        if items.is_empty() {
            self.error("no fewer than 1 items allowed", &at);
        }
        if items.len() > most {
            self.error(&format!("no more than {most} items allowed"), &at);
        }
        for (i, value) in items.iter().enumerate() {
            item(self, value, &format!("{at}/{i}"));
        }
    }

    fn block(&mut self, block: &Value, at: &str) {
        let fields = match block["type"].as_str() {
            Some("header") => {
                let fields = self.object(block, at, &["type", "text"], &["block_id"]);
                self.text(fields, "text", 150, &["plain_text"], at);
                fields
            }
            Some("section") => {
                let fields =
                    self.object(block, at, &["type"], &["text", "fields", "accessory", "block_id", "expand"]);
                if !fields.contains_key("text") && !fields.contains_key("fields") {
                    self.error("missing required field: text", at);
                }
                self.text(fields, "text", 3000, &["plain_text", "mrkdwn"], at);
                self.list(fields, "fields", 10, at, |check, value, at| {
                    check.text_object(value, 2000, BOTH, at);
                });
                self.boolean(fields, "expand", at);
                if let Some(accessory) = fields.get("accessory") {
                    self.button(accessory, &format!("{at}/accessory"));
                }
                fields
            }
            Some("rich_text") => {
                let fields = self.object(block, at, &["type", "elements"], &["block_id"]);
                self.list(fields, "elements", usize::MAX, at, Self::rich_text);
                fields
            }
            Some("context") => {
                let fields = self.object(block, at, &["type", "elements"], &["block_id"]);
                self.list(fields, "elements", 10, at, |check, value, at| {
                    check.text_object(value, 3000, BOTH, at);
                });
                fields
            }
            Some("actions") => {
                let fields = self.object(block, at, &["type", "elements"], &["block_id"]);
                self.list(fields, "elements", 25, at, Self::button);
                fields
            }
            Some("divider") => self.object(block, at, &["type"], &["block_id"]),
            other => return self.error(&format!("unsupported type: {}", other.unwrap_or("none")), at),
        };
        self.string(fields, "block_id", 255, at);
        if let Some(id) = fields.get("block_id").and_then(Value::as_str)
            && !self.block_ids.insert(id.to_owned())
        {
            self.error(&format!("block_id \"{id}\" already exists"), &format!("{at}/block_id"));
        }
    }

    fn text(&mut self, fields: &Map<String, Value>, name: &str, most: usize, kinds: &[&str], at: &str) {
        if let Some(value) = fields.get(name) {
            self.text_object(value, most, kinds, &format!("{at}/{name}"));
        }
    }

    fn text_object(&mut self, value: &Value, most: usize, kinds: &[&str], at: &str) {
        let own = if value["type"] == "mrkdwn" { "verbatim" } else { "emoji" };
        let fields = self.object(value, at, &["type", "text"], &[own]);
        self.one_of(fields, "type", kinds, at);
        self.string(fields, "text", most, at);
        self.boolean(fields, own, at);
    }

    fn rich_text(&mut self, value: &Value, at: &str) {
        let fields = match value["type"].as_str() {
            Some("rich_text_section") => self.object(value, at, &["type", "elements"], &[]),
            Some("rich_text_preformatted") => {
                let fields = self.object(value, at, &["type", "elements"], &["border", "language"]);
                if fields.get("border").is_some_and(|v| !v.is_u64()) {
                    self.error("must be an integer", &format!("{at}/border"));
                }
                self.string(fields, "language", 255, at);
                fields
            }
            other => return self.error(&format!("unsupported type: {}", other.unwrap_or("none")), at),
        };
        self.list(fields, "elements", usize::MAX, at, Self::rich_text_text);
    }

    fn rich_text_text(&mut self, value: &Value, at: &str) {
        let fields = match value["type"].as_str() {
            Some("user") => {
                let fields = self.object(value, at, &["type", "user_id"], &["style"]);
                self.string(fields, "user_id", 255, at);
                let id = fields.get("user_id").and_then(Value::as_str).unwrap_or("U");
                if !id.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()) {
                    self.error("must be a user id", &format!("{at}/user_id"));
                }
                fields
            }
            Some("date") => {
                let fields = self.object(value, at, &["type", "timestamp", "format"], &["fallback", "style"]);
                if fields.get("timestamp").is_some_and(|v| !v.is_u64()) {
                    self.error("must be an integer", &format!("{at}/timestamp"));
                }
                self.string(fields, "format", 255, at);
                self.string(fields, "fallback", 255, at);
                fields
            }
            _ => {
                let fields = self.object(value, at, &["type", "text"], &["style"]);
                self.one_of(fields, "type", &["text"], at);
                self.string(fields, "text", usize::MAX - 1, at);
                self.rich_text +=
                    fields.get("text").and_then(Value::as_str).map_or(0, |text| units(&escape(text)));
                fields
            }
        };
        if let Some(style) = fields.get("style") {
            let names = ["bold", "italic", "strike", "code", "underline"];
            let at = format!("{at}/style");
            let style = self.object(style, &at, &[], &names);
            for name in names {
                self.boolean(style, name, &at);
            }
        }
    }

    fn button(&mut self, value: &Value, at: &str) {
        let optional = ["url", "value", "style", "confirm", "accessibility_label"];
        let fields = self.object(value, at, &["type", "text", "action_id"], &optional);
        self.one_of(fields, "type", &["button"], at);
        self.text(fields, "text", 75, &["plain_text"], at);
        self.string(fields, "action_id", 255, at);
        self.string(fields, "url", 3000, at);
        self.string(fields, "value", 2000, at);
        self.string(fields, "accessibility_label", 75, at);
        self.one_of(fields, "style", &["primary", "danger"], at);
        if let Some(id) = fields.get("action_id").and_then(Value::as_str)
            && !self.action_ids.insert(id.to_owned())
        {
            self.error(&format!("action_id \"{id}\" already exists"), &format!("{at}/action_id"));
        }
        if let Some(confirm) = fields.get("confirm") {
            let at = format!("{at}/confirm");
            let confirm = self.object(confirm, &at, &["title", "text", "confirm", "deny"], &["style"]);
            self.text(confirm, "title", 100, &["plain_text"], &at);
            self.text(confirm, "text", 300, BOTH, &at);
            self.text(confirm, "confirm", 30, &["plain_text"], &at);
            self.text(confirm, "deny", 30, &["plain_text"], &at);
            self.one_of(confirm, "style", &["primary", "danger"], &at);
        }
    }
}

const BOTH: &[&str] = &["plain_text", "mrkdwn"];
