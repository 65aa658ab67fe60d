//! From rmcp's answer to what became of a call (MCP.md 7.9).

use std::error::Error;

use rmcp::model::ServerResult;
use rmcp::service::ServiceError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;

use crate::app::ports::Relayed;
use crate::domain::intent::{FailureDetail, Outcome, UnknownDetail};

/// JSON-RPC's "internal error", for answers of an upstream that are not passed on.
const INTERNAL_ERROR: i32 = -32603;

/// What `tools/call` came to.
pub(super) type Answer = Result<ServerResult, ServiceError>;

/// What became of an execution that was, or may have been, sent.
pub(super) fn executed(answer: Answer) -> Outcome {
    match answer {
        Ok(result) => match tool_result(result) {
            Told::Result { value, is_error: false } => Outcome::Succeeded { result: value },
            Told::Result { value, is_error: true } => failed(FailureDetail::ToolError, Some(value)),
            Told::InputRequired(_) => failed(FailureDetail::InputRequired, None),
            Told::Task => unknown(UnknownDetail::TaskStarted),
            Told::Other => unknown(UnknownDetail::UnexpectedAnswer),
        },
        Err(error) if was_not_sent(&error) => failed(FailureDetail::NotSent, None),
        Err(ServiceError::McpError(_)) => failed(FailureDetail::ProtocolError, None),
        Err(ServiceError::Timeout { .. }) => unknown(UnknownDetail::Timeout),
        Err(_) => unknown(UnknownDetail::Transport),
    }
}

/// What came back of a relayed call.
pub(super) fn relayed(answer: Answer) -> Relayed {
    match answer {
        Ok(result) => match tool_result(result) {
            Told::Result { value, .. } => Relayed::Result(value),
            Told::InputRequired(asked) => Relayed::InputRequired(asked),
            Told::Task => refused("the upstream began a task, which is not followed"),
            Told::Other => refused("the upstream's answer is no result of a tool"),
        },
        Err(ServiceError::McpError(error)) => {
            Relayed::Error { code: error.code.0, message: error.message.into_owned(), data: error.data }
        }
        Err(_) => Relayed::Unknown,
    }
}

/// An upstream's answer, as far as it matters here.
enum Told {
    /// The tool has run.
    Result {
        value: Value,
        is_error: bool,
    },
    InputRequired(Value),
    Task,
    Other,
}

fn tool_result(result: ServerResult) -> Told {
    match result {
        ServerResult::CallToolResult(result) => {
            let is_error = result.is_error == Some(true);
            serde_json::to_value(result).map_or(Told::Other, |value| Told::Result { value, is_error })
        }
        ServerResult::CustomResult(custom) => untyped(custom.0),
        ServerResult::InputRequiredResult(asked) => {
            serde_json::to_value(asked).map_or(Told::Other, Told::InputRequired)
        }
        ServerResult::CreateTaskResult(_) => Told::Task,
        _ => Told::Other,
    }
}

/// An answer with something in it that rmcp has no type for: by its own label a result all the same, or none. A legacy
/// upstream labels nothing.
fn untyped(value: Value) -> Told {
    match value.get("resultType").map(Value::as_str) {
        None | Some(Some("complete")) if value.get("content").is_some_and(Value::is_array) => {
            let is_error = value.get("isError") == Some(&Value::Bool(true));
            Told::Result { value, is_error }
        }
        Some(Some("input_required")) => Told::InputRequired(value),
        Some(Some("task")) => Told::Task,
        _ => Told::Other,
    }
}

/// Whether the request never left: its connection could not be made. Only then may it be sent again.
pub(super) fn was_not_sent(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else { return false };
    let mut cause: Option<&(dyn Error + 'static)> = Some(error.error.as_ref());
    while let Some(error) = cause {
        // The SDK's error does not name the client's as its source.
        let of_client = match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            Some(StreamableHttpError::Client(error)) => Some(error),
            _ => error.downcast_ref::<reqwest::Error>(),
        };
        if let Some(error) = of_client {
            return error.is_connect();
        }
        cause = error.source();
    }
    false
}

/// Whether the connection may be of no use any more.
pub(super) fn breaks_connection(error: &ServiceError) -> bool {
    !matches!(error, ServiceError::McpError(_) | ServiceError::UnexpectedResponse)
}

fn failed(detail: FailureDetail, result: Option<Value>) -> Outcome {
    Outcome::Failed { detail, result }
}

fn unknown(detail: UnknownDetail) -> Outcome {
    Outcome::Unknown { detail }
}

fn refused(message: &str) -> Relayed {
    Relayed::Error { code: INTERNAL_ERROR, message: message.to_owned(), data: None }
}
