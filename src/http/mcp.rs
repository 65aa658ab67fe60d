//! `/mcp` and `/mcp/{upstream}`: who asks, how much, how it is spelt; then rmcp.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};

use super::{LoggedCaller, Shared, client, guard, plain, too_many};
use crate::app::Caller;
use crate::domain::ids::UpstreamName;
use crate::domain::ijson::MAX_BODY;
use crate::mcp::server::Endpoint;
use crate::mcp::strict;

/// Every upstream of the caller's tenant.
pub(super) async fn all(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    answer(&shared, Endpoint::All, request).await
}

/// One upstream.
pub(super) async fn one(
    State(shared): State<Arc<Shared>>,
    Path(upstream): Path<String>,
    request: Request,
) -> Response {
    answer(&shared, Endpoint::One(UpstreamName::new(upstream)), request).await
}

async fn answer(shared: &Shared, endpoint: Endpoint, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if !shared.sites.admit(&parts) {
        return guard::forbidden();
    }
    let Some(caller) = shared.keys.caller(&parts.headers) else {
        if let Err(wait) = shared.limits.unproven(client(&parts)) {
            return too_many(wait);
        }
        let mut response =
            plain(StatusCode::UNAUTHORIZED, "an agent key is needed: Authorization: Bearer <key>");
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return response;
    };
    let logged = LoggedCaller { tenant: caller.tenant.to_string(), agent: caller.agent.to_string() };
    let mut response = if let Err(wait) = shared.limits.of(&caller) {
        too_many(wait)
    } else if parts.method == Method::POST {
        post(shared, endpoint, caller, parts, body).await
    } else {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only POST is served here");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        response
    };
    response.extensions_mut().insert(logged);
    response
}

async fn post(shared: &Shared, endpoint: Endpoint, caller: Caller, parts: Parts, body: Body) -> Response {
    if !shared.services.has(&caller.tenant, &endpoint) {
        return plain(StatusCode::NOT_FOUND, "there is no such upstream");
    }
    if let Err(refusal) = strict::check_headers(&parts.headers) {
        return refused(&refusal);
    }
    let client = format!("{}/{}", caller.tenant, caller.agent);
    let body = match shared.bodies.read(&client, &parts, body, MAX_BODY).await {
        Ok(body) => body,
        Err(fault) => return fault.into_response(),
    };
    match strict::check(&parts.headers, body) {
        Ok(checked) => {
            shared.services.handle(caller, endpoint, parts, checked).await.map(Body::new).into_response()
        }
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &strict::Refusal) -> Response {
    (refusal.status(), [(CONTENT_TYPE, "application/json")], refusal.body()).into_response()
}
