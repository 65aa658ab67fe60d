//! `/callbacks/slack/{app}`: verified over the raw bytes, durable, then answered.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;

use super::{Shared, plain, read};
use crate::chat::slack::{Reading, receive};
use crate::chat::{self};

/// The largest callback body, in bytes (DESIGN.md section 12).
const MAX_CALLBACK: usize = 256 * 1024;

pub(super) async fn callback(
    State(shared): State<Arc<Shared>>,
    Path(app): Path<String>,
    request: Request,
) -> Response {
    let Some(app) = shared.slack.get(&app) else {
        return plain(StatusCode::NOT_FOUND, "there is no such Slack app");
    };
    let (parts, body) = request.into_parts();
    let body = match read(body, MAX_CALLBACK).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let press = match receive(app, &parts.headers, &body, shared.clock.unix_seconds()) {
        Ok(Reading::Press(press)) => press,
        Ok(Reading::Ignore) => return StatusCode::OK.into_response(),
        Err(rejection) => {
            tracing::warn!(status = rejection.status().as_u16(), "a Slack callback was rejected");
            return rejection.status().into_response();
        }
    };
    match chat::ingest(&shared.app, press).await {
        Ok(()) => StatusCode::OK.into_response(),
        // Slack shows the person an error, and they press again: nothing was taken.
        Err(_) => plain(StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    }
}
