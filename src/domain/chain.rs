//! The audit chain: what an event looks like outside, and the hash that ties it to the event before it.
//!
//! `hash` is SHA-256 over the RFC 8785 bytes of the exported object without `hash` and without what is erasable; the
//! salted `commitment` stands for that. `seq` counts each tenant's events from 1, and the first `prev` is all zeros.
//! Everything here gives the same result for a row and for the line that was exported from it.

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use super::audit::Erasable;
use super::canonical::canonical;
use super::digest::sha256;
use super::ids::ActionId;

/// A hash of the chain.
pub type Hash = [u8; 32];

/// `prev` of a tenant's first event.
pub const GENESIS: Hash = [0; 32];

/// What argument values are kept in. All three are there, or all are null.
pub const ERASABLE: [&str; 3] = ["action_subject", "facts", "preview"];

/// What the commitment to them needs.
const SALT: &str = "salt";

/// Names that no event's own fields have.
const RESERVED: [&str; 11] =
    ["seq", "at", "tenant", "kind", "action_id", "prev", "hash", SALT, ERASABLE[0], ERASABLE[1], ERASABLE[2]];

/// The one form of times: UTC, microseconds, as Postgres keeps them.
const AT: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");

/// A time as it is exported and hashed.
pub fn at_text(at: OffsetDateTime) -> String {
    let utc = at.to_offset(time::UtcOffset::UTC);
    // Postgres holds no time that the form can't write.
    utc.format(&AT).unwrap_or_default()
}

/// An event as it is stored.
#[derive(Debug, Clone)]
pub struct StoredEvent {
    /// When it was written.
    pub at: OffsetDateTime,
    /// Whose it is.
    pub tenant: String,
    /// The action it is about.
    pub action: Option<ActionId>,
    /// The kind.
    pub kind: String,
    /// Canonical bytes of the kind's own fields.
    pub body: Vec<u8>,
}

/// The hashed object: the event at its place, with neither `hash` nor anything erasable.
///
/// Fields that no code of ours writes (not canonical, or with a reserved name) are carried as `malformed`, in hex: they
/// are then in the chain exactly as they are stored, and stand in nobody's way.
pub fn placed(event: &StoredEvent, seq: i64, prev: &Hash) -> Map<String, Value> {
    let mut object = own_fields(&event.body)
        .unwrap_or_else(|| Map::from_iter([("malformed".to_owned(), json!(hex::encode(&event.body)))]));
    object.insert("seq".to_owned(), json!(seq));
    object.insert("at".to_owned(), json!(at_text(event.at)));
    object.insert("tenant".to_owned(), json!(event.tenant));
    object.insert("kind".to_owned(), json!(event.kind));
    object.insert("action_id".to_owned(), json!(event.action));
    object.insert("prev".to_owned(), json!(hex::encode(prev)));
    object
}

fn own_fields(body: &[u8]) -> Option<Map<String, Value>> {
    let fields = canonical_object(body)?;
    let ours = |name: &String| !RESERVED.contains(&name.as_str()) && name != "malformed";
    fields.keys().all(ours).then_some(fields)
}

/// An object, if these are the canonical bytes of one.
fn canonical_object(bytes: &[u8]) -> Option<Map<String, Value>> {
    let Ok(Value::Object(object)) = serde_json::from_slice(bytes) else { return None };
    (canonical(&object).ok()? == bytes).then_some(object)
}

/// The hash of an exported object, whatever of `hash` and the erasable members is in it. `None`: it has no canonical
/// form, so no event of ours is in it.
pub fn hash(object: &Map<String, Value>) -> Option<Hash> {
    let mut hashed = object.clone();
    for name in ERASABLE.iter().chain(&[SALT, "hash"]) {
        hashed.remove(*name);
    }
    Some(sha256(&canonical(&hashed).ok()?))
}

/// The exported line of an event: the placed object, what is erasable while it is there, and the hash.
pub fn line(
    mut object: Map<String, Value>,
    hash: &Hash,
    subject: Option<&[u8]>,
    salt: Option<&[u8]>,
) -> Map<String, Value> {
    if object.contains_key("commitment") {
        let mut members = subject.and_then(canonical_object).filter(|members| {
            members.len() == ERASABLE.len() && ERASABLE.iter().all(|name| members.contains_key(*name))
        });
        for name in ERASABLE {
            let value = members.as_mut().and_then(|members| members.remove(name)).unwrap_or_default();
            object.insert(name.to_owned(), value);
        }
        object.insert(SALT.to_owned(), salt.map(hex::encode).into());
    }
    object.insert("hash".to_owned(), json!(hex::encode(hash)));
    object
}

/// What an exported line shows of what is erasable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The kind has none.
    Nothing,
    /// It is there, and is what the commitment stands for.
    Committed,
    /// It was erased.
    Erased,
    /// It is not what the commitment stands for, or nothing stands for it.
    Changed,
}

/// Compares a line's erasable members with their commitment.
pub fn shown(line: &Map<String, Value>) -> Shown {
    let there = |name: &str| line.get(name).is_some_and(|value| !value.is_null());
    let any = ERASABLE.iter().chain(&[SALT]).any(|name| there(name));
    let Some(commitment) = line.get("commitment") else {
        return if any { Shown::Changed } else { Shown::Nothing };
    };
    if !any {
        return Shown::Erased;
    }
    let salt = line.get(SALT).and_then(Value::as_str).and_then(|text| {
        let mut salt = [0; 32];
        hex::decode_to_slice(text, &mut salt).ok().map(|()| salt)
    });
    let Some(salt) = salt else { return Shown::Changed };
    let member = |name: &str| line.get(name).cloned().unwrap_or_default();
    let members: Map<_, _> = ERASABLE.iter().map(|name| ((*name).to_owned(), member(name))).collect();
    let Ok(subject) = canonical(&members) else { return Shown::Changed };
    let recomputed = Erasable { subject, salt }.commitment();
    if *commitment == recomputed { Shown::Committed } else { Shown::Changed }
}

/// A hash as it is written: 64 lower-case hex digits.
pub fn parse_hash(value: Option<&Value>) -> Option<Hash> {
    let text = value?.as_str()?;
    let mut hash = [0; 32];
    hex::decode_to_slice(text, &mut hash).ok()?;
    (hex::encode(hash) == text).then_some(hash)
}

#[cfg(test)]
mod tests;
