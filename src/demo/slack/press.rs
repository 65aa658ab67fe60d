//! What Slack sends when somebody presses a button: the payload, its signature, and the request.

use std::net::SocketAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use sha2::Sha256;

use super::chat::message_answer;
use super::model::{Message, SlackUser, buttons};
use super::{FakeSlack, Inner};

/// Why nobody can press that button.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClickError {
    /// No such person.
    #[error("there is no user {0}")]
    NoUser(String),
    /// No such message.
    #[error("there is no message {ts} in {channel}")]
    NoMessage {
        /// Channel id.
        channel: String,
        /// The message's `ts`.
        ts: String,
    },
    /// The person does not see the channel.
    #[error("{user} is not in {channel} and sees no button there")]
    NotInChannel {
        /// User id.
        user: String,
        /// Channel id.
        channel: String,
    },
    /// The message has no such button.
    #[error("the message has no button {action_id}; it has {there:?}")]
    NoButton {
        /// The button that was looked for.
        action_id: String,
        /// Those that are there.
        there: Vec<String>,
    },
}

/// Why a press did not reach the program, or was not answered.
#[derive(Debug, thiserror::Error)]
pub enum PressError {
    /// There is nothing to press.
    #[error(transparent)]
    Click(#[from] ClickError),
    /// The address can't be used.
    #[error("the callback address is not usable")]
    Address(#[from] axum::http::Error),
    /// The program was not reached, or closed the connection.
    #[error("the callback was not answered")]
    Http(#[from] hyper_util::client::legacy::Error),
}

/// A request as Slack would send it.
#[derive(Debug, Clone)]
pub struct SignedRequest {
    /// Content type, user agent, timestamp and signature.
    pub headers: HeaderMap,
    /// The form: one field, `payload`.
    pub body: Bytes,
}

impl FakeSlack {
    /// The `block_actions` payload Slack would send for this person pressing this button of the message as it is now.
    ///
    /// # Errors
    /// [`ClickError`] when there is no such person, message or button, or the person is not in the channel.
    pub fn click_payload(
        &self,
        user: &str,
        channel: &str,
        ts: &str,
        action_id: &str,
    ) -> Result<Value, ClickError> {
        self.click(user, channel, ts, action_id, |message| message.versions.len() - 1)
    }

    /// The same for somebody whose client still shows an older version: 0 is the message as posted.
    ///
    /// # Errors
    /// As [`FakeSlack::click_payload`]; a version that is not there has no button.
    pub fn stale_click_payload(
        &self,
        user: &str,
        channel: &str,
        ts: &str,
        action_id: &str,
        version: usize,
    ) -> Result<Value, ClickError> {
        self.click(user, channel, ts, action_id, |_| version)
    }

    fn click(
        &self,
        user: &str,
        channel: &str,
        ts: &str,
        action_id: &str,
        version: impl FnOnce(&Message) -> usize,
    ) -> Result<Value, ClickError> {
        self.inner.change(|state| {
            let serial = state.next();
            let person = state.users.get(user).ok_or_else(|| ClickError::NoUser(user.to_owned()))?;
            let no_message = || ClickError::NoMessage { channel: channel.to_owned(), ts: ts.to_owned() };
            let place = state.channels.get(channel).ok_or_else(no_message)?;
            if !place.members.contains(user) {
                return Err(ClickError::NotInChannel { user: user.to_owned(), channel: channel.to_owned() });
            }
            let message =
                state.messages.iter().find(|m| m.channel == channel && m.ts == ts).ok_or_else(no_message)?;
            let mut message = message.clone();
            message.versions.truncate(version(&message) + 1);
            let shown = message.versions.last().map_or(&[][..], |version| &version.echo);
            let pressed = shown.iter().find_map(|block| {
                let button =
                    buttons(std::slice::from_ref(block)).into_iter().find(|b| b["action_id"] == action_id)?;
                Some((block, button.clone()))
            });
            let Some((block, mut action)) = pressed else {
                let there =
                    buttons(shown).iter().filter_map(|b| Some(b["action_id"].as_str()?.to_owned())).collect();
                return Err(ClickError::NoButton { action_id: action_id.to_owned(), there });
            };
            action["block_id"] = block["block_id"].clone();
            action["action_ts"] = json!(format!("{}.{serial:06}", self.inner.setup.now + i64::from(serial)));
            let channel_name = if place.private { "privategroup" } else { &place.name };
            let mut payload = envelope(&self.inner, person, serial);
            payload["container"] =
                json!({"type": "message", "message_ts": ts, "channel_id": channel, "is_ephemeral": false});
            if let Some(thread) = &message.thread_ts {
                payload["container"]["thread_ts"] = json!(thread);
            }
            payload["channel"] = json!({"id": channel, "name": channel_name});
            payload["message"] = message_answer(&self.inner, &message);
            payload["actions"] = json!([action]);
            Ok(payload)
        })
    }

    /// The payload as a form, with the signature of this second.
    #[must_use]
    pub fn sign(&self, payload: &Value, timestamp: i64) -> SignedRequest {
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("payload", &payload.to_string())
            .finish();
        self.sign_body(form.into(), timestamp)
    }

    /// Any body, signed as Slack signs: for requests that Slack would not send but somebody with the secret could.
    #[must_use]
    pub fn sign_body(&self, body: Bytes, timestamp: i64) -> SignedRequest {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-type", "application/x-www-form-urlencoded"),
            ("user-agent", "Slackbot 1.0 (+https://api.slack.com/robots)"),
            ("accept", "application/json,*/*"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers.insert("x-slack-request-timestamp", timestamp.into());
        let signature = signature(self.inner.setup.signing_secret.as_bytes(), timestamp, &body);
        // Letters, digits and `=` make a header value.
        if let Ok(value) = HeaderValue::try_from(signature) {
            headers.insert("x-slack-signature", value);
        }
        SignedRequest { headers, body }
    }

    /// Presses the button: builds the payload, signs it, and posts it as Slack does.
    ///
    /// # Errors
    /// [`PressError::Click`] when there is nothing to press; the others when the program did not answer.
    pub async fn press(
        &self,
        callback_url: &str,
        user: &str,
        channel: &str,
        ts: &str,
        action_id: &str,
        timestamp: i64,
    ) -> Result<StatusCode, PressError> {
        let payload = self.click_payload(user, channel, ts, action_id)?;
        self.send(callback_url, self.sign(&payload, timestamp)).await
    }

    /// Posts a request to the program.
    ///
    /// # Errors
    /// [`PressError::Address`] and [`PressError::Http`].
    pub async fn send(&self, callback_url: &str, request: SignedRequest) -> Result<StatusCode, PressError> {
        let mut outgoing = axum::http::Request::builder()
            .method(Method::POST)
            .uri(callback_url)
            .body(Full::new(request.body))?;
        *outgoing.headers_mut() = request.headers;
        let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        Ok(client.request(outgoing).await?.status())
    }

    /// Where the fake listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }
}

/// What every interaction carries.
fn envelope(inner: &Inner, person: &SlackUser, serial: u32) -> Value {
    let setup = &inner.setup;
    let mut team = json!({"id": setup.team_id, "domain": "acme"});
    let enterprise = setup.enterprise_id.as_ref().map(|id| {
        team["enterprise_id"] = json!(id);
        team["enterprise_name"] = json!("Acme Group");
        json!({"id": id, "name": "Acme Group"})
    });
    json!({
        "type": "block_actions",
        "user": {"id": person.id, "username": person.name, "name": person.name, "team_id": person.team_id},
        "api_app_id": setup.app_id,
        "token": "deprecated-verification-token",
        "trigger_id": format!("1000000000001.1000000000002.{serial:032x}"),
        "team": if setup.org_install { Value::Null } else { team },
        "enterprise": enterprise,
        "is_enterprise_install": setup.org_install,
        "state": {"values": {}},
        "response_url": format!("http://{}/never/{}/{serial}", inner.address, setup.team_id),
    })
}

/// `v0=` and the lower-case hexadecimal HMAC-SHA256 of `v0:timestamp:body`.
fn signature(secret: &[u8], timestamp: i64, body: &[u8]) -> String {
    // HMAC takes a key of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    mac.update(format!("v0:{timestamp}:").as_bytes());
    mac.update(body);
    format!("v0={}", hex::encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slack publishes this example with its documentation of signatures.
    #[test]
    fn the_published_vector_is_reproduced() {
        let vector: Value =
            serde_json::from_str(include_str!("../../../tests/data/slack/signing_vector.json")).unwrap();
        let text = |name: &str| vector[name].as_str().unwrap();
        let timestamp = text("timestamp").parse().unwrap();
        let made = signature(text("signing_secret").as_bytes(), timestamp, text("body").as_bytes());
        assert_eq!(made, text("signature"));
    }
}
