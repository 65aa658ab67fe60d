//! A press: the one thing every chat transport produces from a verified callback.

use serde::{Deserialize, Serialize};

use super::place::{Account, Place};

/// What a button says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Approve.
    Approve,
    /// Deny, or revoke an approval that was not redeemed: deny wins until consumption.
    Deny,
}

impl Verdict {
    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }
}

/// One person's press of one button of one card. Its content is chosen by whoever can reach the channel; only its
/// origin is verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Press {
    /// The platform's id of this callback, made from signed content: the same press has the same id.
    pub callback_id: String,
    /// The opaque handle of the card.
    pub handle: String,
    /// What was pressed.
    pub verdict: Verdict,
    /// Who pressed.
    pub account: Account,
    /// The home workspace of the presser, when the payload says so.
    pub home: Option<String>,
    /// The channel the card is in.
    pub channel: String,
    /// The message that is the card.
    pub message: String,
}

impl Press {
    /// The place the press came from.
    pub fn place(&self) -> Place {
        Place {
            platform: self.account.platform,
            installation: self.account.installation.clone(),
            channel: self.channel.clone(),
        }
    }
}
