//! `/healthz` and `/readyz`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::Shared;

/// The process is there.
pub(super) async fn alive() -> &'static str {
    "ok"
}

/// Whether requests can be served, and if not, what is wrong, by name.
pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    if shared.app.stop.is_cancelled() {
        return told(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "stopping" }));
    }
    let (status, body) = match shared.app.ready().await {
        Ok(()) => match shared.app.reload_fault() {
            None => (StatusCode::OK, json!({ "status": "ok" })),
            Some(fault) => (StatusCode::OK, json!({ "status": "degraded", "fault": *fault })),
        },
        Err(fault) => (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "unavailable", "fault": fault })),
    };
    told(status, &body)
}

fn told(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
