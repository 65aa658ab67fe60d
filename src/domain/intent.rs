//! The claimed execution: intent before the deed, outcome after it, doubt as doubt.
//!
//! ```text
//! claimed ──▶ succeeded | failed | outcome_unknown
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What became of a claimed call. There is no guess among the variants.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The upstream answered without an error.
    Succeeded {
        /// The `tools/call` result as the upstream sent it.
        result: Value,
    },
    /// The upstream answered with an error, or nothing was sent.
    Failed {
        /// Why.
        detail: FailureDetail,
        /// The upstream's result, when it sent one.
        result: Option<Value>,
    },
    /// The call was or may have been sent, and no result is known.
    Unknown {
        /// Why, in a word.
        detail: UnknownDetail,
    },
}

/// Why a claimed call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureDetail {
    /// The tool answered `isError: true`.
    ToolError,
    /// The upstream answered with a JSON-RPC error.
    ProtocolError,
    /// The upstream asked for more input, which a gated call never gives.
    InputRequired,
    /// The upstream could not be connected: nothing was sent.
    NotSent,
}

/// Why an outcome is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownDetail {
    /// No answer within the time limit.
    Timeout,
    /// The connection broke after sending, or the answer could not be read.
    Transport,
    /// The upstream began a task, which is not followed.
    TaskStarted,
    /// The answer was of no known kind.
    UnexpectedAnswer,
    /// The replica that held the claim did not report.
    Abandoned,
}

impl FailureDetail {
    /// As stored and told.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolError => "tool_error",
            Self::ProtocolError => "protocol_error",
            Self::InputRequired => "input_required",
            Self::NotSent => "not_sent",
        }
    }
}

impl UnknownDetail {
    /// As stored and told.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Transport => "transport",
            Self::TaskStarted => "task_started",
            Self::UnexpectedAnswer => "unexpected_answer",
            Self::Abandoned => "abandoned",
        }
    }
}

impl Outcome {
    /// The state that the action and the intent take.
    pub fn state(&self) -> &'static str {
        match self {
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Unknown { .. } => "outcome_unknown",
        }
    }

    /// Why it failed or is unknown.
    pub fn detail(&self) -> Option<&'static str> {
        match self {
            Self::Succeeded { .. } => None,
            Self::Failed { detail, .. } => Some(detail.as_str()),
            Self::Unknown { detail } => Some(detail.as_str()),
        }
    }

    /// The upstream's own result.
    pub fn result(&self) -> Option<&Value> {
        match self {
            Self::Succeeded { result } => Some(result),
            Self::Failed { result, .. } => result.as_ref(),
            Self::Unknown { .. } => None,
        }
    }
}

impl FailureDetail {
    /// Reads a stored name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::ToolError, Self::ProtocolError, Self::InputRequired, Self::NotSent]
            .into_iter()
            .find(|detail| detail.as_str() == text)
    }
}

impl UnknownDetail {
    /// Reads a stored name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Timeout, Self::Transport, Self::TaskStarted, Self::UnexpectedAnswer, Self::Abandoned]
            .into_iter()
            .find(|detail| detail.as_str() == text)
    }
}
