//! The parked action and its states.
//!
//! ```text
//! pending ──▶ approved ──▶ executing ──▶ succeeded | failed | outcome_unknown ──▶ succeeded | failed
//!    │            │
//!    └────────────┴──▶ denied | expired | cancelled | invalidated      pending only ──▶ undeliverable | returned
//! ```
//!
//! The enum describes what a row was found to be; the statement that changes a row decides (`storage`).

use std::collections::BTreeSet;

use time::OffsetDateTime;

use super::digest::{ActionDigest, Binding, ContentDigest};
use super::ids::{ActionId, GroupName, Person, RuleName};
use super::intent::Outcome;
use super::place::{Account, Place};
use super::policy::Risk;
use super::press::Verdict;
use super::preview::Preview;
use super::token::Nonce;

/// The names of the states, as they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateName {
    /// Waits for a decision.
    Pending,
    /// Approved, not redeemed.
    Approved,
    /// Claimed and being executed.
    Executing,
    /// Executed; the upstream reported no error.
    Succeeded,
    /// The upstream reported an error, or nothing was sent.
    Failed,
    /// The upstream may or may not have acted.
    OutcomeUnknown,
    /// An eligible person denied it.
    Denied,
    /// Not decided, or not redeemed, in time.
    Expired,
    /// Withdrawn by the agent or a person entitled to.
    Cancelled,
    /// Something that was approved changed.
    Invalidated,
    /// No card could be posted anywhere.
    Undeliverable,
    /// Sent back with a question.
    Returned,
}

impl StateName {
    /// Every state.
    pub const ALL: [Self; 12] = [
        Self::Pending,
        Self::Approved,
        Self::Executing,
        Self::Succeeded,
        Self::Failed,
        Self::OutcomeUnknown,
        Self::Denied,
        Self::Expired,
        Self::Cancelled,
        Self::Invalidated,
        Self::Undeliverable,
        Self::Returned,
    ];

    /// As stored and told.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Executing => "executing",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Invalidated => "invalidated",
            Self::Undeliverable => "undeliverable",
            Self::Returned => "returned",
        }
    }

    /// Reads a stored name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether a row may go from this state to that one. The guard trigger holds the same table.
    pub fn may_become(self, next: Self) -> bool {
        use StateName as S;
        match self {
            S::Pending => matches!(
                next,
                S::Approved
                    | S::Denied
                    | S::Expired
                    | S::Cancelled
                    | S::Invalidated
                    | S::Undeliverable
                    | S::Returned
            ),
            S::Approved => {
                matches!(next, S::Executing | S::Denied | S::Expired | S::Cancelled | S::Invalidated)
            }
            S::Executing => matches!(next, S::Succeeded | S::Failed | S::OutcomeUnknown),
            S::OutcomeUnknown => matches!(next, S::Succeeded | S::Failed),
            _ => false,
        }
    }
}

/// A state with exactly the data of that state.
#[derive(Debug, Clone)]
pub enum State {
    /// Waits for a decision until the action's `expires_at`.
    Pending,
    /// May be redeemed.
    Approved {
        /// When the requirement was met.
        decided_at: OffsetDateTime,
        /// The last moment of the token.
        redeem_by: OffsetDateTime,
    },
    /// Claimed.
    Executing {
        /// When it was claimed.
        redeemed_at: OffsetDateTime,
    },
    /// Finished, one way or another.
    Executed {
        /// What became of it.
        outcome: Outcome,
    },
    /// Denied, or revoked.
    Denied {
        /// When.
        at: OffsetDateTime,
    },
    /// Too late.
    Expired,
    /// Withdrawn.
    Cancelled {
        /// Who withdrew it, unless it was the agent.
        by: Option<String>,
    },
    /// Voided by a change.
    Invalidated {
        /// The code of the change.
        reason: String,
    },
    /// Nobody could be asked.
    Undeliverable,
    /// Sent back with a question.
    Returned {
        /// The question.
        reason: String,
    },
}

