//! Calls of Slack's Web API: raw JSON in and out, one attempt each, with a time limit (SLACK.md 4.4, 6.1, 6.2).
//!
//! Keeps true: what comes back in case of failure is a class and a code, never a body: the crate's own errors carry
//! whole answers, with what agents wrote. Not for retries, nor for what a failure means to the caller.

use std::io;
use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Error as HyperError, connect::HttpConnector};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use slack_morphism::errors::SlackClientError;
use slack_morphism::hyper_tokio::SlackClientHyperConnector;
use slack_morphism::{SlackApiToken, SlackApiTokenValue, SlackClient};

use super::SlackApp;

/// How long one call may take: the crate itself waits forever.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// How long a connection may take to be there.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The longest wait that is believed when Slack asks for one.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// The Web API for one installation.
pub struct WebApi {
    client: SlackClient<SlackClientHyperConnector<HttpsConnector<HttpConnector>>>,
    token: SlackApiToken,
    app: SlackApp,
    limit: Duration,
}

/// Why a call brought no answer. `code` is Slack's error code or a word of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallError {
    /// Slack said no.
    Refused {
        /// Slack's error code.
        code: String,
    },
    /// Too many calls.
    RateLimited {
        /// When to come back.
        retry_after: Option<Duration>,
    },
    /// The request never left.
    NotSent,
    /// The request was answered, if at all, by something that is no answer of Slack's.
    Unclear {
        /// What came instead.
        code: String,
    },
}

impl CallError {
    /// One word for logs.
    pub(super) fn code(&self) -> &str {
        match self {
            Self::Refused { code } | Self::Unclear { code } => code,
            Self::RateLimited { .. } => "ratelimited",
            Self::NotSent => "not_connected",
        }
    }

    fn unclear(code: &str) -> Self {
        Self::Unclear { code: code.to_owned() }
    }
}

impl WebApi {
    /// A client for the installation. Connects to nothing yet.
    ///
    /// # Errors
    /// The system has no certificate authorities to trust.
    pub fn new(app: &SlackApp) -> io::Result<Self> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_LIMIT));
        // Named here, so that no feature of some dependency decides which one it is.
        let provider = rustls::crypto::ring::default_provider();
        let builder = HttpsConnectorBuilder::new().with_provider_and_native_roots(provider)?;
        let builder =
            if app.api_url.starts_with("https://") { builder.https_only() } else { builder.https_or_http() };
        let connector = builder.enable_all_versions().wrap_connector(http);
        let base = app.api_url.trim_end_matches('/');
        Ok(Self {
            client: SlackClient::new(
                SlackClientHyperConnector::with_connector(connector).with_slack_api_url(base),
            ),
            token: SlackApiToken::new(SlackApiTokenValue(app.bot_token.expose_secret().to_owned())),
            app: app.clone(),
            limit: CALL_LIMIT,
        })
    }

    /// The same with another time limit for each call.
    #[cfg(test)]
    pub(super) fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// The installation it speaks for.
    pub(super) fn app(&self) -> &SlackApp {
        &self.app
    }

    /// Calls a method that writes.
    pub(super) async fn post(&self, method: &str, arguments: &Value) -> Result<Value, CallError> {
        let session = self.client.open_session(&self.token);
        let call = session.http_session_api.http_post(method, arguments, None);
        answer(tokio::time::timeout(self.limit, call).await)
    }

    /// Calls a method that reads.
    pub(super) async fn get(&self, method: &str, arguments: &[(&str, &str)]) -> Result<Value, CallError> {
        let session = self.client.open_session(&self.token);
        let query: Vec<_> = arguments.iter().map(|(name, value)| (*name, Some(*value))).collect();
        let call = session.http_session_api.http_get(method, &query, None);
        answer(tokio::time::timeout(self.limit, call).await)
    }
}

type InTime<T> = Result<T, tokio::time::error::Elapsed>;

fn answer(result: InTime<Result<Value, SlackClientError>>) -> Result<Value, CallError> {
    match result {
        // The crate takes a 200 that is no JSON for an empty object, and looks at `error` alone.
        Ok(Ok(value)) if value["ok"] == true => Ok(value),
        Ok(Ok(_)) => Err(CallError::unclear("no_answer_of_slack")),
        Ok(Err(error)) => Err(classify(&error)),
        Err(_) => Err(CallError::unclear("timeout")),
    }
}

fn classify(error: &SlackClientError) -> CallError {
    match error {
        SlackClientError::ApiError(refusal) => CallError::Refused { code: word(&refusal.code) },
        SlackClientError::RateLimitError(limit) => {
            CallError::RateLimited { retry_after: limit.retry_after.map(|after| after.min(LONGEST_WAIT)) }
        }
        SlackClientError::HttpError(http) => {
            CallError::unclear(&format!("http_{}", http.status_code.as_u16()))
        }
        SlackClientError::HttpProtocolError(http) => {
            let cause = http.cause.as_deref().and_then(|cause| cause.downcast_ref::<HyperError>());
            if cause.is_some_and(HyperError::is_connect) {
                CallError::NotSent
            } else {
                CallError::unclear("connection_lost")
            }
        }
        SlackClientError::ProtocolError(_) => CallError::unclear("undecodable"),
        SlackClientError::EndOfStream(_)
        | SlackClientError::SystemError(_)
        | SlackClientError::SocketModeProtocolError(_) => CallError::unclear("connection_lost"),
    }
}

/// Slack's code, if it looks like one; anything else stays out of logs and rows.
fn word(code: &str) -> String {
    let is_word = (1..=80).contains(&code.len())
        && code
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-:".contains(&byte));
    if is_word { code.to_owned() } else { "unknown_error".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_is_taken_for_a_code() {
        for code in ["channel_not_found", "restricted_action:thread", "http_500"] {
            assert_eq!(word(code), code);
        }
        for code in ["", "two words", "line\nbreak", "Ünknown", &"x".repeat(81)] {
            assert_eq!(word(code), "unknown_error");
        }
    }
}
