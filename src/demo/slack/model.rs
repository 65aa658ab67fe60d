//! What the fake workspace holds: people, groups, channels, messages, and what was asked of it.

use std::collections::BTreeSet;

use axum::http::Method;
use serde_json::Value;

use crate::demo::gate::Gate;

/// The workspace to play.
#[derive(Clone)]
pub struct SlackSetup {
    /// `A…` id of the installed app.
    pub app_id: String,
    /// `T…` id of the workspace it is installed in.
    pub team_id: String,
    /// `E…` id of the organisation, on Enterprise Grid.
    pub enterprise_id: Option<String>,
    /// Installed for the whole organisation: payloads have `team: null`, and `team_id` must be sent where Slack asks.
    pub org_install: bool,
    /// The token that every Web API call must carry.
    pub bot_token: String,
    /// The secret that interactions are signed with.
    pub signing_secret: String,
    /// Unix seconds of the first message's `ts`; handed in, so that a later run's messages are others.
    pub now: i64,
    /// Channels; the bot is in those that list [`BOT_USER`].
    pub channels: Vec<SlackChannel>,
    /// People, and bots that are asked about.
    pub users: Vec<SlackUser>,
    /// User groups.
    pub usergroups: Vec<SlackUsergroup>,
}

/// The user id of the app's bot.
pub const BOT_USER: &str = "U0BOT00001";

/// The bot id of the app's bot.
pub const BOT_ID: &str = "B0BOT00001";

/// A channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlackChannel {
    /// `C…` id.
    pub id: String,
    /// Name without `#`.
    pub name: String,
    /// Payloads call a private channel `privategroup`.
    pub private: bool,
    /// Archived channels take no message.
    pub archived: bool,
    /// User ids; the bot's among them if it was invited.
    pub members: BTreeSet<String>,
}

impl SlackChannel {
    /// A public channel with the bot and these people in it.
    #[must_use]
    pub fn new(id: &str, name: &str, people: &[&str]) -> Self {
        let members = people.iter().chain(&[BOT_USER]).map(ToString::to_string).collect();
        Self { id: id.to_owned(), name: name.to_owned(), private: false, archived: false, members }
    }
}

/// A person, with all flags that decide whether they count as one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "these are Slack's own flags, each independent of the others"
)]
pub struct SlackUser {
    /// `U…` id.
    pub id: String,
    /// User name.
    pub name: String,
    /// Home workspace.
    pub team_id: String,
    /// Deactivated.
    pub deleted: bool,
    /// A bot.
    pub is_bot: bool,
    /// The user of an app.
    pub is_app_user: bool,
    /// The user of a workflow.
    pub is_workflow_bot: bool,
    /// The user of a connector.
    pub is_connector_bot: bool,
    /// Guest in several channels.
    pub is_restricted: bool,
    /// Guest in one channel.
    pub is_ultra_restricted: bool,
    /// From another organisation; normally not in the answer at all.
    pub is_stranger: Option<bool>,
    /// Fields to leave out of the answer of users.info.
    pub without: Vec<String>,
}

impl SlackUser {
    /// A full member of the workspace.
    #[must_use]
    pub fn member(id: &str, name: &str, team_id: &str) -> Self {
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            team_id: team_id.to_owned(),
            deleted: false,
            is_bot: false,
            is_app_user: false,
            is_workflow_bot: false,
            is_connector_bot: false,
            is_restricted: false,
            is_ultra_restricted: false,
            is_stranger: None,
            without: Vec::new(),
        }
    }
}

/// A user group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlackUsergroup {
    /// `S…` id.
    pub id: String,
    /// User ids.
    pub users: Vec<String>,
    /// A disabled group is empty to whoever does not ask for disabled ones.
    pub disabled: bool,
}

impl SlackUsergroup {
    /// An enabled group of these people.
    #[must_use]
    pub fn new(id: &str, people: &[&str]) -> Self {
        Self { id: id.to_owned(), users: people.iter().map(ToString::to_string).collect(), disabled: false }
    }
}

/// What a message said at one time: as posted, then after each edit.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    /// The fallback text, as sent.
    pub text: String,
    /// The blocks, as sent by the app.
    pub blocks: Vec<Value>,
    /// The blocks as Slack gives them back: with `block_id`s, defaults filled in, and `<>&` escaped.
    pub echo: Vec<Value>,
    /// The effective `parse`: `none` unless said otherwise when posting, but `client` when editing.
    pub parse: String,
}

/// A message in a channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Channel id.
    pub channel: String,
    /// Slack's id of it.
    pub ts: String,
    /// The message it answers, in a thread.
    pub thread_ts: Option<String>,
    /// Every version, oldest first; never empty.
    pub versions: Vec<Version>,
    /// Its current fallback text.
    pub text: String,
    /// Its current blocks, as sent by the app.
    pub blocks: Vec<Value>,
}

impl Message {
    /// The `action_id`s of the buttons it has now.
    #[must_use]
    pub fn buttons(&self) -> Vec<String> {
        buttons(&self.blocks).iter().filter_map(|b| Some(b["action_id"].as_str()?.to_owned())).collect()
    }

    /// It as text for a terminal; see [`super::text_of`].
    #[must_use]
    pub fn as_text(&self) -> String {
        super::text_of(&self.blocks)
    }
}

/// All buttons of some blocks.
pub(super) fn buttons(blocks: &[Value]) -> Vec<&Value> {
    let in_actions = blocks.iter().filter_map(|b| b["elements"].as_array()).flatten();
    let beside = blocks.iter().filter_map(|b| b.get("accessory"));
    in_actions.chain(beside).filter(|e| e["type"] == "button").collect()
}

/// A note that one person saw.
#[derive(Debug, Clone, PartialEq)]
pub struct Ephemeral {
    /// Channel id.
    pub channel: String,
    /// The one person.
    pub user: String,
    /// Its text.
    pub text: String,
    /// Its blocks.
    pub blocks: Vec<Value>,
}

/// A call of the Web API, as received. The token is not kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The API method: `chat.postMessage`.
    pub method: String,
    /// The HTTP method.
    pub http_method: Method,
    /// The JSON body, or the query as an object of strings.
    pub arguments: Value,
    /// What was answered, unless a fault answered instead.
    pub answer: Option<Value>,
}

/// How a call goes wrong. The first group leaves no trace in the workspace; the second happens *after* the effect,
/// which is what makes a post ambiguous.
#[derive(Debug, Clone)]
pub enum Fault {
    /// 429 with `Retry-After` in seconds.
    RateLimited(u64),
    /// This HTTP status, with a body that is not JSON.
    Http(u16),
    /// 200 with `ok: false` and this error.
    Error(String),
    /// The connection ends without an answer, and nothing happened.
    Drop,
    /// Waits at the gate, then does the call as usual.
    Hang(Gate),
    /// Does the call, then ends the connection without an answer.
    DropAfter,
    /// Does the call, then answers 200 with a body that is not JSON.
    GarbageAfter,
    /// Does the call, then waits at the gate before it answers.
    HangAfter(Gate),
    /// Does the call, then answers 200 with `ok: false` and this error: `fatal_error` may have posted.
    ErrorAfter(String),
}
