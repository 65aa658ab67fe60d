//! The read side: how an action stands, for the agent that proposed it.

use std::time::Duration;

use tokio::time::Instant;

use super::redeem::bound;
use super::{App, Caller};
use crate::domain::action::{Action, State, StateName};
use crate::domain::answer::{Answer, Code, Standing};
use crate::domain::ids::ActionId;
use crate::domain::intent::Outcome;
use crate::domain::place::Place;
use crate::domain::requirement::tally;
use crate::storage;

impl App {
    /// `undersign_approval`: how an action stands, after waiting up to `wait` for something the agent can act on.
    pub async fn approval(&self, caller: &Caller, action_id: &str, wait: Duration) -> Answer {
        let deadline = Instant::now() + wait;
        // The place is taken before looking, so that a change between the two is not missed.
        let mut waiter = ActionId::parse(action_id)
            .filter(|_| !wait.is_zero())
            .and_then(|action| self.0.waiters.join(caller, action));
        loop {
            let turn = self.turn(caller).await;
            let action = match self.own_action(caller, action_id).await {
                Ok(Some(action)) => action,
                Ok(None) => return Answer::plain(Code::NotFound),
                Err(error) => {
                    tracing::error!(tenant = %caller.tenant, %error, "an action could not be read");
                    return Answer::plain(Code::Unavailable);
                }
            };
            let waiting = matches!(action.state, State::Pending | State::Executing { .. }) && !action.due;
            let waiter = waiter.as_mut().filter(|_| waiting && !self.stop.is_cancelled());
            let Some(waiter) = waiter.filter(|_| Instant::now() < deadline) else {
                return self.answer(&action).await.unwrap_or_else(|_| Answer::plain(Code::Unavailable));
            };
            drop(turn);
            tokio::select! {
                () = waiter.changed() => {}
                () = tokio::time::sleep_until(deadline) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// `undersign_cancel`: withdraws an action that is not being executed yet.
    pub async fn cancel(&self, caller: &Caller, action_id: &str) -> Answer {
        let (app, caller, action_id) = (self.clone(), caller.clone(), action_id.to_owned());
        let work = self.tasks.spawn(async move { app.cancel_own(&caller, &action_id).await });
        match work.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::error!(%error, "cancelling failed");
                Answer::plain(Code::Unavailable)
            }
            Err(_) => Answer::plain(Code::Unavailable),
        }
    }

    async fn cancel_own(&self, caller: &Caller, action_id: &str) -> storage::Result<Answer> {
        let Some(action) = self.own_action(caller, action_id).await? else {
            return Ok(Answer::plain(Code::NotFound));
        };
        if self.db.cancel(&caller.tenant, &caller.agent, action.id()).await? {
            self.changed(&[action.id()]);
        }
        match self.db.action(&caller.tenant, action.id()).await? {
            Some(action) => self.answer(&action).await,
            None => Ok(Answer::plain(Code::NotFound)),
        }
    }

    async fn own_action(&self, caller: &Caller, action_id: &str) -> storage::Result<Option<Action>> {
        let Some(id) = ActionId::parse(action_id) else { return Ok(None) };
        let action = self.db.action(&caller.tenant, id).await?;
        Ok(action.filter(|action| action.binding.agent == caller.agent))
    }

    /// How an action stands, with the token once it is approved. For its own agent only.
    pub(super) async fn answer(&self, action: &Action) -> storage::Result<Answer> {
        let code = match &action.state {
            State::Pending | State::Approved { .. } if action.due => Code::Expired,
            State::Pending => Code::ApprovalPending,
            State::Approved { .. } => Code::ApprovalGranted,
            State::Executing { .. } => Code::InProgress,
            State::Executed { outcome: Outcome::Succeeded { .. } } => Code::Succeeded,
            State::Executed { outcome: Outcome::Failed { .. } } => Code::Failed,
            State::Executed { outcome: Outcome::Unknown { .. } } => Code::OutcomeUnknown,
            State::Denied { .. } => Code::Denied,
            State::Expired => Code::Expired,
            State::Cancelled { .. } => Code::Cancelled,
            State::Invalidated { .. } => Code::Invalidated,
            State::Undeliverable => Code::Undeliverable,
            State::Returned { .. } => Code::ClarificationNeeded,
        };
        let mut answer = self.about(action, code);
        match &action.state {
            State::Approved { .. } if code == Code::ApprovalGranted => {
                if let Some(nonce) = &action.nonce {
                    let agent = &action.binding.agent;
                    self.db.note_token_issued(&action.binding.tenant, action.id(), agent).await?;
                    answer.token = Some(self.keys.load().mint(&bound(action, &nonce.0)));
                }
            }
            State::Executed { outcome } => {
                answer.outcome = outcome.result().filter(|result| !result.is_null()).cloned();
                if answer.outcome.is_none() && code == Code::Succeeded {
                    answer = answer.detail("Its result was too large to be kept.");
                }
                if let Some(detail) = outcome.detail() {
                    answer = answer.detail(format!("Detail: {detail}."));
                }
            }
            State::Invalidated { reason } => answer.reason = Some(reason.clone()),
            State::Returned { reason } => answer = answer.detail(format!("The question: {reason}")),
            _ => {}
        }
        Ok(answer)
    }

    /// An answer about an action, without anything that only some answers carry.
    #[expect(clippy::unused_self, reason = "reads as its neighbours do")]
    pub(super) fn about(&self, action: &Action, code: Code) -> Answer {
        let deadline = match &action.state {
            State::Approved { redeem_by, .. } => *redeem_by,
            _ => action.expires_at,
        };
        Answer::plain(code).about(Standing {
            action: action.id(),
            // Nothing may have swept it yet; its time is over all the same.
            state: if action.due { StateName::Expired } else { action.state.name() },
            deadline,
            approvals: tally(&action.binding.requirement, &action.approvals()).progress,
            places: action.post_to.iter().map(Place::to_string).collect(),
            cards: action.cards.clone(),
        })
    }
}
