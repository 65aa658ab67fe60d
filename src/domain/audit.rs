//! Audit events: one enum, each kind with its own fields, written in the statement that makes the change.
//!
//! No token, signature, nonce or credential is ever in one. What holds argument values travels apart, in
//! [`Erasable`], so that it can be erased while the event stays.

use serde::Serialize;
use serde_json::{Map, Value};

use super::answer::Code;
use super::canonical::canonical;
use super::digest::sha256;
use super::ids::{AgentName, GroupName, Person, RuleName, UpstreamName};
use super::place::Account;
use super::press::Verdict;
use super::requirement::Requirement;

/// Something that happened.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "the fields carry the names of DESIGN.md section 9 and mean what they mean there"
)]
pub enum Event {
    /// A call was parked. Subject, preview and facts are in [`Erasable`], under `commitment`.
    Parked {
        action_digest: String,
        content_digest: String,
        rules: Vec<RuleName>,
        risk: &'static str,
        requirement: Requirement,
        post_to: Vec<String>,
        commitment: String,
    },
    /// A card was accepted by a platform.
    Posted { place: String, message_id: String, card_sha256: String },
    /// A card was refused for good.
    PostFailed { place: String, error: String },
    /// A person's vote counted.
    Voted {
        person: Person,
        verdict: Verdict,
        account: Account,
        channel: String,
        message_id: String,
        callback_id: String,
        groups: Vec<GroupName>,
        authenticated_by: &'static str,
        action_digest: String,
    },
    /// A press that changed nothing, and why.
    VoteRefused { account: Account, verdict: Verdict, callback_id: String, reason: &'static str },
    /// A vote that came after the decision.
    Late { account: Account, verdict: Verdict, callback_id: String, state: String },
    /// The requirement was met.
    Approved { action_digest: String },
    /// A deny closed it.
    Denied { person: Person, revoked: bool },
    /// A deadline passed.
    Expired {},
    /// It was withdrawn.
    Cancelled { by: String },
    /// A change voided it.
    Invalidated { reason: String },
    /// No place was left to show it at.
    Undeliverable {},
    /// The token was handed to its agent.
    TokenIssued { agent: AgentName },
    /// A genuine token was refused.
    TokenRefused { code: &'static str },
    /// The right token came with another call.
    Tamper { agent: AgentName, presented_content_digest: String },
    /// The stored action no longer matches its digest.
    RowTampered { action_digest: String },
    /// A genuine token was presented by somebody else.
    ForeignUse { agent: AgentName },
    /// The one claim was won.
    Claimed { agent: AgentName, idempotency_key: String, claimed_by: String },
    /// The upstream reported success.
    Succeeded { result_sha256: String },
    /// The upstream reported an error, or nothing was sent.
    Failed { detail: &'static str },
    /// No result is known.
    OutcomeUnknown { detail: &'static str },
    /// Its arguments, and every row that held them, were removed for good.
    Erased {},
    /// An agent may ask for no approval for so many seconds.
    Paused { agent: AgentName, reason: &'static str, seconds: u64 },
    /// A policy came into force.
    PolicyLoaded { policy_sha256: String, upstreams: Vec<UpstreamName> },
}

impl Event {
    /// The kind, as stored.
    pub fn kind(&self) -> String {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned(),
            _ => String::new(),
        }
    }

    /// RFC 8785 bytes of the event's own fields, without the kind.
    pub fn body(&self) -> Vec<u8> {
        let mut fields = match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        };
        fields.remove("kind");
        // Strings, booleans and small integers only.
        #[expect(clippy::expect_used, reason = "events hold strings, booleans and small integers only")]
        canonical(&fields).expect("event has a canonical form")
    }
}

/// A refusal as an event names it.
pub fn refusal(code: Code) -> Event {
    Event::TokenRefused { code: code.as_str() }
}

/// What a `parked` event says about argument values: kept in a row of its own that may be emptied.
#[derive(Debug, Clone)]
pub struct Erasable {
    /// RFC 8785 bytes of `{action_subject, facts, preview}`.
    pub subject: Vec<u8>,
    /// 32 random bytes.
    pub salt: [u8; 32],
}

impl Erasable {
    /// Takes what is to be erasable together.
    pub fn new(action_subject: &Value, preview: &Value, facts: &Value, salt: [u8; 32]) -> Self {
        let members = serde_json::json!({
            "action_subject": action_subject, "preview": preview, "facts": facts,
        });
        // The subject's values passed the gate; the rest is strings.
        #[expect(clippy::expect_used, reason = "gated values and strings have a canonical form")]
        let subject = canonical(&members).expect("gated values have a canonical form");
        Self { subject, salt }
    }

    /// What stands for it in the event: SHA-256(salt ‖ canonical bytes), lower-case hex.
    pub fn commitment(&self) -> String {
        let mut bytes = Vec::with_capacity(32 + self.subject.len());
        bytes.extend_from_slice(&self.salt);
        bytes.extend_from_slice(&self.subject);
        hex::encode(sha256(&bytes))
    }
}