/// The nonce of a row that was approved, kept out of `Debug`.
#[derive(Clone)]
pub struct NonceBox(pub Nonce);

impl std::fmt::Debug for NonceBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nonce(…)")
    }
}

impl State {
    /// The state's name.
    pub fn name(&self) -> StateName {
        match self {
            Self::Pending => StateName::Pending,
            Self::Approved { .. } => StateName::Approved,
            Self::Executing { .. } => StateName::Executing,
            Self::Executed { outcome } => match outcome {
                Outcome::Succeeded { .. } => StateName::Succeeded,
                Outcome::Failed { .. } => StateName::Failed,
                Outcome::Unknown { .. } => StateName::OutcomeUnknown,
            },
            Self::Denied { .. } => StateName::Denied,
            Self::Expired => StateName::Expired,
            Self::Cancelled { .. } => StateName::Cancelled,
            Self::Invalidated { .. } => StateName::Invalidated,
            Self::Undeliverable => StateName::Undeliverable,
            Self::Returned { .. } => StateName::Returned,
        }
    }
}

/// One person's vote, as recorded.
#[derive(Debug, Clone)]
pub struct Vote {
    /// Who.
    pub person: Person,
    /// What they said.
    pub verdict: Verdict,
    /// The groups of the requirement they were a member of.
    pub groups: BTreeSet<GroupName>,
    /// The account they pressed with.
    pub account: Account,
    /// When.
    pub at: OffsetDateTime,
}

/// A parked action as a row holds it, with its votes.
#[derive(Debug, Clone)]
pub struct Action {
    /// Everything that is bound.
    pub binding: Binding,
    /// Digest over it, as stored at parking; recomputed before it is trusted.
    pub digest: ActionDigest,
    /// What recognises the same call.
    pub content: ContentDigest,
    /// What people are shown.
    pub preview: Preview,
    /// The rules that matched.
    pub rules: Vec<RuleName>,
    /// The highest risk of these rules.
    pub risk: Risk,
    /// Where cards go.
    pub post_to: Vec<Place>,
    /// The state.
    pub state: State,
    /// Counts every change that a card shows.
    pub revision: i32,
    /// When it was parked.
    pub created_at: OffsetDateTime,
    /// The deadline of the decision.
    pub expires_at: OffsetDateTime,
    /// What the token is made from, once the requirement was met.
    pub nonce: Option<NonceBox>,
    /// The votes, oldest first.
    pub votes: Vec<Vote>,
    /// Links to the cards, in `post_to` order.
    pub cards: Vec<String>,
    /// Whether the row's deadline has passed on the database's clock, although nothing has swept it yet.
    pub due: bool,
}

impl Action {
    /// The id.
    pub fn id(&self) -> ActionId {
        self.binding.action
    }

    /// The people who approved, with the groups they count for.
    pub fn approvals(&self) -> Vec<(Person, BTreeSet<GroupName>)> {
        self.votes
            .iter()
            .filter(|vote| vote.verdict == Verdict::Approve)
            .map(|vote| (vote.person.clone(), vote.groups.clone()))
            .collect()
    }

    /// Whether what is stored is still what its digest was taken over (THREATS.md X04).
    pub fn is_intact(&self) -> bool {
        self.binding.action_digest() == self.digest && self.binding.content_digest() == self.content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legal_transitions_are_these_and_no_others() {
        let mut legal = Vec::new();
        for from in StateName::ALL {
            for to in StateName::ALL {
                if from.may_become(to) {
                    legal.push(format!("{}>{}", from.as_str(), to.as_str()));
                }
            }
        }
        assert_eq!(legal.len(), 17, "{legal:?}");
        let guard = include_str!("../../migrations/0001_actions.sql");
        for transition in legal {
            assert!(guard.contains(&format!("'{transition}'")), "the guard trigger lacks {transition}");
        }
    }
}
