//! Posting, editing and linking messages: the chat methods, with what Slack checks about a message.

use serde_json::{Value, json};

use super::blocks;
use super::methods::{Answer, ApiError, Arguments, flags, icons, only, string};
use super::model::{BOT_ID, BOT_USER, Ephemeral, Message, SlackChannel, Version};
use super::{Inner, State};

pub(super) fn post_message(inner: &Inner, arguments: &Arguments) -> Answer {
    const FLAGS: &[&str] = &["link_names", "mrkdwn", "reply_broadcast", "unfurl_links", "unfurl_media"];
    only(arguments, &["channel"], &[&["text", "blocks", "parse", "thread_ts"], FLAGS].concat())?;
    flags(arguments, FLAGS)?;
    let content = content(arguments, "none", &["none", "full"])?;
    inner.change(|state| {
        let channel = open_channel(state, arguments, "is_archived")?.id.clone();
        let thread_ts = arguments.get("thread_ts").and_then(Value::as_str).map(ToOwned::to_owned);
        if let Some(thread) = &thread_ts
            && !state.messages.iter().any(|m| m.channel == channel && m.ts == *thread)
        {
            return Err(ApiError::new("thread_not_found"));
        }
        let serial = state.next();
        let message = Message {
            channel,
            ts: inner.ts(serial),
            thread_ts,
            text: content.text.clone(),
            blocks: content.blocks.clone(),
            versions: vec![content.version(serial)],
        };
        let answer = json!({
            "ok": true, "channel": message.channel, "ts": message.ts, "message": message_answer(inner, &message),
        });
        state.messages.push(message);
        Ok(answer)
    })
}

pub(super) fn update(inner: &Inner, arguments: &Arguments) -> Answer {
    only(arguments, &["channel", "ts"], &["text", "blocks", "parse", "link_names"])?;
    flags(arguments, &["link_names"])?;
    let content = content(arguments, "client", &["none", "full", "client"])?;
    inner.change(|state| {
        let channel = open_channel(state, arguments, "is_inactive")?.id.clone();
        let serial = state.next();
        let ts = string(arguments, "ts");
        let found = state.messages.iter_mut().find(|m| m.channel == channel && m.ts == ts);
        let message = found.ok_or(ApiError::new("message_not_found"))?;
        let mut version = content.version(serial);
        if arguments.contains_key("blocks") {
            let rich = |blocks: &[Value]| blocks.iter().any(|b| b["type"] == "rich_text");
            if rich(&message.blocks) && !rich(&version.blocks) {
                return Err(ApiError::new("block_mismatch"));
            }
        } else if let Some(last) = message.versions.last() {
            // As Slack does: an edit of the text alone leaves the blocks, and so shows nothing.
            version.blocks.clone_from(&last.blocks);
            version.echo.clone_from(&last.echo);
        }
        message.text.clone_from(&version.text);
        message.blocks.clone_from(&version.blocks);
        message.versions.push(version);
        let mut shown = message_answer(inner, message);
        shown["edited"] = json!({"user": BOT_USER, "ts": inner.ts(serial)});
        Ok(json!({"ok": true, "channel": channel, "ts": message.ts, "text": message.text, "message": shown}))
    })
}

pub(super) fn post_ephemeral(inner: &Inner, arguments: &Arguments) -> Answer {
    only(arguments, &["channel", "user"], &["text", "blocks", "parse", "thread_ts", "link_names"])?;
    flags(arguments, &["link_names"])?;
    let content = content(arguments, "none", &["none", "full"])?;
    inner.change(|state| {
        let user = string(arguments, "user");
        let channel = open_channel(state, arguments, "is_archived")?;
        if !channel.members.contains(user) {
            return Err(ApiError::new("user_not_in_channel"));
        }
        let channel = channel.id.clone();
        let serial = state.next();
        let note = Ephemeral { channel, user: user.to_owned(), text: content.text, blocks: content.blocks };
        state.ephemerals.push(note);
        Ok(json!({"ok": true, "message_ts": inner.ts(serial)}))
    })
}

