//! `/callbacks/slack/{app}`: verified over the raw bytes, durable, then answered.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;

use super::{Shared, client, plain, too_many};
use crate::chat::slack::{Reading, Rejection, receive};
use crate::chat::{self};

/// The largest callback body, in bytes (DESIGN.md section 12).
const MAX_CALLBACK: usize = 256 * 1024;

pub(super) async fn callback(
    State(shared): State<Arc<Shared>>,
    Path(app): Path<String>,
    request: Request,
) -> Response {
    let apps = shared.slack.load_full();
    let Some(app) = apps.get(&app) else {
        return plain(StatusCode::NOT_FOUND, "there is no such Slack app");
    };
    let (parts, body) = request.into_parts();
    let address = client(&parts);
    let body = match shared.callback_bodies.read(&address.to_string(), &parts, body, MAX_CALLBACK).await {
        Ok(body) => body,
        // Whoever sends no whole body proves nothing either.
        Err(fault) => {
            return shared.limits.unproven(address).map_or_else(too_many, |()| fault.into_response());
        }
    };
    let press = match receive(app, &parts.headers, &body, shared.clock.unix_seconds()) {
        Ok(Reading::Press(press)) => press,
        Ok(Reading::Ignore) => return StatusCode::OK.into_response(),
        Err(rejection) => {
            // Whoever has no signature is counted, and only they: a flood of theirs holds up nobody's click.
            if rejection == Rejection::Unauthenticated
                && let Err(wait) = shared.limits.unproven(client(&parts))
            {
                return too_many(wait);
            }
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
