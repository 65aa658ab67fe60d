//! What an agent is told: one code, and what to do next.
//!
//! A model reads only the text, so everything it must do or copy stands there; `_meta` is for programs. Nothing here
//! quotes arguments, upstream errors or secrets other than the token that is being handed out.

use std::fmt::Write as _;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use super::action::StateName;
use super::ids::ActionId;
use super::requirement::Progress;
use super::token::ApprovalToken;

/// The key of our answers in `_meta`.
pub const META_KEY: &str = "dev.undersign/approval";

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $next:literal;)*) => {
        /// The closed list of codes (DESIGN.md section 6).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// As told in `_meta`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// What the agent should do next.
            fn next_step(self) -> &'static str {
                match self { $(Self::$variant => $next,)* }
            }
        }
    };
}

codes! {
    /// Parked; fewer people than required have approved.
    ApprovalPending = "approval_pending", "not executed.";
    /// The requirement is met; nothing has been executed.
    ApprovalGranted = "approval_granted", "not executed yet.";
    /// Sent back with a question.
    ClarificationNeeded = "clarification_needed", "not executed. An approver asks a question; answer it by proposing again.";
    /// Executed without an error.
    Succeeded = "succeeded", "executed once. Do not repeat this call.";
    /// Executed with an error, or not sent.
    Failed = "failed", "the approved call failed and its token is spent. Propose it again only if it is still wanted.";
    /// Denied by a person.
    Denied = "denied", "not executed. A person said no to exactly these arguments; do not call again with them.";
    /// Amounts to something denied a short while ago.
    DeniedRecently = "denied_recently", "not executed. This was denied a short while ago; do not call again.";
    /// Too late.
    Expired = "expired", "not executed. The time ran out; propose it again, without a token, only if it is still wanted.";
    /// Withdrawn.
    Cancelled = "cancelled", "not executed. It was withdrawn; propose it again, without a token, if it is wanted.";
    /// Voided by a change.
    Invalidated = "invalidated", "not executed. What was approved has changed since; repeat the call without the token for a new approval.";
    /// Nobody could be asked.
    Undeliverable = "undeliverable", "not executed. Nobody could be asked for approval; tell the user.";
    /// The token was consumed.
    AlreadyUsed = "already_used", "this approval has been used. Call undersign_approval with its action_id for the outcome; do not repeat the call.";
    /// Being executed.
    InProgress = "in_progress", "it is being executed. Call undersign_approval with its action_id to wait for the outcome.";
    /// May or may not have happened.
    OutcomeUnknown = "outcome_unknown", "it may or may not have taken effect. Do not repeat it; a person has to look.";
    /// Not the approved call.
    DigestMismatch = "digest_mismatch", "not executed. This call is not the one that was approved; repeat the approved call exactly, or call without a token to propose this one.";
    /// No token of this agent's.
    InvalidToken = "invalid_token", "not executed. This is not a valid approval token; call without a token to propose the call.";
    /// The tool's definition changed.
    ToolChanged = "tool_changed", "not executed. The tool's definition has changed since the approval; repeat the call without the token for a new approval.";
    /// The policy changed.
    PolicyChanged = "policy_changed", "not executed. The policy has changed since the approval; repeat the call without the token for a new approval.";
    /// An approver lost the authority.
    ApproverRevoked = "approver_revoked", "not executed. Someone who approved may no longer do so; repeat the call without the token for a new approval.";
    /// A precondition changed.
    PreconditionFailed = "precondition_failed", "not executed. What the preview was based on has changed; repeat the call without the token for a new approval.";
    /// Too many asks.
    RateLimited = "rate_limited", "not executed. Too many approvals are being asked for; come back later.";
    /// A hard cap.
    CapExceeded = "cap_exceeded", "not executed. A cap on this agent is reached; approval does not lift it.";
    /// Policy says no, or does not name the tool.
    NotAllowed = "not_allowed", "policy does not allow this tool. Do not retry.";
    /// The arguments can't be shown whole.
    TooLargeToPreview = "too_large_to_preview", "not executed. The arguments are too large to be shown to an approver; make them smaller.";
    /// A value that can't be bound without loss.
    UnsupportedValue = "unsupported_value", "not executed. A value in the arguments can't be bound to an approval without loss; change it.";
    /// The arguments do not fit the schema.
    InvalidArguments = "invalid_arguments", "not executed. The arguments do not fit the tool's input schema; change them.";
    /// No such action of this agent's.
    NotFound = "not_found", "there is no such action of yours.";
    /// Something needed can't be reached.
    Unavailable = "unavailable", "nothing was done. Something needed for the decision can't be reached; try again later.";
}

