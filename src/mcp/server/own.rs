//! Our own two tools, on every endpoint.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

/// Tells how an action stands.
pub(super) const APPROVAL: &str = "undersign_approval";

/// Withdraws an action.
pub(super) const CANCEL: &str = "undersign_cancel";

/// How long `undersign_approval` waits unless told otherwise: well clear of clients that stop at 60 s.
const DEFAULT_WAIT: Duration = Duration::from_secs(25);

/// How long it waits at most.
const LONGEST_WAIT: Duration = Duration::from_secs(50);

/// What one of our tools is asked for.
#[derive(Debug, PartialEq)]
pub(super) enum Ask {
    /// How an action stands, after waiting.
    Approval { action_id: String, wait: Duration },
    /// To withdraw it.
    Cancel { action_id: String },
    /// Nothing that can be read.
    Unreadable,
}

/// Whether a tool of an upstream has the name of one of our own.
pub fn is_ours(name: &str) -> bool {
    [APPROVAL, CANCEL].contains(&name)
}

/// Reads a call of one of our tools; `None` for another name.
pub(super) fn ask(name: &str, arguments: Option<&Map<String, Value>>) -> Option<Ask> {
    if !is_ours(name) {
        return None;
    }
    let argument = |key| arguments.and_then(|map| map.get(key)).filter(|value| !value.is_null());
    let Some(action_id) = argument("action_id").and_then(Value::as_str).map(str::to_owned) else {
        return Some(Ask::Unreadable);
    };
    if name == CANCEL {
        return Some(Ask::Cancel { action_id });
    }
    let wait = match argument("wait_seconds") {
        None => DEFAULT_WAIT,
        Some(seconds) => {
            let seconds = seconds.as_f64().map(|seconds| seconds.min(LONGEST_WAIT.as_secs_f64()));
            match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
                Some(wait) => wait,
                None => return Some(Ask::Unreadable),
            }
        }
    };
    Some(Ask::Approval { action_id, wait })
}

/// Both definitions. Neither has an output schema: a host that sees one drops the text.
pub(super) fn tools() -> [Tool; 2] {
    let action_id = json!({"type": "string", "description": "The action_id from an answer of undersign."});
    let approval = tool(
        APPROVAL,
        "Tells how an action that needs a person's approval stands: pending, approved (with the approval_token to \
         repeat the call with), refused, or executed (with the outcome). Waits for a decision.",
        json!({"action_id": action_id, "wait_seconds": {"type": "number", "minimum": 0,
            "maximum": LONGEST_WAIT.as_secs(), "default": DEFAULT_WAIT.as_secs(),
            "description": "How long to wait for a decision."}}),
    );
    let cancel = tool(
        CANCEL,
        "Withdraws an action that has not been executed; nobody can approve it any more.",
        json!({"action_id": action_id}),
    );
    [
        approval.with_annotations(ToolAnnotations::new().read_only(true).open_world(false)),
        cancel.with_annotations(ToolAnnotations::new().destructive(false).idempotent(true).open_world(false)),
    ]
}

fn tool(name: &'static str, description: &'static str, properties: Value) -> Tool {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), properties);
    schema.insert("required".to_owned(), json!(["action_id"]));
    schema.insert("additionalProperties".to_owned(), json!(false));
    Tool::new(name, description, Arc::new(schema))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str, arguments: &Value) -> Option<Ask> {
        ask(name, arguments.as_object())
    }

    fn approval(seconds: f64) -> Ask {
        Ask::Approval { action_id: "x".to_owned(), wait: Duration::from_secs_f64(seconds) }
    }

    #[test]
    fn the_wait_has_a_default_and_a_limit() {
        assert_eq!(asked(APPROVAL, &json!({"action_id": "x"})), Some(approval(25.0)));
        assert_eq!(asked(APPROVAL, &json!({"action_id": "x", "wait_seconds": null})), Some(approval(25.0)));
        assert_eq!(asked(APPROVAL, &json!({"action_id": "x", "wait_seconds": 0})), Some(approval(0.0)));
        assert_eq!(asked(APPROVAL, &json!({"action_id": "x", "wait_seconds": 1.5})), Some(approval(1.5)));
        assert_eq!(asked(APPROVAL, &json!({"action_id": "x", "wait_seconds": 1e300})), Some(approval(50.0)));
    }

    #[test]
    fn what_cannot_be_read_is_not_guessed() {
        for arguments in [
            json!({}),
            json!({"action_id": 5}),
            json!({"action_id": "x", "wait_seconds": "5"}),
            json!({"action_id": "x", "wait_seconds": -1}),
        ] {
            assert_eq!(asked(APPROVAL, &arguments), Some(Ask::Unreadable));
        }
        assert_eq!(ask(CANCEL, None), Some(Ask::Unreadable));
        assert_eq!(asked("refund", &json!({"action_id": "x"})), None);
    }

    #[test]
    fn the_annotations_are_the_documented_ones() {
        let [approval, cancel] = tools().map(|tool| serde_json::to_value(tool).unwrap());
        assert_eq!(approval["annotations"], json!({"readOnlyHint": true, "openWorldHint": false}));
        assert_eq!(
            cancel["annotations"],
            json!({"destructiveHint": false, "idempotentHint": true, "openWorldHint": false})
        );
        assert!(approval.get("outputSchema").is_none() && cancel.get("outputSchema").is_none());
    }
}
