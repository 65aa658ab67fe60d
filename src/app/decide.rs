//! A verified press arrives: durable first, then a vote, a refusal with a private word, or a closed action.

use std::time::Duration;

use serde_json::json;

use super::App;
use super::ports::DirectoryDown;
use crate::domain::action::{Action, State, StateName};
use crate::domain::audit::Event;
use crate::domain::ids::{ActionId, Tenant};
use crate::domain::press::{Press, Verdict};
use crate::domain::requirement::{EligibleApprover, NotEligible, admit};
use crate::domain::token::Nonce;
use crate::storage::{self, Ballot, CardRow, Decided, StoredPress};

/// How long the platform's request waits for the decision; the inbox worker finishes what takes longer.
const DECIDE_AT_ONCE: Duration = Duration::from_millis(1500);

/// What a person reads whose card no row knows.
const UNKNOWN_CARD: &str = "This card is not known here. Nothing was decided.";

/// The press was not stored: the platform must show an error.
#[derive(Debug, thiserror::Error)]
#[error("the database does not answer")]
pub struct NotStored;

/// Why a press changes nothing.
struct Refused {
    result: &'static str,
    event: Event,
    word: String,
}

impl App {
    /// Makes a verified press durable, then decides it, at once when that is quick. Called by `chat::ingest` alone.
    ///
    /// # Errors
    /// It could not be stored; nothing happened.
    pub(crate) async fn take_press(&self, press: Press) -> Result<(), NotStored> {
        let app = self.clone();
        let work = self.tasks.spawn(async move {
            let stored = tokio::time::timeout(Duration::from_secs(2), app.db.store_press(&press)).await;
            match stored {
                Ok(Ok(StoredPress::New)) => {}
                Ok(Ok(StoredPress::Seen)) => return Ok(()),
                Ok(Err(error)) => {
                    tracing::error!(%error, "a press could not be stored");
                    return Err(NotStored);
                }
                Err(_) => return Err(NotStored),
            }
            let decider = app.clone();
            let decision = app.tasks.spawn(async move { decider.decide_press(press).await });
            // Too slow is no failure: the press is durable.
            let _ = tokio::time::timeout(DECIDE_AT_ONCE, decision).await;
            Ok(())
        });
        work.await.unwrap_or(Err(NotStored))
    }

    /// Decides presses that were stored and not decided: their request was too slow, or its replica died.
    ///
    /// # Errors
    /// The database.
    pub async fn drain_inbox(&self) -> storage::Result<usize> {
        let mut decided = 0;
        for press in self.db.undecided_presses().await? {
            if self.decide_press(press).await {
                decided += 1;
            }
        }
        Ok(decided)
    }

    /// Whether the press left the inbox.
    async fn decide_press(&self, press: Press) -> bool {
        let result = match self.decide(&press).await {
            Ok(result) => result,
            // It stays in the inbox, for a database that answers again.
            Err(error @ storage::Error::Unavailable) => {
                tracing::error!(%error, "a press could not be decided yet");
                return false;
            }
            // A defect: trying again would not end. Nothing is decided, and the person is told.
            Err(error) => {
                tracing::error!(%error, "a press could not be decided");
                let word = "Nothing was decided because of a fault in undersign. Please press again, or tell its operators.";
                match self.refuse_aside(&press, "fault", word).await {
                    Ok(result) => result,
                    Err(_) => return false,
                }
            }
        };
        tracing::info!(platform = %press.account.platform, verdict = press.verdict.as_str(), result, "press decided");
        true
    }

