//! A call arrives with a token: every step of DESIGN.md section 5 in order, then one claim, then one upstream call.
//!
//! The first step that fails names the refusal. Nothing is locked or written before the token is proved.

use std::time::Duration;

use super::ports::DirectoryDown;
use super::submit::facts;
use super::{App, Caller, Reply, ToolCall};
use crate::domain::action::{Action, State};
use crate::domain::answer::{Answer, Code};
use crate::domain::audit::{Event, refusal};
use crate::domain::call::Arguments;
use crate::domain::digest::ContentDigest;
use crate::domain::ids::{ActionId, Tenant};
use crate::domain::intent::{FailureDetail, Outcome, UnknownDetail};
use crate::domain::policy::Decision;
use crate::domain::press::Verdict;
use crate::domain::requirement::{admit, tally};
use crate::domain::token::{Bound, Nonce, PresentedToken};
use crate::storage::{self, Claim, ClaimRequest};

/// Why a redemption stops: an answer, or the database.
enum Stop {
    Answer(Box<Answer>),
    Storage(storage::Error),
}

impl From<storage::Error> for Stop {
    fn from(error: storage::Error) -> Self {
        Self::Storage(error)
    }
}

impl From<Answer> for Stop {
    fn from(answer: Answer) -> Self {
        Self::Answer(Box::new(answer))
    }
}

impl App {
    pub(super) async fn redeem(&self, caller: &Caller, call: &ToolCall, token: &str) -> Reply {
        if let Some(left) = self.0.wrong_tokens.closed(caller) {
            return too_many_wrong(left).into();
        }
        let claim = match self.claim(caller, call, token).await {
            Ok(claim) => claim,
            Err(Stop::Answer(answer)) => {
                if answer.code == Code::InvalidToken {
                    self.0.wrong_tokens.count(caller);
                }
                tracing::info!(tenant = %caller.tenant, agent = %caller.agent, code = answer.code.as_str(), "token refused");
                return Reply::Answer(answer);
            }
            Err(Stop::Storage(error)) => {
                tracing::error!(tenant = %caller.tenant, agent = %caller.agent, %error, "redeeming failed");
                return Answer::plain(Code::Unavailable).into();
            }
        };
        self.execute(caller, claim).await
    }

    async fn claim(&self, caller: &Caller, call: &ToolCall, token: &str) -> Result<Claim, Stop> {
        let invalid = || Stop::from(Answer::plain(Code::InvalidToken));
        let keys = self.keys.load_full();
        let presented = keys.read(token).ok_or_else(invalid)?;
        let id = presented.action();
        let action = match self.db.action(&caller.tenant, id).await? {
            Some(action) if action.binding.agent == caller.agent => action,
            _ => {
                // The same answer at once for unknown and foreign; whether it was a genuine token is looked into aside.
                self.look_into_foreign_use(caller, token, id);
                return Err(invalid());
            }
        };
        let nonce = self.prove(&action, &presented).await?;
        self.check_content(caller, call, &action).await?;
        self.check_standing(&action, &nonce).await?;
        self.check_outside(caller, call, &action).await?;
        let Some((_, upstream)) = self.upstream(&caller.tenant, &call.upstream) else {
            return Err(invalid());
        };
        // Reading afresh takes its time; a policy that came into force meanwhile counts.
        self.check_policy(caller, call, &action).await?;
        let request = ClaimRequest {
            action: &action,
            nonce: &nonce,
            idempotency_key: format!("{}-{}", action.id(), hex::encode(self.random::<8>())),
            claimed_by: format!("{}-{}", self.0.replica, hex::encode(self.random::<8>())),
            time_limit: upstream.timeout,
        };
        if let Some(claim) = self.db.claim(request).await? {
            return Ok(claim);
        }
        // Somebody was faster, or the last moment has passed: the row says which.
        match self.db.action(&caller.tenant, id).await? {
            Some(action) => {
                self.check_standing(&action, &nonce).await?;
                Err(Answer::plain(Code::Unavailable).into())
            }
            None => Err(invalid()),
        }
    }

    /// Proves the token against its row; a row that is no longer what was approved raises the alarm.
    async fn prove(&self, action: &Action, presented: &PresentedToken<'_>) -> Result<Nonce, Stop> {
        let Some(nonce) = &action.nonce else { return Err(Answer::plain(Code::InvalidToken).into()) };
        if !action.is_intact() {
            let event = Event::RowTampered { action_digest: action.digest.to_string() };
            self.db.append_audit(&action.binding.tenant, Some(action.id()), &event).await?;
            tracing::error!(tenant = %action.binding.tenant, action = %action.id(), "ALARM: a stored action does not match its digest");
            return Err(Answer::plain(Code::DigestMismatch).into());
        }
        if !presented.proves(&bound(action, &nonce.0)) {
            return Err(Answer::plain(Code::InvalidToken).into());
        }
        Ok(nonce.0.clone())
    }

