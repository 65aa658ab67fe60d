//! What a verified interaction says: a press of one of our buttons, or nothing that concerns us (SLACK.md 2.2 to 2.6).
//!
//! Keeps true: the payload is looked at only after its signature; only the fields that matter are read, so that what
//! Slack adds or leaves out elsewhere breaks nothing; what is kept of it is plain ASCII of bounded length. Not for
//! deciding, and nothing of a payload is logged: it carries a bearer `response_url`.

use std::fmt::Write as _;

use http::HeaderMap;
use serde::Deserialize;

use super::verify::verify;
use super::{Rejection, SlackApp};
use crate::chat::Verified;
use crate::domain::digest::sha256;
use crate::domain::place::{Account, Platform};
use crate::domain::press::{Press, Verdict};

/// The longest id or handle that is taken; Slack's and ours are all much shorter.
const LONGEST_ID: usize = 200;

/// What an accepted callback comes to. Either way the answer is 200 with an empty body.
#[derive(Debug)]
pub enum Reading {
    /// Somebody pressed one of our buttons.
    Press(Verified<Press>),
    /// Nothing that has an effect: another kind of interaction, another button, or a press without an actor.
    Ignore,
}

/// Checks and reads a callback that came to the path of this app, at `now` in Unix seconds.
///
/// # Errors
/// The first of [`Rejection`]'s reasons, in the order of SLACK.md 2.2.
pub fn receive(app: &SlackApp, headers: &HeaderMap, body: &[u8], now: i64) -> Result<Reading, Rejection> {
    let press = verify(&app.signing_secrets, headers, body, now)?.read(|form| press(app, form))?;
    Ok(press.present().map_or(Reading::Ignore, Reading::Press))
}

/// The press in a verified form, if there is one.
fn press(app: &SlackApp, form: &str) -> Result<Option<Press>, Rejection> {
    let mut payloads = url::form_urlencoded::parse(form.as_bytes()).filter(|(name, _)| name == "payload");
    let (Some((_, payload)), None) = (payloads.next(), payloads.next()) else {
        return Err(Rejection::Malformed);
    };
    // serde would take an array for a struct.
    if !payload.trim_start().starts_with('{') {
        return Err(Rejection::Malformed);
    }
    let envelope: Envelope = read(&payload)?;
    if !envelope.is_for(app) {
        return Err(Rejection::Foreign);
    }
    match envelope.kind.as_deref() {
        Some("block_actions") => {}
        Some(_) => return Ok(None),
        None => return Err(Rejection::Malformed),
    }
    let actions: BlockActions = read(&payload)?;
    let Some([action]) = actions.actions.as_deref() else {
        return Err(Rejection::Malformed);
    };
    Ok(actions.press(app, envelope.scope(), action))
}

fn read<'de, T: Deserialize<'de>>(payload: &'de str) -> Result<T, Rejection> {
    serde_json::from_str(payload).map_err(|_| Rejection::Malformed)
}

/// What every interaction has.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Envelope {
    #[serde(rename = "type")]
    kind: Option<String>,
    api_app_id: Option<String>,
    team: Option<Team>,
    enterprise: Option<Id>,
}

#[derive(Default, Deserialize)]
struct Team {
    id: Option<String>,
    enterprise_id: Option<String>,
}

#[derive(Default, Deserialize)]
struct Id {
    id: Option<String>,
}

impl Envelope {
    fn team(&self) -> Option<&str> {
        self.team.as_ref()?.id.as_deref()
    }

    fn enterprises(&self) -> impl Iterator<Item = &str> {
        let of_team = self.team.as_ref().and_then(|team| team.enterprise_id.as_deref());
        let own = self.enterprise.as_ref().and_then(|enterprise| enterprise.id.as_deref());
        of_team.into_iter().chain(own)
    }

    /// Whether app, workspace and organisation are this installation's. Only an installation for the whole
    /// organisation has no workspace.
    fn is_for(&self, app: &SlackApp) -> bool {
        let enterprise = app.enterprise_id.as_deref();
        let same_enterprise = match self.enterprises().next() {
            Some(_) => self.enterprises().all(|id| enterprise == Some(id)),
            None => enterprise.is_none(),
        };
        let same_team = match self.team() {
            Some(team) => team == app.team_id,
            None => enterprise.is_some(),
        };
        self.api_app_id.as_deref() == Some(app.app_id.as_str()) && same_enterprise && same_team
    }

    /// What makes user ids unique, for the callback's id.
    fn scope(&self) -> &str {
        self.team().or_else(|| self.enterprises().next()).unwrap_or_default()
    }
}

/// What a press of a button in a message has.
#[derive(Default, Deserialize)]
#[serde(default)]
struct BlockActions {
    user: Option<User>,
    container: Option<Container>,
    channel: Option<Id>,
    actions: Option<Vec<Action>>,
}

#[derive(Default, Deserialize)]
struct User {
    id: Option<String>,
    team_id: Option<String>,
}

#[derive(Default, Deserialize)]
struct Container {
    message_ts: Option<String>,
    channel_id: Option<String>,
}

#[derive(Default, Deserialize)]
struct Action {
    #[serde(rename = "action_id")]
    id: Option<String>,
    value: Option<String>,
    #[serde(rename = "action_ts")]
    ts: Option<String>,
}

impl BlockActions {
    /// The press, unless it is of no button of ours or says not who pressed what where.
    fn press(&self, app: &SlackApp, scope: &str, action: &Action) -> Option<Press> {
        let action_id = action.id.as_deref()?;
        let verdict = match action_id {
            "undersign_approve" => Verdict::Approve,
            "undersign_deny" | "undersign_revoke" => Verdict::Deny,
            _ => return None,
        };
        let person = self.user.as_ref()?;
        let user = id(person.id.as_deref())?;
        let handle = id(action.value.as_deref())?;
        let action_ts = id(action.ts.as_deref())?;
        let container = self.container.as_ref()?;
        let message = id(container.message_ts.as_deref())?;
        let channels = [
            container.channel_id.as_deref(),
            self.channel.as_ref().and_then(|channel| channel.id.as_deref()),
        ];
        let channel = id(channels.into_iter().flatten().next())?;
        if channels.into_iter().flatten().any(|other| other != channel) {
            return None;
        }
        Some(Press {
            callback_id: callback_id(&[scope, user, action_ts, action_id, handle]),
            handle: handle.to_owned(),
            verdict,
            account: Account {
                platform: Platform::Slack,
                installation: app.name.clone(),
                user: user.to_owned(),
            },
            home: id(person.team_id.as_deref()).map(ToOwned::to_owned),
            channel: channel.to_owned(),
            message: message.to_owned(),
        })
    }
}

/// An id that is worth keeping: what Slack and we write is short printable ASCII.
fn id(text: Option<&str>) -> Option<&str> {
    text.filter(|text| {
        (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
    })
}

/// SHA-256 over the parts, each with its length in front, so that no two lists of parts have the same bytes.
fn callback_id(parts: &[&str]) -> String {
    let mut framed = String::new();
    for part in parts {
        // Writing to a string can't fail.
        let _ = write!(framed, "{}:{part}", part.len());
    }
    hex::encode(sha256(framed.as_bytes()))
}

#[cfg(test)]
mod tests;
