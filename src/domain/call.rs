//! A tool call whose arguments passed the byte gate.
//!
//! [`Arguments`] can only be made by [`Arguments::parse`], so whoever holds one holds values that RFC 8785 carries
//! without loss. Not for calls that are merely relayed: those keep their raw bytes.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::canonical::canonical;
use super::digest::ToolVersion;
use super::ids::{ToolName, UpstreamName};
use super::ijson::{self, EnvelopeFault, Fault, ValueFault};

pub use super::ijson::MAX_ARGUMENTS;

/// The property of a gated tool's arguments that carries the token; taken off before anything else looks at them.
pub const TOKEN_ARGUMENT: &str = "approval_token";

/// Arguments of a gated call: checked, without the token, with their one canonical form.
#[derive(Clone)]
pub struct Arguments {
    canonical: Arc<[u8]>,
    value: Arc<Map<String, Value>>,
}

/// What the agent sent: the arguments and, apart from them, the value of `approval_token` if there was one.
pub struct ReadArguments {
    /// The arguments without the token.
    pub arguments: Arguments,
    /// The token's value as sent: any JSON value.
    pub token: Option<Value>,
}

/// Why arguments were not accepted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ArgumentFault {
    /// Larger than [`MAX_ARGUMENTS`], raw or in canonical form.
    #[error("the arguments are larger than 256 KiB")]
    TooLarge,
    /// The arguments are not a JSON object.
    #[error("the arguments must be a JSON object")]
    NotAnObject,
    /// A value that the canonical form cannot carry without loss.
    #[error("{0}")]
    Unsupported(ValueFault),
    /// Not JSON that every parser reads alike.
    #[error("{0}")]
    Malformed(EnvelopeFault),
}

impl Arguments {
    /// Reads the raw text of `params.arguments`; absent arguments are `{}`.
    ///
    /// # Errors
    /// Anything that the byte gate refuses, and text that is no object or too large.
    pub fn parse(raw: Option<&[u8]>) -> Result<ReadArguments, ArgumentFault> {
        let raw = raw.unwrap_or(b"{}");
        if raw.len() > MAX_ARGUMENTS {
            return Err(ArgumentFault::TooLarge);
        }
        ijson::scan_arguments(raw).map_err(|fault| match fault {
            Fault::Envelope(fault) => ArgumentFault::Malformed(fault),
            Fault::Value(fault) => ArgumentFault::Unsupported(fault),
        })?;
        let Ok(Value::Object(mut map)) = serde_json::from_slice(raw) else {
            return Err(ArgumentFault::NotAnObject);
        };
        let token = map.remove(TOKEN_ARGUMENT);
        let canonical = canonical(&map).map_err(|_| ArgumentFault::NotAnObject)?;
        if canonical.len() > MAX_ARGUMENTS {
            return Err(ArgumentFault::TooLarge);
        }
        Ok(ReadArguments { arguments: Self { canonical: canonical.into(), value: Arc::new(map) }, token })
    }

    /// Reads back the canonical bytes of a row. They were checked when they were written; their digest is checked
    /// again before they are used.
    pub fn from_stored(bytes: &[u8]) -> Option<Self> {
        let value = serde_json::from_slice(bytes).ok()?;
        Some(Self { canonical: bytes.into(), value: Arc::new(value) })
    }

    /// The RFC 8785 bytes: what is hashed, shown, stored and executed.
    pub fn canonical(&self) -> &[u8] {
        &self.canonical
    }

    /// The same as values.
    pub fn value(&self) -> &Map<String, Value> {
        &self.value
    }
}

impl std::fmt::Debug for Arguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arguments({} bytes)", self.canonical.len())
    }
}

/// A tool as its upstream lists it.
#[derive(Debug, Clone)]
pub struct ToolDefinition {
    /// The tool's own name.
    pub name: ToolName,
    /// The whole definition, as far as the SDK keeps it.
    pub definition: Value,
    /// Digest over the members that were shown or checked (DESIGN.md section 5).
    pub version: ToolVersion,
}

impl ToolDefinition {
    /// Reads a listed tool. `None` when it has no name.
    pub fn new(definition: Value) -> Option<Self> {
        let name = ToolName::new(definition.get("name")?.as_str()?);
        let version = ToolVersion::of(&definition);
        Some(Self { name, definition, version })
    }

    /// The schema that arguments must fit.
    pub fn input_schema(&self) -> &Value {
        self.definition.get("inputSchema").unwrap_or(&Value::Null)
    }

    /// Whether the tool has a property of the token's name, and so can't be offered.
    pub fn owns_token_argument(&self) -> bool {
        self.input_schema().pointer("/properties/approval_token").is_some()
    }
}

/// A tool of an upstream, as policy names it: `shop/refund_order`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToolPath {
    /// The upstream.
    pub upstream: UpstreamName,
    /// Its tool.
    pub tool: ToolName,
}

impl std::fmt::Display for ToolPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.upstream, self.tool)
    }
}
