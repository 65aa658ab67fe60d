//! Posting and editing cards, private notes and links (SLACK.md 4.4 to 4.6).
//!
//! Keeps true: a failed post says whether it can have been posted; nothing is unfurled, linked or parsed. Not for
//! retries, order or rate: the outbox has them.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::WebApi;
use super::api::CallError;
use super::blocks::{self, CardTooLarge, Content};
use crate::app::ports::{Messenger, PostError, Posted};
use crate::domain::card::Card;
use crate::domain::digest::sha256;
use crate::domain::place::Place;

/// The messenger of one installation.
pub struct SlackMessenger {
    api: Arc<WebApi>,
}

impl SlackMessenger {
    /// Speaks through this client.
    #[must_use]
    pub fn new(api: Arc<WebApi>) -> Self {
        Self { api }
    }

    async fn call(&self, method: &str, message: &Value) -> Result<Value, PostError> {
        self.api.post(method, message).await.map_err(post_error)
    }
}

#[async_trait]
impl Messenger for SlackMessenger {
    async fn post(&self, place: &Place, card: &Card, handle: &str) -> Result<Posted, PostError> {
        let content =
            blocks::posted(card, handle, &self.api.app().name).map_err(|error| too_large(&error))?;
        let mut message = message(&place.channel, &content);
        message["unfurl_links"] = json!(false);
        message["unfurl_media"] = json!(false);
        let sent = message.to_string();
        let answer = self.call("chat.postMessage", &message).await?;
        match answer["ts"].as_str() {
            Some(ts) if !ts.is_empty() => {
                Ok(Posted { message: ts.to_owned(), sha256: hex::encode(sha256(sent.as_bytes())) })
            }
            _ => Err(PostError::Ambiguous("no_ts".to_owned())),
        }
    }

    async fn edit(
        &self,
        place: &Place,
        message_ts: &str,
        card: &Card,
        handle: &str,
    ) -> Result<(), PostError> {
        let content =
            blocks::edited(card, handle, &self.api.app().name).map_err(|error| too_large(&error))?;
        let mut message = message(&place.channel, &content);
        message["ts"] = json!(message_ts);
        self.call("chat.update", &message).await.map(drop)
    }

    async fn note(&self, place: &Place, user: &str, text: &str) -> Result<(), PostError> {
        let content = Content { blocks: blocks::note(text), text: blocks::escaped(text) };
        let mut message = message(&place.channel, &content);
        message["user"] = json!(user);
        self.call("chat.postEphemeral", &message).await.map(drop)
    }

    async fn tell(&self, place: &Place, text: &str) -> Result<(), PostError> {
        let content = Content { blocks: blocks::note(text), text: blocks::escaped(text) };
        let mut message = message(&place.channel, &content);
        message["unfurl_links"] = json!(false);
        message["unfurl_media"] = json!(false);
        self.call("chat.postMessage", &message).await.map(drop)
    }

    async fn permalink(&self, place: &Place, message: &str) -> Option<String> {
        let arguments = [("channel", place.channel.as_str()), ("message_ts", message)];
        match self.api.get("chat.getPermalink", &arguments).await {
            // It is handed on to people and agents: nothing but a web address may pass.
            Ok(answer) => answer["permalink"]
                .as_str()
                .filter(|link| link.starts_with("https://"))
                .map(ToOwned::to_owned),
            Err(error) => {
                tracing::debug!(place = %place, code = error.code(), "no link of a card");
                None
            }
        }
    }
}

/// What posts, edits and notes have in common. `parse` is said each time, as chat.update's default is another.
fn message(channel: &str, content: &Content) -> Value {
    json!({
        "channel": channel,
        "text": content.text,
        "blocks": content.blocks,
        "parse": "none",
        "link_names": false,
    })
}

fn too_large(error: &CardTooLarge) -> PostError {
    tracing::warn!(%error, "a card is not sent");
    PostError::Permanent("card_too_large".to_owned())
}

/// What is known about a message after its call failed.
fn post_error(error: CallError) -> PostError {
    match error {
        CallError::Refused { code } => match code.as_str() {
            "ratelimited" | "rate_limited" | "service_unavailable" | "team_added_to_org" => {
                PostError::Transient { code, retry_after: None }
            }
            "fatal_error" | "internal_error" | "request_timeout" => PostError::Ambiguous(code),
            _ => PostError::Permanent(code),
        },
        CallError::RateLimited { retry_after } => {
            PostError::Transient { code: "ratelimited".to_owned(), retry_after }
        }
        CallError::NotSent => PostError::Transient { code: error.code().to_owned(), retry_after: None },
        CallError::Unclear { code } => PostError::Ambiguous(code),
    }
}

#[cfg(test)]
mod tests;
