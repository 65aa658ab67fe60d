//! The Web API methods that undersign calls, with their documented arguments, answers and errors.

use serde_json::{Map, Value, json};

use super::blocks::{self, BlocksError};
use super::model::{BOT_ID, BOT_USER, Ephemeral, Message, SlackChannel, SlackUser, Version};
use super::{Inner, State};

/// `ok: false`, with the error's name and what Slack says about it.
#[derive(Debug)]
pub(super) struct ApiError {
    error: &'static str,
    messages: Vec<String>,
}

impl ApiError {
    pub(super) fn new(error: &'static str) -> Self {
        Self { error, messages: Vec::new() }
    }

    pub(super) fn because(error: &'static str, message: String) -> Self {
        Self { error, messages: vec![message] }
    }

    pub(super) fn into_answer(self) -> Value {
        if self.messages.is_empty() {
            return json!({"ok": false, "error": self.error});
        }
        let marked: Vec<String> = self.messages.iter().map(|m| format!("[ERROR] {m}")).collect();
        json!({
            "ok": false, "error": self.error, "errors": self.messages, "response_metadata": {"messages": marked},
        })
    }
}

impl From<BlocksError> for ApiError {
    fn from(error: BlocksError) -> Self {
        match error {
            BlocksError::Invalid(messages) => Self { error: "invalid_blocks", messages },
            BlocksError::TooLong => Self::new("msg_blocks_too_long"),
        }
    }
}

type Arguments = Map<String, Value>;
type Answer = Result<Value, ApiError>;

/// Whether the method's arguments come as a JSON body.
pub(super) fn writes(method: &str) -> bool {
    matches!(method, "chat.postMessage" | "chat.update" | "chat.postEphemeral")
}

pub(super) fn call(inner: &Inner, method: &str, arguments: &Arguments) -> Answer {
    match method {
        "auth.test" => auth_test(inner, arguments),
        "bots.info" => bots_info(inner, arguments),
        "users.info" => users_info(inner, arguments),
        "usergroups.users.list" => usergroups_users_list(inner, arguments),
        "chat.postMessage" => post_message(inner, arguments),
        "chat.update" => update(inner, arguments),
        "chat.postEphemeral" => post_ephemeral(inner, arguments),
        "chat.getPermalink" => get_permalink(inner, arguments),
        _ => Err(ApiError::new("unknown_method")),
    }
}

fn auth_test(inner: &Inner, arguments: &Arguments) -> Answer {
    only(arguments, &[], &[])?;
    let setup = &inner.setup;
    let mut answer = json!({
        "ok": true, "url": "https://acme.slack.com/", "team": "Acme", "user": "undersign", "team_id": setup.team_id,
        "user_id": BOT_USER, "bot_id": BOT_ID, "is_enterprise_install": setup.org_install,
    });
    if let Some(enterprise) = &setup.enterprise_id {
        answer["enterprise_id"] = json!(enterprise);
    }
    Ok(answer)
}

fn bots_info(inner: &Inner, arguments: &Arguments) -> Answer {
    only(arguments, &["bot"], &["team_id"])?;
    if arguments["bot"] != BOT_ID {
        return Err(ApiError::new("bot_not_found"));
    }
    Ok(json!({
        "ok": true,
        "bot": {
            "id": BOT_ID, "deleted": false, "name": "undersign", "updated": 1_700_000_000, "user_id": BOT_USER,
            "app_id": inner.setup.app_id, "icons": icons(),
        },
    }))
}

fn users_info(inner: &Inner, arguments: &Arguments) -> Answer {
    only(arguments, &["user"], &["include_locale"])?;
    let state = inner.state();
    let user = state.users.get(string(arguments, "user")).ok_or(ApiError::new("user_not_found"))?;
    Ok(json!({"ok": true, "user": user_answer(user)}))
}