    async fn decide(&self, press: &Press) -> storage::Result<&'static str> {
        let Some(card) = self.db.card(&press.handle).await? else {
            return self.refuse_aside(press, "unknown_handle", UNKNOWN_CARD).await;
        };
        let about = (&card.tenant, card.action);
        if let Err(refused) = self.check_delivery(press, &card).await? {
            return self.refuse_vote(press, about, refused).await;
        }
        let Some(action) = self.db.action(&card.tenant, card.action).await? else {
            return self.refuse_aside(press, "gone", UNKNOWN_CARD).await;
        };
        if let Some(refused) = over(press, &action) {
            return self.refuse_vote(press, about, refused).await;
        }
        let approver = match self.admit_press(press, &action).await {
            Ok(approver) => approver,
            Err(refused) => return self.refuse_vote(press, about, refused).await,
        };
        let Some(limits) = self.tenants.get(&card.tenant).map(|tenant| tenant.policy.load().limits().clone())
        else {
            return self.refuse_aside(press, "unknown_tenant", UNKNOWN_CARD).await;
        };
        let ballot = Ballot {
            tenant: card.tenant.clone(),
            action: card.action,
            approver,
            press: press.clone(),
            nonce: Nonce::new(self.random()),
            pause: limits.denials_pause,
            alert_to: limits.alert_to,
        };
        let decided = self.db.decide(ballot).await?;
        self.changed(&[card.action]);
        let (result, word) = match decided {
            Decided::Counted(_) => ("counted", None),
            Decided::Approved => ("approved", None),
            Decided::Denied { .. } => ("denied", None),
            Decided::AlreadyVoted => ("already_voted", Some("Your approval is counted already.".to_owned())),
            Decided::Late(state) => ("late", Some(too_late(state))),
            Decided::AlreadyDecided => ("already_decided", None),
            Decided::Gone => ("gone", None),
        };
        if let Some(word) = word {
            self.db.queue_note(press, &card.tenant, card.action, &note(press, &word)).await?;
        }
        Ok(result)
    }

    /// Whether the press comes from the very message that carries the handle. A message whose id is not known yet is
    /// learnt from the click.
    async fn check_delivery(&self, press: &Press, card: &CardRow) -> storage::Result<Result<(), Refused>> {
        let right_place = card.place == press.place();
        if right_place && self.db.learn_message(&card.handle, &press.message).await? {
            return Ok(Ok(()));
        }
        Ok(Err(vote_refused(
            press,
            "wrong_message",
            "This button does not belong to this message. Nothing was decided.",
        )))
    }

    async fn admit_press(&self, press: &Press, action: &Action) -> Result<EligibleApprover, Refused> {
        let binding = &action.binding;
        let Some(tenant) = self.tenants.get(&binding.tenant) else {
            return Err(vote_refused(
                press,
                "unknown_tenant",
                "Nothing was decided: this tenant is not configured.",
            ));
        };
        let home = press.home.as_deref();
        let owner = binding.owner.as_ref();
        let candidate = self
            .candidate(&tenant.policy.load_full(), &binding.requirement, &press.account, home, owner)
            .await
            .map_err(|DirectoryDown| {
                vote_refused(
                    press,
                    "unavailable",
                    "Nothing was decided: whether you may decide could not be checked just now. Please press again in a minute.",
                )
            })?;
        let Some(candidate) = candidate else {
            return Err(vote_refused(
                press,
                "outsider",
                "Nothing was decided: only full members of this workspace may decide.",
            ));
        };
        admit(&binding.requirement, candidate, press.verdict).map_err(|refusal| match refusal {
            NotEligible::NotAMember => vote_refused(
                press,
                "not_a_member",
                &format!("Nothing was decided: this needs {}, and you are not in that group.", binding.requirement.in_words()),
            ),
            NotEligible::Proposer => vote_refused(
                press,
                "proposer",
                "Nothing was decided: this agent works for you, so someone else has to approve. You may deny.",
            ),
        })
    }

    async fn refuse_vote(
        &self,
        press: &Press,
        about: (&Tenant, ActionId),
        refused: Refused,
    ) -> storage::Result<&'static str> {
        let word = note(press, &refused.word);
        self.db.refuse_press(press, refused.result, Some(about), &refused.event, &word).await?;
        Ok(refused.result)
    }

    /// Refuses a press that belongs into nobody's audit trail; the person is told at once.
    async fn refuse_aside(
        &self,
        press: &Press,
        result: &'static str,
        word: &str,
    ) -> storage::Result<&'static str> {
        let refused = vote_refused(press, result, word);
        if self.db.refuse_press(press, result, None, &refused.event, "").await?
            && let Some(chat) =
                self.chats.load_full().get(&(press.account.platform, press.account.installation.clone()))
            && let Err(error) = chat.messenger.note(&press.place(), &press.account.user, &refused.word).await
        {
            tracing::warn!(%error, "a private note was not delivered");
        }
        Ok(result)
    }
}

/// A press on something that is decided for good, or an approval of what is approved.
fn over(press: &Press, action: &Action) -> Option<Refused> {
    let state = match (&action.state, press.verdict) {
        (State::Pending | State::Approved { .. }, _) if action.due => StateName::Expired,
        (State::Pending, _) | (State::Approved { .. }, Verdict::Deny) => return None,
        (state, _) => state.name(),
    };
    let event = Event::Late {
        account: press.account.clone(),
        verdict: press.verdict,
        callback_id: press.callback_id.clone(),
        state: state.as_str().to_owned(),
    };
    Some(Refused { result: "late", event, word: too_late(state) })
}

fn too_late(state: StateName) -> String {
    let became = match state {
        StateName::Approved => "it is approved already",
        StateName::Executing => "it is being executed already",
        StateName::Succeeded | StateName::Failed | StateName::OutcomeUnknown => {
            "it has been executed already"
        }
        StateName::Denied => "it was denied",
        StateName::Expired => "its time ran out",
        StateName::Cancelled => "it was withdrawn",
        StateName::Invalidated => "it is no longer valid",
        StateName::Undeliverable => "it could not be shown everywhere",
        StateName::Returned => "it was sent back",
        StateName::Pending => "it could not be counted",
    };
    format!("Nothing changed: {became}.")
}

fn vote_refused(press: &Press, reason: &'static str, word: &str) -> Refused {
    let event = Event::VoteRefused {
        account: press.account.clone(),
        verdict: press.verdict,
        callback_id: press.callback_id.clone(),
        reason,
    };
    Refused { result: reason, event, word: word.to_owned() }
}

/// A private note as the outbox keeps it; the callback's id makes it one note a press.
fn note(press: &Press, text: &str) -> String {
    json!({ "user": press.account.user, "text": text, "callback": press.callback_id }).to_string()
}
