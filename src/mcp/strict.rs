//! The strict reader in front of rmcp: what two parsers could read in two ways never reaches the one behind.
//!
//! rmcp reads a body into maps, so duplicate names and large integers are lost by the time a handler sees them. Here the
//! raw text is scanned first, and the raw text of the arguments is handed on beside it. Not for values: what a gated
//! call's arguments may hold is judged where it is known that the call is gated.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::domain::ijson::{self, EnvelopeFault};

/// A body that may be given to rmcp.
#[derive(Clone)]
pub struct Checked {
    /// The same bytes as came in.
    pub body: Bytes,
    /// The raw text of `params.arguments`, `None` when absent.
    pub arguments: Option<Bytes>,
}

/// The raw text of `params.arguments`, as the handler finds it in the request's extensions.
#[derive(Clone)]
pub struct RawArguments(pub Option<Bytes>);

/// Why a request is refused before anything reads it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The body is not declared to be UTF-8 JSON.
    #[error("the Content-Type must be application/json")]
    MediaType,
    /// The body is encoded.
    #[error("a Content-Encoding is not accepted: send the body as it is")]
    Encoded,
    /// Two parsers could read the text in two ways, or it costs too much to read.
    #[error(transparent)]
    Text(#[from] EnvelopeFault),
    /// JSON, but no JSON-RPC message.
    #[error("the text is not one JSON-RPC 2.0 message")]
    Message,
}

/// Checks the headers and the whole body of a POST.
///
/// # Errors
/// The first reason not to read it.
pub fn check(headers: &HeaderMap, body: Bytes) -> Result<Checked, Refusal> {
    check_headers(headers)?;
    let envelope = ijson::scan_body(&body)?;
    serde_json::from_slice::<Envelope>(&body).map_err(|_| Refusal::Message)?;
    let arguments = envelope.arguments.map(|range| body.slice(range));
    Ok(Checked { body, arguments })
}

/// Checks what can be known before the body is read.
///
/// # Errors
/// [`Refusal::MediaType`] or [`Refusal::Encoded`].
pub fn check_headers(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(Refusal::Encoded);
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    match (types.next().and_then(|value| value.to_str().ok()), types.next()) {
        (Some(value), None) if is_utf8_json(value) => Ok(()),
        _ => Err(Refusal::MediaType),
    }
}

/// `application/json`, with no parameter but `charset=utf-8` (RFC 9110, section 8.3: both without regard to case).
fn is_utf8_json(value: &str) -> bool {
    let mut parts = value.split(';').map(|part| part.trim_matches([' ', '\t']));
    let is_json = parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"));
    is_json
        && parts.all(|parameter| {
            parameter.eq_ignore_ascii_case("charset=utf-8")
                || parameter.eq_ignore_ascii_case("charset=\"utf-8\"")
        })
}

/// The members of a JSON-RPC message, spelled exactly; another spelling is another member, and there is no other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the names are looked at; rmcp reads the values")]
struct Envelope {
    jsonrpc: IgnoredAny,
    id: Option<IgnoredAny>,
    method: Option<IgnoredAny>,
    params: Option<IgnoredAny>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

impl Refusal {
    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::MediaType | Self::Encoded => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Text(EnvelopeFault::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Text(_) | Self::Message => StatusCode::BAD_REQUEST,
        }
    }

    /// The JSON-RPC error code: -32700 for what is no JSON text, -32600 for JSON that is no acceptable request.
    pub fn code(&self) -> i32 {
        use EnvelopeFault as Fault;
        match self {
            Self::Text(Fault::NotUtf8 { .. } | Fault::ByteOrderMark | Fault::Grammar { .. }) => -32700,
            _ => -32600,
        }
    }

    /// The body of the answer: a JSON-RPC error without an id, as the request's can't be trusted.
    pub fn body(&self) -> Bytes {
        let error = json!({"jsonrpc": "2.0", "error": {"code": self.code(), "message": self.to_string()}});
        error.to_string().into()
    }
}

impl std::fmt::Debug for Checked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checked({} bytes)", self.body.len())
    }
}

impl std::fmt::Debug for RawArguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RawArguments({:?} bytes)", self.0.as_ref().map(Bytes::len))
    }
}

#[cfg(test)]
mod tests;