fn user_answer(user: &SlackUser) -> Value {
    let mut answer = json!({
        "id": user.id, "team_id": user.team_id, "name": user.name, "real_name": user.name, "color": "9f69e7",
        "tz": "Europe/Berlin", "tz_label": "Central European Time", "tz_offset": 3600, "updated": 1_700_000_000,
        "deleted": user.deleted, "is_bot": user.is_bot, "is_app_user": user.is_app_user,
        "is_workflow_bot": user.is_workflow_bot, "is_connector_bot": user.is_connector_bot,
        "is_restricted": user.is_restricted, "is_ultra_restricted": user.is_ultra_restricted,
        "is_admin": false, "is_owner": false, "is_primary_owner": false, "is_email_confirmed": true,
        "who_can_share_contact_card": "EVERYONE",
        // An empty list where others have an object: Slack answers so for some people.
        "profile": {"real_name": user.name, "display_name": user.name, "team": user.team_id, "fields": []},
    });
    if let Some(stranger) = user.is_stranger {
        answer["is_stranger"] = json!(stranger);
    }
    if let Some(fields) = answer.as_object_mut() {
        fields.retain(|name, _| !user.without.contains(name));
    }
    answer
}

fn usergroups_users_list(inner: &Inner, arguments: &Arguments) -> Answer {
    only(arguments, &["usergroup"], &["include_disabled", "team_id"])?;
    let team = arguments.get("team_id").and_then(Value::as_str);
    if inner.setup.org_install && team.is_none() {
        return Err(ApiError::because(
            "missing_argument",
            "team_id is needed with an organisation's token".to_owned(),
        ));
    }
    if team.is_some_and(|team| team != inner.setup.team_id) {
        return Err(ApiError::new("team_not_found"));
    }
    let disabled_too = match arguments.get("include_disabled").and_then(Value::as_str) {
        None | Some("false" | "0") => false,
        Some("true" | "1") => true,
        Some(_) => {
            return Err(ApiError::because("invalid_arguments", "include_disabled is no boolean".to_owned()));
        }
    };
    let state = inner.state();
    let group =
        state.usergroups.get(string(arguments, "usergroup")).ok_or(ApiError::new("no_such_subteam"))?;
    let people: &[String] = if group.disabled && !disabled_too { &[] } else { &group.users };
    Ok(json!({"ok": true, "users": people}))
}

fn post_message(inner: &Inner, arguments: &Arguments) -> Answer {
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

fn update(inner: &Inner, arguments: &Arguments) -> Answer {
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

fn post_ephemeral(inner: &Inner, arguments: &Arguments) -> Answer {
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

fn get_permalink(inner: &Inner, arguments: &Arguments) -> Answer {
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

/// All of the required and none but the optional arguments.
fn only(arguments: &Arguments, required: &[&str], optional: &[&str]) -> Result<(), ApiError> {
    for name in required {
        match arguments.get(*name) {
            Some(Value::String(text)) if !text.is_empty() => {}
            Some(_) => {
                return Err(ApiError::because("invalid_arguments", format!("{name} must be a string")));
            }
            None => {
                return Err(ApiError::because(
                    "invalid_arguments",
                    format!("missing required field: {name}"),
                ));
            }
        }
    }
    match arguments
        .keys()
        .find(|name| !required.contains(&name.as_str()) && !optional.contains(&name.as_str()))
    {
        Some(name) => {
            Err(ApiError::because("invalid_arguments", format!("invalid additional property: {name}")))
        }
        None => Ok(()),
    }
}

fn flags(arguments: &Arguments, names: &[&str]) -> Result<(), ApiError> {
    match names.iter().find(|name| arguments.get(**name).is_some_and(|v| !v.is_boolean())) {
        Some(name) => Err(ApiError::because("invalid_arguments", format!("{name} must be a boolean"))),
        None => Ok(()),
    }
}

fn string<'a>(arguments: &'a Arguments, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or_default()
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

fn icons() -> Value {
    json!({
        "image_36": "https://example.com/36.png", "image_48": "https://example.com/48.png",
        "image_72": "https://example.com/72.png",
    })
}
