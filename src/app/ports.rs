//! What leaves the process: traits for the far ends, implemented by `mcp` and `chat`, faked over HTTP in tests.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::domain::call::ToolDefinition;
use crate::domain::card::Card;
use crate::domain::ids::ToolName;
use crate::domain::intent::Outcome;
use crate::domain::place::Place;
use crate::domain::policy::Allowed;
pub use crate::storage::Sending;

/// One upstream MCP server of one tenant.
#[async_trait]
pub trait Upstream: Send + Sync {
    /// The tools as the upstream lists them now; never from a cache.
    ///
    /// # Errors
    /// The upstream can't be reached, or its answer is no list.
    async fn tools(&self) -> Result<Vec<ToolDefinition>, UpstreamDown>;

    /// Relays a call that policy allows. One attempt.
    async fn relay(
        &self,
        permit: &Allowed,
        tool: &ToolName,
        arguments: Map<String, Value>,
        passing: Passing,
    ) -> Relayed;

    /// Executes a claim: one attempt, the stored arguments, our idempotency key, nothing of the client's.
    /// Doubt comes back as [`Outcome::Unknown`], never as a guess.
    async fn execute(&self, sending: &Sending) -> Outcome;
}

/// What a call that policy allows takes along besides name and arguments. One that needs approval takes none of it.
#[derive(Debug, Default)]
pub struct Passing {
    /// The capabilities that the agent declares with this call, less those for answers that are not followed here.
    pub capabilities: Option<Value>,
    /// The agent's own `_meta`, less what is undersign's or belongs to the hop between the two of them.
    pub meta: Map<String, Value>,
    /// The agent's answers to what the upstream asked in an earlier round.
    pub input_responses: Option<Map<String, Value>>,
    /// What the upstream wants back with the answers.
    pub request_state: Option<String>,
    /// Where the upstream's progress goes; what finds no room is dropped.
    pub progress: Option<mpsc::Sender<Progress>>,
}

/// How far an upstream says it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// So much is done.
    pub done: f64,
    /// Of so much.
    pub total: Option<f64>,
    /// The upstream's own words.
    pub message: Option<String>,
}

/// The upstream can't be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the upstream can't be reached")]
pub struct UpstreamDown;

/// What came back of a relayed call.
#[derive(Debug, Clone, PartialEq)]
pub enum Relayed {
    /// A `tools/call` result, as the upstream sent it.
    Result(Value),
    /// The upstream asks the agent for something first (`resultType: "input_required"`), as it sent it.
    InputRequired(Value),
    /// A JSON-RPC error of the upstream's.
    Error {
        /// Its code.
        code: i32,
        /// Its message.
        message: String,
        /// Its data.
        data: Option<Value>,
    },
    /// Nothing was sent.
    NotSent,
    /// The call was or may have been sent, and no answer is known.
    Unknown,
}

/// Posts and edits cards at one installation.
#[async_trait]
pub trait Messenger: Send + Sync {
    /// Posts a card whose buttons carry `handle`.
    async fn post(&self, place: &Place, card: &Card, handle: &str) -> Result<Posted, PostError>;

    /// Shows the card's new content in a message posted before.
    async fn edit(&self, place: &Place, message: &str, card: &Card, handle: &str) -> Result<(), PostError>;

    /// Tells one person something, in the channel, unseen by others.
    async fn note(&self, place: &Place, user: &str, text: &str) -> Result<(), PostError>;

    /// Tells a channel something that is no card.
    async fn tell(&self, place: &Place, text: &str) -> Result<(), PostError>;

    /// The message's address for people. Its failure touches nothing else.
    async fn permalink(&self, place: &Place, message: &str) -> Option<String>;
}

/// A message that the platform accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// The platform's id of the message.
    pub message: String,
    /// SHA-256 of the card as sent, lower-case hex.
    pub sha256: String,
}

/// Why a post did not go through.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// It never will: the platform's error code.
    #[error("refused: {0}")]
    Permanent(String),
    /// Not now.
    #[error("not now: {code}")]
    Transient {
        /// The platform's error code.
        code: String,
        /// When to come back, if the platform says so.
        retry_after: Option<Duration>,
    },
    /// It may have been posted.
    #[error("no clear answer: {0}")]
    Ambiguous(String),
}

/// Asks one installation who people are.
#[async_trait]
pub trait Directory: Send + Sync {
    /// The members of a user group; a disabled group has none. At most 60 s old.
    ///
    /// # Errors
    /// The platform can't be asked and nothing recent enough is known.
    async fn members(&self, group: &str) -> Result<BTreeSet<String>, DirectoryDown>;

    /// Whether an account may decide anything at all: a full, living, human member of the home workspace.
    /// At most 60 s old. `home` is the workspace the payload claims, when it claims one.
    ///
    /// # Errors
    /// The platform can't be asked and nothing recent enough is known.
    async fn standing(&self, user: &str, home: Option<&str>) -> Result<AccountStanding, DirectoryDown>;
}

/// What an account is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountStanding {
    /// A full member.
    Member,
    /// A guest, a bot, deactivated, or of another workspace.
    Outsider,
}

/// The platform can't be asked: closed until it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the chat platform can't be asked about people")]
pub struct DirectoryDown;