    /// Whether the row may still be redeemed, as far as the row itself says.
    async fn check_standing(&self, action: &Action, _proved: &Nonce) -> Result<(), Stop> {
        let code = match &action.state {
            State::Approved { .. } if !action.due => return Ok(()),
            State::Approved { .. } | State::Expired => Code::Expired,
            State::Executing { .. } => Code::InProgress,
            State::Executed { outcome: Outcome::Unknown { .. } } => Code::OutcomeUnknown,
            State::Executed { .. } => Code::AlreadyUsed,
            _ => {
                let answer = self.answer(action).await?;
                self.db.append_refusal(&action.binding.tenant, action.id(), &refusal(answer.code)).await?;
                return Err(answer.into());
            }
        };
        self.db.append_refusal(&action.binding.tenant, action.id(), &refusal(code)).await?;
        Err(self.about(action, code).into())
    }

    /// Whether this is the call that was approved.
    async fn check_content(&self, caller: &Caller, call: &ToolCall, action: &Action) -> Result<(), Stop> {
        let presented = Arguments::parse(call.arguments.as_deref()).ok().map(|read| {
            ContentDigest::of(&caller.tenant, &caller.agent, &call.upstream, &call.tool, &read.arguments)
        });
        if presented == Some(action.content) {
            return Ok(());
        }
        let event = Event::Tamper {
            agent: caller.agent.clone(),
            presented_content_digest: presented.map_or_else(String::new, |digest| digest.to_string()),
        };
        self.db.append_refusal(&caller.tenant, action.id(), &event).await?;
        Err(self.about(action, Code::DigestMismatch).into())
    }

    /// What lies outside, read afresh: tool definition, policy, and the standing of everyone who approved.
    async fn check_outside(&self, caller: &Caller, call: &ToolCall, action: &Action) -> Result<(), Stop> {
        let unavailable = |what| Stop::from(self.about(action, Code::Unavailable).detail(what));
        let Some((tenant, upstream)) = self.upstream(&caller.tenant, &call.upstream) else {
            return Err(Answer::plain(Code::InvalidToken).into());
        };
        let tools = upstream.port.tools().await.map_err(|_| unavailable("The upstream can't be reached."))?;
        let definition = tools.iter().find(|tool| tool.name == call.tool);
        if definition.is_none_or(|tool| tool.version != action.binding.tool_version) {
            return self.void(action, Code::ToolChanged).await;
        }
        self.check_policy(caller, call, action).await?;
        let requirement = &action.binding.requirement;
        let policy = tenant.policy.load_full();
        let mut standing = Vec::new();
        for vote in action.votes.iter().filter(|vote| vote.verdict == Verdict::Approve) {
            let candidate = self
                .candidate(&policy, requirement, &vote.account, None, action.binding.owner.as_ref())
                .await
                .map_err(|DirectoryDown| unavailable("The approvers' membership can't be checked."))?;
            let Some(candidate) = candidate else { continue };
            // The person of record, not whoever that account belongs to by now.
            if candidate.person != vote.person {
                continue;
            }
            if let Ok(approver) = admit(requirement, candidate, Verdict::Approve) {
                standing.push((approver.person().clone(), approver.groups().clone()));
            }
        }
        if !tally(requirement, &standing).met {
            return self.void(action, Code::ApproverRevoked).await;
        }
        Ok(())
    }

    /// The policy in force at this moment asks for the very approval that was given, and what the card said of upstream
    /// and owner is still so.
    async fn check_policy(&self, caller: &Caller, call: &ToolCall, action: &Action) -> Result<(), Stop> {
        let Some((tenant, upstream)) = self.upstream(&caller.tenant, &call.upstream) else {
            return Err(Answer::plain(Code::InvalidToken).into());
        };
        let binding = &action.binding;
        let decision =
            tenant.policy.load_full().decide(&facts(caller, call, upstream, binding.arguments.value()));
        let same = matches!(&decision, Decision::RequireApproval(gate)
            if gate.policy_version == binding.policy_version
                && gate.requirement == binding.requirement
                && upstream.environment == binding.environment
                && caller.owner == binding.owner);
        if same { Ok(()) } else { self.void(action, Code::PolicyChanged).await }
    }

    async fn void(&self, action: &Action, code: Code) -> Result<(), Stop> {
        let tenant = &action.binding.tenant;
        let voided = self.db.invalidate(tenant, action.id(), code.as_str()).await?;
        self.changed(&[action.id()]);
        let Some(now) = self.db.action(tenant, action.id()).await? else {
            return Err(Answer::plain(Code::InvalidToken).into());
        };
        // Something else was faster, a deny perhaps: that is the answer then.
        Err(if voided { self.about(&now, code) } else { self.answer(&now).await? }.into())
    }

