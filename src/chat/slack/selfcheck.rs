//! Asks Slack whether an installation is what the configuration says, without posting anything (SLACK.md 7.3).
//!
//! Every answer that is no good says what to do about it.

use std::collections::BTreeSet;
use std::io;

use serde::Deserialize as _;
use serde_json::Value;

use super::api::CallError;
use super::directory::{Person, person};
use super::{SlackApp, WebApi};
use crate::app::ports::AccountStanding;

/// Questions to one installation.
pub struct SelfCheck {
    api: WebApi,
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// As it should be.
    Good(String),
    /// Slack does not say.
    Unknown(String),
    /// Not as it should be.
    Bad(String),
}

impl SelfCheck {
    /// Asks with the installation's own token.
    ///
    /// # Errors
    /// The system has no certificate authorities to trust.
    pub fn new(app: &SlackApp) -> io::Result<Self> {
        Ok(Self { api: WebApi::new(app)? })
    }

    /// Whether the token is of the configured app in the configured workspace: what is otherwise.
    ///
    /// # Errors
    /// Slack can't be asked at all: why, and what to do.
    pub async fn identity(&self) -> Result<Vec<String>, String> {
        let answer = self.api.get("auth.test", &[]).await.map_err(|error| {
            let code = error.code();
            match &error {
                CallError::Refused { .. } => format!(
                    "Slack refuses bot_token ({code}): copy it again from \"OAuth & Permissions\" of the app, after \
                     installing it"
                ),
                _ => format!(
                    "Slack can't be asked ({code}): see that https requests to api_url leave this machine"
                ),
            }
        })?;
        let app = self.api.app();
        let mut remarks = Vec::new();
        if answer["team_id"] != app.team_id.as_str() && answer["team_id"].is_string() {
            remarks.push(format!(
                "bot_token is of the workspace {}, and team_id says {}: correct team_id, or take the token of that \
                 workspace",
                text(&answer["team_id"]),
                app.team_id
            ));
        }
        let enterprise = answer["enterprise_id"].as_str().filter(|id| !id.is_empty());
        if enterprise != app.enterprise_id.as_deref() {
            remarks.push(match enterprise {
                Some(id) => format!(
                    "the workspace belongs to an organisation: add enterprise_id = \"{}\"",
                    text(&Value::from(id))
                ),
                None => "the workspace belongs to no organisation: remove enterprise_id".to_owned(),
            });
        }
        let bot = answer["bot_id"].as_str().unwrap_or_default();
        match self.api.get("bots.info", &[("bot", bot)]).await {
            Ok(answer) if answer["bot"]["app_id"] == app.app_id.as_str() => {}
            Ok(answer) => remarks.push(format!(
                "bot_token is of the app {}, and app_id says {}: correct app_id (\"Basic Information\" shows it), or \
                 take that app's token",
                text(&answer["bot"]["app_id"]),
                app.app_id
            )),
            Err(error) => remarks.push(format!("which app the token is of can't be asked: {}", advice(&error, "users:read"))),
        }
        Ok(remarks)
    }

    /// Whether the bot can post to a channel.
    pub async fn channel(&self, channel: &str) -> Answered {
        const INVITE: &str = "invite it there with /invite";
        match self.api.get("conversations.info", &[("channel", channel)]).await {
            Ok(answer) if answer["channel"]["is_archived"] == true => {
                Answered::Bad("is archived: unarchive it, or name another channel in post_to".to_owned())
            }
            Ok(answer) if answer["channel"]["is_member"] == true => {
                Answered::Good("the bot is in it".to_owned())
            }
            Ok(_) => Answered::Bad(format!("the bot is not in it: {INVITE}")),
            Err(CallError::Refused { code }) if code == "channel_not_found" => no_channel(),
            // A scope that the manifest leaves out: the address of a message that is not there tells as much as can be.
            Err(CallError::Refused { code }) if code == "missing_scope" => {
                match self
                    .api
                    .get("chat.getPermalink", &[("channel", channel), ("message_ts", "1.000001")])
                    .await
                {
                    Err(CallError::Refused { code }) if code == "channel_not_found" => no_channel(),
                    Err(CallError::Refused { code }) if code == "message_not_found" => {
                        Answered::Unknown(format!(
                            "is there; whether the bot is in it can't be asked without the scope channels:read (groups:read \
                         for a private one): if cards don't arrive, {INVITE}"
                        ))
                    }
                    Ok(_) => Answered::Good("is there".to_owned()),
                    Err(error) => Answered::Bad(advice(&error, "chat:write")),
                }
            }
            Err(error) => Answered::Bad(advice(&error, "channels:read")),
        }
    }

    /// The members of a user group.
    ///
    /// # Errors
    /// There is no such group, or it can't be asked about: what to do.
    pub async fn members(&self, group: &str) -> Result<BTreeSet<String>, String> {
        let app = self.api.app();
        let mut arguments = vec![("usergroup", group), ("include_disabled", "false")];
        if app.enterprise_id.is_some() {
            arguments.push(("team_id", &app.team_id));
        }
        match self.api.get("usergroups.users.list", &arguments).await {
            Ok(answer) => {
                BTreeSet::deserialize(&answer["users"]).map_err(|_| "Slack's answer can't be read".to_owned())
            }
            Err(CallError::Refused { code }) if code == "no_such_subteam" => {
                Err("there is none: correct the id in slack_usergroups (the group's menu in Slack copies it)"
                    .to_owned())
            }
            Err(CallError::Refused { code }) if code == "plan_upgrade_required" => {
                Err("user groups need a paid plan of Slack: name people instead".to_owned())
            }
            Err(error) => Err(advice(&error, "usergroups:read")),
        }
    }

    /// What an account is.
    ///
    /// # Errors
    /// It can't be asked about: what to do.
    pub async fn account(&self, user: &str) -> Result<AccountStanding, String> {
        match self.api.get("users.info", &[("user", user)]).await {
            Ok(answer) => Ok(match person(&answer["user"], user) {
                Person::MemberOf(team) if self.api.app().is_home(&team) => AccountStanding::Member,
                Person::MemberOf(_) | Person::Nobody => AccountStanding::Outsider,
            }),
            Err(CallError::Refused { code }) if code == "user_not_found" || code == "user_not_visible" => {
                Ok(AccountStanding::Outsider)
            }
            Err(error) => Err(advice(&error, "users:read")),
        }
    }
}

fn no_channel() -> Answered {
    let message = "there is no such channel, or it is private and the bot is not in it: correct the id in post_to, or \
                   invite the bot there with /invite";
    Answered::Bad(message.to_owned())
}

/// What to do about a call that brought no answer.
fn advice(error: &CallError, scope: &str) -> String {
    match error {
        CallError::Refused { code } if code == "missing_scope" => {
            format!(
                "the app lacks the bot scope {scope}: add it under \"OAuth & Permissions\", and install the app again"
            )
        }
        CallError::RateLimited { .. } => {
            "Slack asks for patience (ratelimited): try again in a minute".to_owned()
        }
        _ => format!(
            "Slack does not answer this ({}): try again, and look at Slack's status if it stays",
            error.code()
        ),
    }
}

/// An id of Slack's, if it looks like one.
fn text(value: &Value) -> &str {
    let id = value.as_str().unwrap_or_default();
    if id.len() < 40 && id.chars().all(|c| c.is_ascii_alphanumeric()) { id } else { "(unreadable)" }
}
