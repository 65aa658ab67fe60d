//! What is bound together, and its digests (DESIGN.md section 5).
//!
//! The action digest binds the token; the content digest recognises the same call again. Each digest type has one
//! constructor that names every bound field, so that nothing can be left out by accident.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::call::Arguments;
use super::canonical::canonical;
use super::ids::{ActionId, AgentName, Person, Tenant, ToolName, UpstreamName};
use super::requirement::Requirement;

macro_rules! digests {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// A digest as it is stored; `None` unless it has 32 bytes.
            pub fn from_stored(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self)
            }

            /// The 32 bytes.
            pub fn bytes(&self) -> &[u8; 32] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    )*};
}

digests! {
    /// Digest over everything that was approved, the action's id included.
    ActionDigest,
    /// Digest over what the agent asked for, whatever the versions and ids: the same call has the same one.
    ContentDigest,
    /// Digest over a tool's definition.
    ToolVersion,
    /// Digest over the rules, thresholds, groups and the upstream address that decided.
    PolicyVersion,
}

/// SHA-256 of bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// SHA-256 over the RFC 8785 bytes of a value of ours.
fn digest<T: Serialize>(value: &T) -> [u8; 32] {
    // Strings, integers and values that passed the gate: RFC 8785 has a form for each of them.
    #[expect(clippy::expect_used, reason = "the subjects hold strings, integers and gated values only")]
    let bytes = canonical(value).expect("subject has a canonical form");
    sha256(&bytes)
}

impl ToolVersion {
    /// Over name, title, description, both schemas and annotations as the upstream lists them; absent ones left out.
    pub fn of(definition: &Value) -> Self {
        let mut bound = Map::new();
        for member in ["name", "title", "description", "inputSchema", "outputSchema", "annotations"] {
            if let Some(value) = definition.get(member) {
                bound.insert(member.to_owned(), value.clone());
            }
        }
        // A schema may hold numbers that RFC 8785 changes in value; they are shown to nobody and executed by nobody,
        // and a definition that differs only there still differs from every other one in text. Hash that text.
        match canonical(&bound) {
            Ok(bytes) => Self(sha256(&bytes)),
            Err(_) => Self(sha256(Value::Object(bound).to_string().as_bytes())),
        }
    }
}

impl PolicyVersion {
    /// Over the normalised JSON of what decided; see [`crate::domain::policy`].
    pub fn of(normalised: &Value) -> Self {
        Self(digest(normalised))
    }
}

/// Every field that an approval is for, named.
#[derive(Debug, Clone)]
pub struct Binding {
    /// The action.
    pub action: ActionId,
    /// Its tenant.
    pub tenant: Tenant,
    /// The agent that proposed it.
    pub agent: AgentName,
    /// The person the agent works for.
    pub owner: Option<Person>,
    /// The client's run id.
    pub run: Option<String>,
    /// The upstream.
    pub upstream: UpstreamName,
    /// The upstream's environment.
    pub environment: Option<String>,
    /// The tool.
    pub tool: ToolName,
    /// The tool's definition at parking.
    pub tool_version: ToolVersion,
    /// The arguments that are executed.
    pub arguments: Arguments,
    /// The policy that decided.
    pub policy_version: PolicyVersion,
    /// Who must approve.
    pub requirement: Requirement,
    /// Values that must not change before the execution, by JSON Pointer.
    pub preconditions: Map<String, Value>,
}

impl Binding {
    /// The object under the action digest.
    pub fn subject(&self) -> Value {
        serde_json::json!({
            "undersign": "action/1",
            "action_id": self.action,
            "tenant": self.tenant,
            "agent": self.agent,
            "owner": self.owner,
            "run": self.run,
            "upstream": self.upstream,
            "environment": self.environment,
            "tool": self.tool,
            "tool_version": self.tool_version.to_string(),
            "arguments": self.arguments.value(),
            "policy_version": self.policy_version.to_string(),
            "requirement": self.requirement,
            "preconditions": self.preconditions,
        })
    }

    /// The digest that binds the token.
    pub fn action_digest(&self) -> ActionDigest {
        ActionDigest(digest(&self.subject()))
    }

    /// The digest that recognises the same call again.
    pub fn content_digest(&self) -> ContentDigest {
        ContentDigest::of(&self.tenant, &self.agent, &self.upstream, &self.tool, &self.arguments)
    }
}

impl ContentDigest {
    /// Over what the agent asked for.
    pub fn of(
        tenant: &Tenant,
        agent: &AgentName,
        upstream: &UpstreamName,
        tool: &ToolName,
        arguments: &Arguments,
    ) -> Self {
        Self(digest(&serde_json::json!({
            "undersign": "content/1",
            "tenant": tenant,
            "agent": agent,
            "upstream": upstream,
            "tool": tool,
            "arguments": arguments.value(),
        })))
    }
}
