//! The one execution of an action: claim with consumption, mark as sent, settle, sweep.

use std::time::Duration;

use super::actions::bytes;
use super::{Db, Result, interval};
use crate::domain::action::Action;
use crate::domain::audit::Event;
use crate::domain::call::Arguments;
use crate::domain::digest::sha256;
use crate::domain::ids::{ActionId, AgentName, Tenant, ToolName, UpstreamName};
use crate::domain::intent::{Outcome, UnknownDetail};
use crate::domain::token::Nonce;

/// The largest upstream result that is kept with the intent, in bytes; a larger one goes to the agent alone.
const MAX_KEPT_RESULT: usize = 256 * 1024;

/// What redemption asks for, after everything outside was read afresh.
pub struct ClaimRequest<'a> {
    /// The action as it was read: what was verified is compared again under the lock.
    pub action: &'a Action,
    /// The row's nonce, which the presented token proved.
    pub nonce: &'a Nonce,
    /// The upstream's idempotency key of this intent.
    pub idempotency_key: String,
    /// A random id of this claim.
    pub claimed_by: String,
    /// How long the upstream call may take in all.
    pub time_limit: Duration,
}

/// Proof that the one claim of an action was won. Only [`Db::claim`] makes it.
#[derive(Debug)]
pub struct Claim {
    action: ActionId,
    upstream: UpstreamName,
    tool: ToolName,
    arguments: Arguments,
    idempotency_key: String,
    claimed_by: String,
    time_limit: Duration,
}

/// Proof that a claim's row says "sent": what an upstream call takes. Only [`Db::mark_sent`] makes it.
#[derive(Debug)]
pub struct Sending(Claim);

impl Sending {
    /// The action.
    pub fn action(&self) -> ActionId {
        self.0.action
    }

    /// The tool to call.
    pub fn tool(&self) -> &ToolName {
        &self.0.tool
    }

    /// The stored arguments.
    pub fn arguments(&self) -> &Arguments {
        &self.0.arguments
    }

    /// Stable for every send of this intent.
    pub fn idempotency_key(&self) -> &str {
        &self.0.idempotency_key
    }

    /// How long the call may take in all.
    pub fn time_limit(&self) -> Duration {
        self.0.time_limit
    }
}

impl Claim {
    /// The upstream to call.
    pub fn upstream(&self) -> &UpstreamName {
        &self.upstream
    }
}

/// An intent that nothing settled in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swept {
    /// The action.
    pub action: ActionId,
    /// Whether the call may have been sent.
    pub unknown: bool,
}

/// Time that a claim has beyond its call's limit before it counts as abandoned.
const SETTLE_GRACE: Duration = Duration::from_secs(15);

impl Db {
    /// Consumes the token, claims the execution and audits it, in one statement. `None`: somebody else did, or the row
    /// is no longer what was verified.
    ///
    /// # Errors
    /// The database. Whether the claim was won is then not known; the sweeper finds it and nothing is sent.
    pub async fn claim(&self, request: ClaimRequest<'_>) -> Result<Option<Claim>> {
        let b = &request.action.binding;
        let event = Event::Claimed {
            agent: b.agent.clone(),
            idempotency_key: request.idempotency_key.clone(),
            claimed_by: request.claimed_by.clone(),
        };
        let won = sqlx::query_scalar!(
            r#"WITH locked AS MATERIALIZED (
                 SELECT id FROM actions WHERE id = $1 AND tenant = $2 AND state = 'approved' FOR NO KEY UPDATE
               ), clk AS MATERIALIZED (
                 SELECT id, clock_timestamp() AS t FROM locked
               ), redeemed AS (
                 UPDATE actions a SET state = 'executing', redeemed_at = clk.t
                   FROM clk
                  WHERE a.id = clk.id AND a.tenant = $2 AND a.agent = $3 AND a.action_digest = $4
                    AND a.state = 'approved' AND a.redeem_by > clk.t
                    AND a.upstream = $10 AND a.tool = $11 AND a.arguments = $12 AND a.tool_version = $13
                    AND a.policy_version = $14 AND a.requirement = $15
                    AND EXISTS (SELECT FROM tokens k WHERE k.action_id = a.id AND k.nonce = $5)
                 RETURNING a.id, a.tenant, a.agent
               ), intent AS (
                 INSERT INTO intents (action_id, tenant, agent, idempotency_key, claimed_by, deadline)
                 SELECT id, tenant, agent, $6, $7, clock_timestamp() + $8::interval FROM redeemed
                 RETURNING action_id
               ), e AS (
                 INSERT INTO audit_events (tenant, action_id, kind, body)
                 SELECT tenant, id, 'claimed', $9 FROM redeemed
               )
               SELECT action_id FROM intent"#,
            b.action.uuid(),
            b.tenant.as_str(),
            b.agent.as_str(),
            &request.action.digest.bytes()[..],
            &request.nonce.bytes()[..],
            request.idempotency_key,
            request.claimed_by,
            interval(request.time_limit + SETTLE_GRACE),
            &event.body(),
            b.upstream.as_str(),
            b.tool.as_str(),
            b.arguments.canonical(),
            &b.tool_version.bytes()[..],
            &b.policy_version.bytes()[..],
            &bytes(&b.requirement)?,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(won.map(|_| Claim {
            action: b.action,
            upstream: b.upstream.clone(),
            tool: b.tool.clone(),
            arguments: b.arguments.clone(),
            idempotency_key: request.idempotency_key,
            claimed_by: request.claimed_by,
            time_limit: request.time_limit,
        }))
    }