pub(super) fn get_permalink(inner: &Inner, arguments: &Arguments) -> Answer {
    only(arguments, &["channel", "message_ts"], &[])?;
    let (channel, ts) = (string(arguments, "channel"), string(arguments, "message_ts"));
    let state = inner.state();
    let found = state.channels.get(channel).ok_or(ApiError::new("channel_not_found"))?;
    let message = state.messages.iter().find(|m| m.channel == found.id && m.ts == ts);
    let message = message.ok_or(ApiError::new("message_not_found"))?;
    let thread =
        message.thread_ts.as_ref().map_or(String::new(), |t| format!("?thread_ts={t}&cid={channel}"));
    let permalink = format!("https://acme.slack.com/archives/{channel}/p{}{thread}", ts.replace('.', ""));
    Ok(json!({"ok": true, "channel": channel, "permalink": permalink}))
}

/// What a message says.
struct Content {
    text: String,
    blocks: Vec<Value>,
    parse: String,
}

impl Content {
    fn version(&self, serial: u32) -> Version {
        Version {
            text: self.text.clone(),
            blocks: self.blocks.clone(),
            echo: blocks::echo(&self.blocks, serial),
            parse: self.parse.clone(),
        }
    }
}

fn content(arguments: &Arguments, parse: &str, parses: &[&str]) -> Result<Content, ApiError> {
    let text = match arguments.get("text") {
        None => "",
        Some(Value::String(text)) => text,
        Some(_) => return Err(ApiError::because("invalid_arguments", "text must be a string".to_owned())),
    };
    if text.chars().count() > 40_000 {
        return Err(ApiError::new("msg_too_long"));
    }
    let blocks = arguments.get("blocks").map(blocks::check).transpose()?.unwrap_or_default();
    if text.is_empty() && blocks.is_empty() {
        return Err(ApiError::new("no_text"));
    }
    let parse = match arguments.get("parse") {
        None => parse,
        Some(value) => value.as_str().filter(|value| parses.contains(value)).ok_or_else(|| {
            ApiError::because("invalid_arguments", format!("parse must be one of {parses:?}"))
        })?,
    };
    Ok(Content { text: text.to_owned(), blocks, parse: parse.to_owned() })
}

/// The channel, if the bot may write there.
fn open_channel<'a>(
    state: &'a State,
    arguments: &Arguments,
    when_archived: &'static str,
) -> Result<&'a SlackChannel, ApiError> {
    let channel =
        state.channels.get(string(arguments, "channel")).ok_or(ApiError::new("channel_not_found"))?;
    if channel.archived {
        return Err(ApiError::new(when_archived));
    }
    if !channel.members.contains(BOT_USER) {
        // A private channel that the bot is not in does not exist for it.
        return Err(ApiError::new(if channel.private { "channel_not_found" } else { "not_in_channel" }));
    }
    Ok(channel)
}

/// The message as Slack gives it back.
pub(super) fn message_answer(inner: &Inner, message: &Message) -> Value {
    let last = message.versions.last();
    let mut answer = json!({
        "type": "message", "user": BOT_USER, "bot_id": BOT_ID, "app_id": inner.setup.app_id,
        "text": message.text, "ts": message.ts, "team": inner.setup.team_id,
        "bot_profile": {
            "id": BOT_ID, "app_id": inner.setup.app_id, "user_id": BOT_USER, "name": "undersign", "icons": icons(),
            "deleted": false, "updated": 1_700_000_000, "team_id": inner.setup.team_id,
        },
    });
    if let Some(version) = last.filter(|version| !version.echo.is_empty()) {
        answer["blocks"] = json!(version.echo);
    }
    if let Some(thread) = &message.thread_ts {
        answer["thread_ts"] = json!(thread);
    }
    answer
}
