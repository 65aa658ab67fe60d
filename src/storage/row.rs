//! Rows are parsed, not trusted: a row that no code path writes is an inconsistency with table and column.

use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::error::{Error, inconsistent};
use crate::domain::action::{Action, NonceBox, State, StateName, Vote};
use crate::domain::call::Arguments;
use crate::domain::digest::{ActionDigest, Binding, ContentDigest, PolicyVersion, ToolVersion};
use crate::domain::ids::{ActionId, GroupName, RuleName};
use crate::domain::intent::{FailureDetail, Outcome, UnknownDetail};
use crate::domain::place::{Account, Place, Platform};
use crate::domain::policy::Risk;
use crate::domain::press::Verdict;
use crate::domain::token::Nonce;

/// An action's row, joined with its nonce and intent.
pub(super) struct ActionRow {
    pub id: Uuid,
    pub tenant: String,
    pub agent: String,
    pub owner: Option<String>,
    pub run: Option<String>,
    pub upstream: String,
    pub environment: Option<String>,
    pub tool: String,
    pub tool_version: Vec<u8>,
    pub policy_version: Vec<u8>,
    pub requirement: Vec<u8>,
    pub preconditions: Vec<u8>,
    pub arguments: Vec<u8>,
    pub content_digest: Vec<u8>,
    pub action_digest: Vec<u8>,
    pub preview: Vec<u8>,
    pub rules: Vec<String>,
    pub risk: String,
    pub post_to: Vec<String>,
    pub state: String,
    pub reason: Option<String>,
    pub revision: i32,
    pub created_at: OffsetDateTime,
    pub expires_at: OffsetDateTime,
    pub decided_at: Option<OffsetDateTime>,
    pub redeem_by: Option<OffsetDateTime>,
    pub redeemed_at: Option<OffsetDateTime>,
    pub nonce: Option<Vec<u8>>,
    pub detail: Option<String>,
    pub result: Option<Vec<u8>>,
    pub due: Option<bool>,
    pub links: Option<Vec<String>>,
}

/// A vote's row.
pub(super) struct VoteRow {
    pub person: String,
    pub verdict: String,
    pub groups: Vec<String>,
    pub platform: String,
    pub installation: String,
    pub user_id: String,
    pub voted_at: OffsetDateTime,
}

impl ActionRow {
    pub(super) fn into_action(self, votes: Vec<VoteRow>) -> Result<Action, Error> {
        let bad = |column| inconsistent("actions", column);
        let state = self.state()?;
        let nonce = match self.nonce.as_deref() {
            Some(stored) => {
                let bytes = stored.try_into().map_err(|_| inconsistent("tokens", "nonce"))?;
                Some(NonceBox(Nonce::new(bytes)))
            }
            None => None,
        };
        Ok(Action {
            nonce,
            digest: ActionDigest::from_stored(&self.action_digest).ok_or(bad("action_digest"))?,
            content: ContentDigest::from_stored(&self.content_digest).ok_or(bad("content_digest"))?,
            preview: serde_json::from_slice(&self.preview).map_err(|_| bad("preview"))?,
            rules: self.rules.into_iter().map(RuleName::new).collect(),
            risk: Risk::parse(&self.risk).ok_or(bad("risk"))?,
            post_to: places(&self.post_to)?,
            state,
            revision: self.revision,
            created_at: self.created_at,
            expires_at: self.expires_at,
            votes: votes.into_iter().map(VoteRow::into_vote).collect::<Result<_, _>>()?,
            cards: self.links.unwrap_or_default(),
            due: self.due.unwrap_or(false),
            binding: Binding {
                action: ActionId::from_uuid(self.id),
                tenant: self.tenant.as_str().into(),
                agent: self.agent.as_str().into(),
                owner: self.owner.as_deref().map(Into::into),
                run: self.run,
                upstream: self.upstream.as_str().into(),
                environment: self.environment,
                tool: self.tool.as_str().into(),
                tool_version: ToolVersion::from_stored(&self.tool_version).ok_or(bad("tool_version"))?,
                arguments: Arguments::from_stored(&self.arguments).ok_or(bad("arguments"))?,
                policy_version: PolicyVersion::from_stored(&self.policy_version)
                    .ok_or(bad("policy_version"))?,
                requirement: serde_json::from_slice(&self.requirement).map_err(|_| bad("requirement"))?,
                preconditions: serde_json::from_slice(&self.preconditions)
                    .map_err(|_| bad("preconditions"))?,
            },
        })
    }

    fn state(&self) -> Result<State, Error> {
        let bad = |column| inconsistent("actions", column);
        let reason = || self.reason.clone().ok_or(bad("reason"));
        Ok(match StateName::parse(&self.state).ok_or(bad("state"))? {
            StateName::Pending => State::Pending,
            StateName::Approved => State::Approved {
                decided_at: self.decided_at.ok_or(bad("decided_at"))?,
                redeem_by: self.redeem_by.ok_or(bad("redeem_by"))?,
            },
            StateName::Executing => {
                State::Executing { redeemed_at: self.redeemed_at.ok_or(bad("redeemed_at"))? }
            }
            StateName::Succeeded | StateName::Failed | StateName::OutcomeUnknown => {
                State::Executed { outcome: self.outcome()? }
            }
            StateName::Denied => State::Denied { at: self.decided_at.ok_or(bad("decided_at"))? },
            StateName::Expired => State::Expired,
            StateName::Cancelled => State::Cancelled { by: self.reason.clone() },
            StateName::Invalidated => State::Invalidated { reason: reason()? },
            StateName::Undeliverable => State::Undeliverable,
            StateName::Returned => State::Returned { reason: reason()? },
        })
    }

    fn outcome(&self) -> Result<Outcome, Error> {
        let result = match &self.result {
            Some(bytes) => {
                Some(serde_json::from_slice::<Value>(bytes).map_err(|_| inconsistent("intents", "result"))?)
            }
            None => None,
        };
        let detail = self.detail.as_deref().unwrap_or_default();
        let bad = || inconsistent("intents", "detail");
        Ok(match self.state.as_str() {
            "succeeded" => Outcome::Succeeded { result: result.unwrap_or(Value::Null) },
            "failed" => Outcome::Failed { detail: FailureDetail::parse(detail).ok_or_else(bad)?, result },
            _ => Outcome::Unknown { detail: UnknownDetail::parse(detail).ok_or_else(bad)? },
        })
    }
}

impl VoteRow {
    pub(super) fn into_vote(self) -> Result<Vote, Error> {
        let bad = |column| inconsistent("votes", column);
        Ok(Vote {
            person: self.person.as_str().into(),
            verdict: match self.verdict.as_str() {
                "approve" => Verdict::Approve,
                "deny" => Verdict::Deny,
                _ => return Err(bad("verdict")),
            },
            groups: self.groups.into_iter().map(GroupName::new).collect(),
            account: Account {
                platform: Platform::parse(&self.platform).ok_or(bad("platform"))?,
                installation: self.installation.as_str().into(),
                user: self.user_id,
            },
            at: self.voted_at,
        })
    }
}

fn places(stored: &[String]) -> Result<Vec<Place>, Error> {
    stored.iter().map(|place| Place::parse(place).ok_or(inconsistent("actions", "post_to"))).collect()
}
