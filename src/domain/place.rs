//! Where cards go and who presses: places and accounts on the chat platforms.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ids::{Installation, Person};

/// A chat platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Slack.
    Slack,
    /// Discord.
    Discord,
}

impl Platform {
    /// The platform's name as it is written in policy and stored in rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Slack => "slack",
            Self::Discord => "discord",
        }
    }

    /// Reads a stored or configured name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "slack" => Some(Self::Slack),
            "discord" => Some(Self::Discord),
            _ => None,
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A channel to post cards to, written `slack:main/C0PAY`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The platform.
    pub platform: Platform,
    /// The installation of our app.
    pub installation: Installation,
    /// The platform's channel id.
    pub channel: String,
}

impl Place {
    /// Reads `platform:installation/channel`.
    pub fn parse(text: &str) -> Option<Self> {
        let (platform, rest) = text.split_once(':')?;
        let (installation, channel) = rest.split_once('/')?;
        if installation.is_empty() || channel.is_empty() || channel.contains('/') {
            return None;
        }
        Some(Self {
            platform: Platform::parse(platform)?,
            installation: installation.into(),
            channel: channel.to_owned(),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.platform, self.installation, self.channel)
    }
}

/// One person's account on one installation of one platform: the triple that authority hangs on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Account {
    /// The platform.
    pub platform: Platform,
    /// The installation of our app.
    pub installation: Installation,
    /// The platform's user id.
    pub user: String,
}

impl Account {
    /// Reads `installation/user` as policy writes it under the platform's key.
    pub fn parse(platform: Platform, text: &str) -> Option<Self> {
        let (installation, user) = text.split_once('/')?;
        if installation.is_empty() || user.is_empty() || user.contains('/') {
            return None;
        }
        Some(Self { platform, installation: installation.into(), user: user.to_owned() })
    }

    /// The name of a group member that has no `[people]` entry.
    pub fn anonymous_person(&self) -> Person {
        Person::new(self.to_string())
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.platform, self.installation, self.user)
    }
}