    /// Marks the claim as sent, immediately before the first byte. `None`: it is not ours any more; send nothing.
    ///
    /// # Errors
    /// The database: send nothing.
    pub async fn mark_sent(&self, claim: Claim) -> Result<Option<Sending>> {
        let marked = sqlx::query!(
            "UPDATE intents SET sent_at = clock_timestamp()
              WHERE action_id = $1 AND state = 'claimed' AND claimed_by = $2 AND sent_at IS NULL
                AND deadline > clock_timestamp()",
            claim.action.uuid(),
            claim.claimed_by,
        )
        .execute(&self.pool)
        .await?;
        Ok((marked.rows_affected() == 1).then_some(Sending(claim)))
    }

    /// Records the outcome. `false`: a sweeper was faster; its "unknown" is resolved, never overwritten.
    ///
    /// # Errors
    /// The database: the sweeper will say that the outcome is unknown.
    pub async fn settle(&self, sending: &Sending, outcome: &Outcome) -> Result<bool> {
        let text = outcome.result().map(|result| result.to_string().into_bytes());
        let event = match outcome {
            Outcome::Succeeded { .. } => {
                Event::Succeeded { result_sha256: hex::encode(sha256(text.as_deref().unwrap_or_default())) }
            }
            Outcome::Failed { detail, .. } => Event::Failed { detail: detail.as_str() },
            Outcome::Unknown { detail } => Event::OutcomeUnknown { detail: detail.as_str() },
        };
        let kept = text.filter(|text| text.len() <= MAX_KEPT_RESULT);
        let settled = sqlx::query_scalar!(
            r#"WITH i AS (
                 UPDATE intents SET state = $3, finished_at = clock_timestamp(), detail = $4, result = $5
                  WHERE action_id = $1 AND state = 'claimed' AND claimed_by = $2
                 RETURNING action_id
               ), a AS (
                 UPDATE actions SET state = $3
                   FROM i WHERE id = i.action_id AND actions.state = 'executing'
                 RETURNING actions.id, actions.tenant
               ), e AS (
                 INSERT INTO audit_events (tenant, action_id, kind, body) SELECT tenant, id, $3, $6 FROM a
               )
               SELECT id FROM a"#,
            sending.0.action.uuid(),
            sending.0.claimed_by,
            outcome.state(),
            outcome.detail(),
            kept.as_deref(),
            &event.body(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(settled.is_some())
    }

    /// Closes claims that nobody settled in time: never sent is a failure, sent is doubt. Never sends anything.
    ///
    /// # Errors
    /// The database.
    pub async fn sweep_intents(&self) -> Result<Vec<Swept>> {
        let unknown = Event::OutcomeUnknown { detail: UnknownDetail::Abandoned.as_str() };
        let not_sent = Event::Failed { detail: "not_sent" };
        let swept = sqlx::query!(
            r#"WITH due AS MATERIALIZED (
                 SELECT action_id FROM intents WHERE state = 'claimed' AND deadline <= now()
                  ORDER BY deadline LIMIT 200 FOR UPDATE SKIP LOCKED
               ), i AS (
                 UPDATE intents n SET finished_at = clock_timestamp(),
                        state = CASE WHEN n.sent_at IS NULL THEN 'failed' ELSE 'outcome_unknown' END,
                        detail = CASE WHEN n.sent_at IS NULL THEN 'not_sent' ELSE 'abandoned' END
                   FROM due WHERE n.action_id = due.action_id AND n.state = 'claimed'
                 RETURNING n.action_id, n.state
               ), a AS (
                 UPDATE actions SET state = i.state
                   FROM i WHERE actions.id = i.action_id AND actions.state = 'executing'
                 RETURNING actions.id, actions.tenant, actions.state
               ), e AS (
                 INSERT INTO audit_events (tenant, action_id, kind, body)
                 SELECT tenant, id, state, CASE WHEN state = 'failed' THEN $1::bytea ELSE $2::bytea END FROM a
               )
               SELECT id, state = 'outcome_unknown' AS "unknown!" FROM a"#,
            &not_sent.body(),
            &unknown.body(),
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(swept
            .into_iter()
            .map(|row| Swept { action: ActionId::from_uuid(row.id), unknown: row.unknown })
            .collect())
    }

    /// Whether the agent has been handed the token, recorded once.
    ///
    /// # Errors
    /// The database.
    pub async fn note_token_issued(&self, tenant: &Tenant, id: ActionId, agent: &AgentName) -> Result<()> {
        sqlx::query!(
            "INSERT INTO audit_events (tenant, action_id, kind, body)
             SELECT $1, $2, 'token_issued', $3
              WHERE NOT EXISTS (SELECT FROM audit_events WHERE action_id = $2 AND kind = 'token_issued')",
            tenant.as_str(),
            id.uuid(),
            &Event::TokenIssued { agent: agent.clone() }.body(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