    /// A genuine token in the wrong hands is worth an audit event; the answer does not wait for it.
    fn look_into_foreign_use(&self, caller: &Caller, token: &str, id: ActionId) {
        let (app, caller, token) = (self.clone(), caller.clone(), token.to_owned());
        self.tasks.spawn(async move {
            let keys = app.keys.load_full();
            let Some(presented) = keys.read(&token) else { return };
            let looked = async {
                let Some(tenant) = app.db.tenant_of(id).await? else { return Ok(()) };
                let Some(action) = app.db.action(&tenant, id).await? else { return Ok(()) };
                let Some(nonce) = &action.nonce else { return Ok(()) };
                if presented.proves(&bound(&action, &nonce.0)) {
                    let event = Event::ForeignUse { agent: caller.agent.clone() };
                    app.db.append_audit(&tenant, Some(id), &event).await?;
                    tracing::warn!(%tenant, action = %id, "a token was presented by somebody else");
                    let text = format!("Agent {} presented a token of action {id} that belongs to another agent. It was refused, and the token is still good for its owner.", caller.agent);
                    app.alert(&tenant, id, &text).await;
                }
                Ok::<(), storage::Error>(())
            };
            if let Err(error) = looked.await {
                tracing::error!(action = %id, %error, "a foreign token could not be looked into");
            }
        });
    }

    async fn execute(&self, caller: &Caller, claim: Claim) -> Reply {
        let unavailable = || Answer::plain(Code::Unavailable).into();
        let Some((_, upstream)) = self.upstream(&caller.tenant, claim.upstream()) else {
            return unavailable();
        };
        let sending = match self.db.mark_sent(claim).await {
            Ok(Some(sending)) => sending,
            // Nothing is sent; the sweeper records that.
            Ok(None) => return unavailable(),
            Err(error) => {
                tracing::error!(tenant = %caller.tenant, %error, "a claim could not be marked as sent");
                return unavailable();
            }
        };
        // The port keeps its own limit; this one ends a port that does not.
        let limit = sending.time_limit() + Duration::from_secs(5);
        let outcome = tokio::time::timeout(limit, upstream.port.execute(&sending))
            .await
            .unwrap_or(Outcome::Unknown { detail: UnknownDetail::Timeout });
        let settled = self.settle(&sending, &outcome).await;
        let id = sending.action();
        self.changed(&[id]);
        if matches!(outcome, Outcome::Unknown { .. }) {
            self.alert_unknown(&caller.tenant, id).await;
        }
        tracing::info!(tenant = %caller.tenant, agent = %caller.agent, action = %id, outcome = outcome.state(), settled, "executed");
        match outcome {
            Outcome::Succeeded { result }
            | Outcome::Failed { result: Some(result), detail: FailureDetail::ToolError } => {
                Reply::Upstream(result)
            }
            Outcome::Failed { detail, .. } => {
                self.told(caller, id, Code::Failed, &format!("Detail: {}.", detail.as_str())).await
            }
            Outcome::Unknown { detail } => {
                self.told(caller, id, Code::OutcomeUnknown, &format!("Detail: {}.", detail.as_str())).await
            }
        }
    }

    /// Records the outcome, and tries a little longer than once: the deed is done and can't be asked for again.
    async fn settle(&self, sending: &storage::Sending, outcome: &Outcome) -> bool {
        for attempt in 0..5_u64 {
            match self.db.settle(sending, outcome).await {
                Ok(settled) => return settled,
                Err(error) => {
                    tracing::error!(action = %sending.action(), %error, "an outcome could not be recorded");
                    tokio::time::sleep(Duration::from_millis(200 << attempt)).await;
                }
            }
        }
        false
    }

    /// An outcome that nobody knows is for people to look into.
    pub(super) async fn alert_unknown(&self, tenant: &Tenant, id: ActionId) {
        let text = format!(
            "The outcome of action {id} is not known: the upstream may or may not have acted. It is not repeated; somebody has to look."
        );
        self.alert(tenant, id, &text).await;
    }

    async fn told(&self, caller: &Caller, id: ActionId, code: Code, detail: &str) -> Reply {
        match self.db.action(&caller.tenant, id).await {
            Ok(Some(action)) => self.about(&action, code).detail(detail).into(),
            _ => Answer::plain(code).detail(detail).into(),
        }
    }
}

/// Says nothing about the token that was presented.
pub(super) fn too_many_wrong(left: Duration) -> Answer {
    Answer::plain(Code::RateLimited).detail(format!(
        "Too many wrong tokens came from this agent; tokens are looked at again in {} s.",
        left.as_secs() + 1
    ))
}

pub(super) fn bound<'a>(action: &'a Action, nonce: &'a Nonce) -> Bound<'a> {
    Bound {
        action: action.id(),
        digest: &action.digest,
        tenant: &action.binding.tenant,
        agent: &action.binding.agent,
        nonce,
    }
}
