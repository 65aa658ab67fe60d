//! `/healthz` and `/readyz`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::json;

use super::Shared;

/// The process is there.
pub(super) async fn alive() -> &'static str {
    "ok"
}

/// Whether requests can be served, and if not, what is wrong, by name.
pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let (status, body) = match shared.app.ready().await {
        Ok(()) => (StatusCode::OK, json!({ "status": "ok" })),
        Err(fault) => (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "unavailable", "fault": fault })),
    };
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
