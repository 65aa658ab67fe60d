//! The Web API methods that undersign calls, with their documented arguments, answers and errors.

use serde_json::{Map, Value, json};

use super::blocks::BlocksError;
use super::model::{BOT_ID, BOT_USER, SlackUser};
use super::{Inner, chat};

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

pub(super) type Arguments = Map<String, Value>;
pub(super) type Answer = Result<Value, ApiError>;

/// Whether the method's arguments come as a JSON body.
pub(super) fn writes(method: &str) -> bool {
    matches!(method, "chat.postMessage" | "chat.update" | "chat.postEphemeral")
}

pub(super) fn call(inner: &Inner, method: &str, arguments: &Arguments) -> Answer {
    match method {
        "auth.test" => auth_test(inner, arguments),
        "bots.info" => bots_info(inner, arguments),
        "users.info" => users_info(inner, arguments),
        "conversations.info" => conversations_info(inner, arguments),
        "usergroups.users.list" => usergroups_users_list(inner, arguments),
        "chat.postMessage" => chat::post_message(inner, arguments),
        "chat.update" => chat::update(inner, arguments),
        "chat.postEphemeral" => chat::post_ephemeral(inner, arguments),
        "chat.getPermalink" => chat::get_permalink(inner, arguments),
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

fn conversations_info(inner: &Inner, arguments: &Arguments) -> Answer {
    only(arguments, &["channel"], &["include_locale", "include_num_members"])?;
    let state = inner.state();
    let found = state.channels.get(string(arguments, "channel"));
    // A private channel that the bot is not in does not exist for it.
    let found = found.filter(|channel| !channel.private || channel.members.contains(BOT_USER));
    let channel = found.ok_or(ApiError::new("channel_not_found"))?;
    Ok(json!({
        "ok": true,
        "channel": {
            "id": channel.id, "name": channel.name, "is_channel": true, "is_private": channel.private,
            "is_archived": channel.archived, "is_member": channel.members.contains(BOT_USER),
        },
    }))
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

/// All of the required and none but the optional arguments.
pub(super) fn only(arguments: &Arguments, required: &[&str], optional: &[&str]) -> Result<(), ApiError> {
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

pub(super) fn flags(arguments: &Arguments, names: &[&str]) -> Result<(), ApiError> {
    match names.iter().find(|name| arguments.get(**name).is_some_and(|v| !v.is_boolean())) {
        Some(name) => Err(ApiError::because("invalid_arguments", format!("{name} must be a boolean"))),
        None => Ok(()),
    }
}

pub(super) fn string<'a>(arguments: &'a Arguments, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn icons() -> Value {
    json!({
        "image_36": "https://example.com/36.png", "image_48": "https://example.com/48.png",
        "image_72": "https://example.com/72.png",
    })
}
