//! Slack: one installation of our app, its callbacks, its cards, and what it says about people (SLACK.md).
//!
//! Keeps true: a callback is parsed only after its signature was checked over the raw bytes; nothing an agent wrote is
//! ever parsed as markup by Slack; no token, payload, `response_url` or answer of Slack's enters a log or an error.
//! Not for Socket Mode, and not for retries: a call is made once, and its result says what is known.

mod api;
pub mod blocks;
mod cache;
mod client;
mod directory;
mod interaction;
mod selfcheck;
mod verify;

use secrecy::SecretString;

pub use api::WebApi;
pub use client::SlackMessenger;
pub use directory::SlackDirectory;
pub use interaction::{Reading, receive};
pub use selfcheck::{Answered, SelfCheck};

use crate::domain::ids::Installation;

/// One installation of one Slack app, as the configuration has it.
#[derive(Debug, Clone)]
pub struct SlackApp {
    /// Its name in the configuration, which is also the last segment of its callback path.
    pub name: Installation,
    /// The workspace it is installed in, `T…`.
    pub team_id: String,
    /// The app, `A…`.
    pub app_id: String,
    /// The organisation, `E…`, on Enterprise Grid.
    pub enterprise_id: Option<String>,
    /// The signing secrets in force: one, or two while the secret is being changed.
    pub signing_secrets: Vec<SecretString>,
    /// The bot token, `xoxb-…`.
    pub bot_token: SecretString,
    /// Base of the Web API, normally `https://slack.com/api`.
    pub api_url: String,
}

impl SlackApp {
    /// Whether a workspace id of a person is this installation's own: the workspace or, as Slack also writes it, its
    /// organisation.
    fn is_home(&self, team: &str) -> bool {
        team == self.team_id || self.enterprise_id.as_deref() == Some(team)
    }
}

/// Why a callback is refused. It never says what would have been right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// More bytes than any callback has.
    #[error("the callback is too large")]
    TooLarge,
    /// Not signed with a secret of ours, or not just now.
    #[error("the callback is not signed by Slack for this app, or not fresh")]
    Unauthenticated,
    /// Signed by Slack, but for another app, workspace or organisation.
    #[error("the callback is of another installation")]
    Foreign,
    /// Signed by Slack, but not of the documented form.
    #[error("the callback has not the documented form")]
    Malformed,
}

impl Rejection {
    /// The HTTP status it is answered with.
    #[must_use]
    pub fn status(self) -> http::StatusCode {
        match self {
            Self::TooLarge => http::StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unauthenticated => http::StatusCode::UNAUTHORIZED,
            Self::Foreign => http::StatusCode::FORBIDDEN,
            Self::Malformed => http::StatusCode::BAD_REQUEST,
        }
    }
}

#[cfg(test)]
mod tests;
