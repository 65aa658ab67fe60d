//! Typed names and ids, so that a tenant is never passed where an agent is meant.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::source::{Clock, Entropy};

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps a name as it is written in the configuration or stored in a row.
            pub fn new(name: impl Into<String>) -> Self {
                Self(name.into())
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self(name.to_owned())
            }
        }
    )*};
}

names! {
    /// A tenant: the owner of agents, upstreams and one policy. It comes from the credential, never from a path.
    Tenant,
    /// An agent of a tenant: the principal that makes calls.
    AgentName,
    /// An upstream MCP server of a tenant, as the configuration names it.
    UpstreamName,
    /// A tool, as its upstream lists it (without our prefix).
    ToolName,
    /// A person: a name of `[people]`, or `slack:<installation>/<user id>` for a group member without an entry.
    Person,
    /// A group of approvers, as the policy names it.
    GroupName,
    /// A rule, as the policy names it.
    RuleName,
    /// An installation of a chat app, as the configuration names it (`main` of `[slack.main]`).
    Installation,
}

/// The id of a parked action: a UUIDv7, so that ids sort by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActionId(Uuid);

impl ActionId {
    /// A new id from the clock handed in and 74 random bits (RFC 9562, section 5.7).
    pub fn fresh(clock: &dyn Clock, entropy: &dyn Entropy) -> Self {
        let mut random = [0; 10];
        entropy.fill(&mut random);
        let millis = u64::try_from(clock.unix_millis()).unwrap_or_default();
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }

    /// An id as it is stored.
    pub fn from_uuid(id: Uuid) -> Self {
        Self(id)
    }

    /// The id as a UUID.
    pub fn uuid(self) -> Uuid {
        self.0
    }

    /// Reads an id that an agent or a person wrote; hyphenated lower case is the only accepted form.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Uuid::try_parse(text).ok()?;
        (id.hyphenated().to_string() == text).then_some(Self(id))
    }
}

impl fmt::Display for ActionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}
