//! The HTTP side of the fake: token, content type, arguments, faults; then the method itself.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri};
use axum::routing::any;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::methods::{self, ApiError};
use super::{Fault, Inner, Request};

pub(super) fn router(inner: Arc<Inner>) -> Router {
    Router::new().route("/api/{method}", any(call)).with_state(inner)
}

async fn call(
    State(inner): State<Arc<Inner>>,
    Path(method): Path<String>,
    http_method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let arguments = arguments(&method, &http_method, &uri, &headers, &body);
    let (log, fault) = inner.change(|state| {
        let arguments = arguments.as_ref().map_or(Value::Null, |found| Value::Object(found.clone()));
        state.requests.push(Request { method: method.clone(), http_method, arguments, answer: None });
        (state.requests.len() - 1, state.faults.get_mut(&method).and_then(VecDeque::pop_front))
    });
    let Some(fault) = fault else { return answer(&inner, log, &method, &headers, arguments) };
    match fault {
        Fault::RateLimited(seconds) => {
            let mut response = json_response(&json!({"ok": false, "error": "ratelimited"}));
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
            response
        }
        Fault::Http(status) => {
            let mut response = Response::new(Body::from("upstream connect error"));
            *response.status_mut() =
                StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            response
        }
        Fault::Error(error) => json_response(&json!({"ok": false, "error": error})),
        Fault::Drop => drop_connection(),
        Fault::Hang(gate) => {
            gate.pass().await;
            answer(&inner, log, &method, &headers, arguments)
        }
        Fault::DropAfter => {
            answer(&inner, log, &method, &headers, arguments);
            drop_connection()
        }
        Fault::GarbageAfter => {
            answer(&inner, log, &method, &headers, arguments);
            Response::new(Body::from("<html>it worked, probably</html>"))
        }
        Fault::HangAfter(gate) => {
            let response = answer(&inner, log, &method, &headers, arguments);
            gate.pass().await;
            response
        }
        Fault::ErrorAfter(error) => {
            answer(&inner, log, &method, &headers, arguments);
            json_response(&json!({"ok": false, "error": error}))
        }
    }
}

/// Ends the task that serves this connection, so that the peer sees it closed without one byte of an answer. Unwinding
/// without the panic hook: this is no panic that anyone should read about.
fn drop_connection() -> ! {
    std::panic::resume_unwind(Box::new("the fake drops this connection"))
}

fn answer(
    inner: &Inner,
    log: usize,
    method: &str,
    headers: &HeaderMap,
    arguments: Result<Map<String, Value>, ApiError>,
) -> Response<Body> {
    let result = authorise(inner, headers)
        .and(arguments)
        .and_then(|arguments| methods::call(inner, method, &arguments));
    let value = match result {
        Ok(value) => value,
        Err(error) => error.into_answer(),
    };
    inner.change(|state| state.requests[log].answer = Some(value.clone()));
    json_response(&value)
}

fn authorise(inner: &Inner, headers: &HeaderMap) -> Result<(), ApiError> {
    let mut found = headers.get_all(AUTHORIZATION).iter();
    let Some(token) = found.next().and_then(|v| v.to_str().ok()).and_then(|v| v.strip_prefix("Bearer "))
    else {
        return Err(ApiError::new("not_authed"));
    };
    if found.next().is_some() || token != inner.setup.bot_token {
        return Err(ApiError::new("invalid_auth"));
    }
    Ok(())
}

/// The arguments of a read come in the query, those of a write as a JSON object: one way each, the way we use.
fn arguments(
    method: &str,
    http_method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Map<String, Value>, ApiError> {
    let query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    if !methods::writes(method) {
        if *http_method != Method::GET || !body.is_empty() {
            return Err(ApiError::because(
                "invalid_arguments",
                format!("{method} is called by GET without a body"),
            ));
        }
        let mut arguments = Map::new();
        for (name, value) in query {
            if arguments.insert(name.clone().into_owned(), Value::String(value.into_owned())).is_some() {
                return Err(ApiError::because("invalid_arguments", format!("{name} is there twice")));
            }
        }
        return Ok(arguments);
    }
    if *http_method != Method::POST || query.count() > 0 {
        return Err(ApiError::because(
            "invalid_arguments",
            format!("{method} is called by POST without a query"),
        ));
    }
    let content_type = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if content_type.split(';').next().map(str::trim) != Some("application/json") {
        return Err(ApiError::new("invalid_post_type"));
    }
    if !content_type.to_ascii_lowercase().contains("charset=utf-8") {
        return Err(ApiError::because("invalid_charset", "charset=utf-8 is missing".to_owned()));
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(ApiError::new("json_not_object")),
        Err(_) => Err(ApiError::new("invalid_json")),
    }
}

fn json_response(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    let content_type = axum::http::HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