/// Where an action stands, for the agent that proposed it.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The action.
    pub action: ActionId,
    /// Its state.
    pub state: StateName,
    /// The deadline that counts now: of the decision, or of the redemption once approved.
    pub deadline: OffsetDateTime,
    /// How far the requirement is met.
    pub approvals: Vec<Progress>,
    /// Places the cards go to, as policy writes them.
    pub places: Vec<String>,
    /// Links to the cards that are known.
    pub cards: Vec<String>,
}

/// One answer to an agent.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The code.
    pub code: Code,
    /// The action, for its proposer.
    pub standing: Option<Box<Standing>>,
    /// The token, in `approval_granted` alone.
    pub token: Option<ApprovalToken>,
    /// A closing remark in our own words: a limit, a place in the arguments.
    pub detail: Option<String>,
    /// The code of the change that voided an action.
    pub reason: Option<String>,
    /// The recorded result of the execution, for its proposer.
    pub outcome: Option<Value>,
}

impl Answer {
    /// An answer that is about no action.
    pub fn plain(code: Code) -> Self {
        Self { code, standing: None, token: None, detail: None, reason: None, outcome: None }
    }

    /// Adds a remark.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Says which action it is about.
    #[must_use]
    pub fn about(mut self, standing: Standing) -> Self {
        self.standing = Some(Box::new(standing));
        self
    }

    /// The text block: the code in capitals, what happened, what to do next.
    pub fn text(&self) -> String {
        // Writing to a String does not fail.
        let mut text = format!("{}: {}", self.code.as_str().to_uppercase(), self.code.next_step());
        if let Some(standing) = &self.standing {
            match self.code {
                Code::ApprovalPending => text.push_str(&pending(standing)),
                Code::ApprovalGranted => {
                    if let Some(token) = &self.token {
                        let _ = write!(
                            text,
                            " Repeat this call unchanged with approval_token={} before {}. The token works once.",
                            token.reveal(),
                            clock(standing.deadline)
                        );
                    }
                }
                _ => {
                    let _ = write!(text, " (action_id={})", standing.action);
                }
            }
        }
        if let Some(detail) = &self.detail {
            text.push(' ');
            text.push_str(detail);
        }
        if let Some(reason) = &self.reason {
            let _ = write!(text, " Reason: {reason}.");
        }
        if let Some(outcome) = &self.outcome {
            let _ = write!(text, "\nThe upstream's recorded result: {outcome}");
        }
        text
    }

    /// The value under [`META_KEY`].
    pub fn meta(&self) -> Value {
        let mut meta = json!({ "code": self.code.as_str() });
        if let Some(standing) = &self.standing {
            meta["action_id"] = json!(standing.action);
            meta["state"] = json!(standing.state.as_str());
            meta["expires_at"] = json!(rfc3339(standing.deadline));
            meta["approvals"] = json!(standing.approvals);
            meta["cards"] = json!(standing.cards);
        }
        if let Some(token) = &self.token {
            meta["approval_token"] = json!(token.reveal());
        }
        if let Some(reason) = &self.reason {
            meta["reason"] = json!(reason);
        }
        meta
    }
}

impl Standing {
    /// In a few words what it waits for: people while it is pending, the upstream after that.
    pub fn waiting_for(&self) -> String {
        if self.state != StateName::Pending {
            return "Being executed".to_owned();
        }
        let missing: Vec<_> = self
            .approvals
            .iter()
            .filter(|entry| entry.got < entry.count)
            .map(|entry| format!("{} of {}", entry.count - entry.got, entry.group))
            .collect();
        format!("Waiting for {}, in {}", missing.join(" and "), self.places.join(" and "))
    }
}

fn pending(standing: &Standing) -> String {
    format!(
        " {}. Expires {}.\nCall undersign_approval with action_id={} to wait; when approved, repeat \
         this call unchanged with approval_token.",
        standing.waiting_for(),
        clock(standing.deadline),
        standing.action
    )
}

/// A moment as agents are told it: seconds are enough.
pub fn rfc3339(at: OffsetDateTime) -> String {
    at.replace_nanosecond(0).unwrap_or(at).format(&Rfc3339).unwrap_or_default()
}

/// A moment of the near future, as texts tell it.
pub fn clock(at: OffsetDateTime) -> String {
    at.format(format_description!("[hour]:[minute]:[second]Z")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_begins_with_its_code_in_capitals_and_says_more() {
        for code in Code::ALL {
            let text = Answer::plain(*code).text();
            let capitals = code.as_str().to_uppercase();
            assert!(text.starts_with(&format!("{capitals}: ")), "{text}");
            assert!(text.len() > capitals.len() + 10, "{text}");
        }
        assert_eq!(Code::ALL.len(), 28);
    }
}
