//! Use cases: one verb a file. This layer owns the transactions and declares the ports; it knows no wire format.
//! (Skeleton: the lead is writing the bodies; the signatures below are what adapters build on.)

pub mod ports;

use bytes::Bytes;
use serde_json::Value;

use crate::domain::answer::{Answer, Code};
use crate::domain::call::ToolDefinition;
use crate::domain::ids::{AgentName, Person, Tenant, ToolName, UpstreamName};
use crate::domain::press::Press;

/// The authenticated agent behind a request. The tenant comes from the credential, never from the path or the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The tenant.
    pub tenant: Tenant,
    /// The agent.
    pub agent: AgentName,
    /// The person it works for.
    pub owner: Option<Person>,
}

/// A `tools/call` as it arrived, for one upstream's tool.
#[derive(Debug)]
pub struct ToolCall {
    /// The upstream.
    pub upstream: UpstreamName,
    /// Its tool.
    pub tool: ToolName,
    /// The raw bytes of `params.arguments`, `None` when absent; the body passed `ijson::scan_body`.
    pub arguments: Option<Bytes>,
    /// `_meta["dev.undersign/approval-token"]`, when present.
    pub token: Option<Value>,
    /// `_meta["dev.undersign/run"]`, when it is a string.
    pub run: Option<String>,
}

/// What a `tools/call` comes to.
#[derive(Debug)]
pub enum Reply {
    /// The upstream's own `tools/call` result.
    Upstream(Value),
    /// The upstream's own JSON-RPC error.
    UpstreamError {
        /// Its code.
        code: i32,
        /// Its message.
        message: String,
        /// Its data.
        data: Option<Value>,
    },
    /// An answer of ours.
    Answer(Box<Answer>),
    /// No upstream of the tenant's has such a tool: JSON-RPC -32602.
    UnknownTool,
}

/// A tool as it may be offered to agents.
#[derive(Debug, Clone)]
pub struct OfferedTool {
    /// As the upstream lists it.
    pub definition: ToolDefinition,
    /// Whether some call of it needs approval: it then gains `approval_token`.
    pub gated: bool,
}

/// The application. Cheap to clone.
#[derive(Clone)]
pub struct App {}

/// The press was not stored: the platform must show an error.
#[derive(Debug, thiserror::Error)]
#[error("the database does not answer")]
pub struct NotStored;

impl App {
    /// A `tools/call`: relayed, refused, parked, or redeemed. Runs detached from the client's connection.
    pub async fn call(&self, _caller: &Caller, _call: ToolCall) -> Reply {
        Reply::Answer(Box::new(Answer::plain(Code::Unavailable)))
    }

    /// `undersign_approval`: waits up to `wait` for a change that the agent can act on.
    pub async fn approval(&self, _caller: &Caller, _action_id: &str, _wait: std::time::Duration) -> Answer {
        Answer::plain(Code::NotFound)
    }

    /// `undersign_cancel`.
    pub async fn cancel(&self, _caller: &Caller, _action_id: &str) -> Answer {
        Answer::plain(Code::NotFound)
    }

    /// The upstreams of a tenant, by name.
    pub fn upstreams(&self, _tenant: &Tenant) -> Vec<UpstreamName> {
        Vec::new()
    }

    /// The tools of one upstream that policy could allow; none when it can't be reached (logged).
    pub async fn tools(&self, _caller: &Caller, _upstream: &UpstreamName) -> Vec<OfferedTool> {
        Vec::new()
    }

    /// Makes a verified press durable, then decides it, at once when that is quick. Called by `chat::ingest` alone.
    pub(crate) async fn take_press(&self, _press: Press) -> Result<(), NotStored> {
        Ok(())
    }

    /// Whether the database answers and the schema is current.
    pub async fn ready(&self) -> Result<(), &'static str> {
        Ok(())
    }
}
