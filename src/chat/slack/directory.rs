//! What Slack says about people and groups (SLACK.md 3).
//!
//! Keeps true: closed on every doubt: a flag that is missing counts against the person, a failed question is no answer,
//! and nothing is remembered for more than 30 seconds, half of what is promised for a removed approver. Not for
//! deciding who may decide: it only reports.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::WebApi;
use super::api::CallError;
use super::cache::{Recent, Unknown};
use crate::app::ports::{AccountStanding, Directory, DirectoryDown};

/// How old an answer may be.
const AGE: Duration = Duration::from_secs(30);

/// The directory of one installation.
pub struct SlackDirectory {
    api: Arc<WebApi>,
    groups: Recent<BTreeSet<String>>,
    people: Recent<Person>,
}

/// What matters about a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Person {
    /// Nobody, or not a full, living human: for every installation.
    Nobody,
    /// A full member of this workspace.
    MemberOf(String),
}

impl SlackDirectory {
    /// Asks through this client.
    #[must_use]
    pub fn new(api: Arc<WebApi>) -> Self {
        Self { api, groups: Recent::new(AGE), people: Recent::new(AGE) }
    }

    async fn members_at(&self, group: &str, now: Instant) -> Result<BTreeSet<String>, DirectoryDown> {
        self.groups.get(group, now, self.ask_members(group)).await.map_err(|Unknown| DirectoryDown)
    }

    async fn ask_members(&self, group: &str) -> Result<BTreeSet<String>, Unknown> {
        let app = self.api.app();
        let mut arguments = vec![("usergroup", group), ("include_disabled", "false")];
        if app.enterprise_id.is_some() {
            // An organisation's token says not which workspace is meant.
            arguments.push(("team_id", &app.team_id));
        }
        match self.api.get("usergroups.users.list", &arguments).await {
            Ok(answer) => {
                BTreeSet::<String>::deserialize(&answer["users"]).map_err(|_| self.unknown("undecodable"))
            }
            // A group that is not there has no members; it does not mean everyone.
            Err(CallError::Refused { code }) if code == "no_such_subteam" => Ok(BTreeSet::new()),
            Err(error) => Err(self.unknown(error.code())),
        }
    }

    async fn standing_at(
        &self,
        user: &str,
        home: Option<&str>,
        now: Instant,
    ) -> Result<AccountStanding, DirectoryDown> {
        let app = self.api.app();
        if user == "USLACKBOT" || home.is_some_and(|home| !app.is_home(home)) {
            return Ok(AccountStanding::Outsider);
        }
        match self.people.get(user, now, self.ask_person(user)).await {
            Ok(Person::MemberOf(team)) if app.is_home(&team) => Ok(AccountStanding::Member),
            Ok(_) => Ok(AccountStanding::Outsider),
            Err(Unknown) => Err(DirectoryDown),
        }
    }

    async fn ask_person(&self, user: &str) -> Result<Person, Unknown> {
        match self.api.get("users.info", &[("user", user)]).await {
            Ok(answer) => Ok(person(&answer["user"], user)),
            Err(CallError::Refused { code }) if code == "user_not_found" || code == "user_not_visible" => {
                Ok(Person::Nobody)
            }
            Err(error) => Err(self.unknown(error.code())),
        }
    }

    fn unknown(&self, code: &str) -> Unknown {
        tracing::warn!(installation = %self.api.app().name, code, "Slack can't be asked about people");
        Unknown
    }
}

#[async_trait]
impl Directory for SlackDirectory {
    async fn members(&self, group: &str) -> Result<BTreeSet<String>, DirectoryDown> {
        self.members_at(group, Instant::now()).await
    }

    async fn standing(&self, user: &str, home: Option<&str>) -> Result<AccountStanding, DirectoryDown> {
        self.standing_at(user, home, Instant::now()).await
    }
}

/// Reads the `user` of users.info. Every flag must be there and be false; only `is_stranger` is normally absent, and
/// the comparison of workspaces covers for it.
pub(super) fn person(answer: &Value, asked: &str) -> Person {
    const FLAGS: [&str; 7] = [
        "deleted",
        "is_bot",
        "is_app_user",
        "is_workflow_bot",
        "is_connector_bot",
        "is_restricted",
        "is_ultra_restricted",
    ];
    let clear = FLAGS.iter().all(|flag| answer[flag] == false)
        && matches!(answer.get("is_stranger"), None | Some(Value::Bool(false)));
    match answer["team_id"].as_str() {
        Some(team) if clear && answer["id"] == asked => Person::MemberOf(team.to_owned()),
        _ => Person::Nobody,
    }
}

#[cfg(test)]
mod tests;
