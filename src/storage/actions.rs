//! Parking, reading and closing actions.

use std::time::Duration;

use sqlx::types::Uuid;
use time::OffsetDateTime;

use super::error::inconsistent;
use super::row::{ActionRow, VoteRow};
use super::{Db, Error, Result, interval};
use crate::domain::action::{Action, StateName};
use crate::domain::audit::{Erasable, Event};
use crate::domain::canonical::canonical;
use crate::domain::digest::{ActionDigest, Binding, ContentDigest};
use crate::domain::ids::{ActionId, AgentName, Person, RuleName, Tenant};
use crate::domain::place::Place;
use crate::domain::policy::{Limits, Risk};
use crate::domain::preview::Preview;

/// An action about to be parked.
pub struct NewAction<'a> {
    /// Everything that is bound.
    pub binding: &'a Binding,
    /// Its digest.
    pub digest: ActionDigest,
    /// The call's digest.
    pub content: ContentDigest,
    /// What people will be shown.
    pub preview: &'a Preview,
    /// The rules that matched.
    pub rules: &'a [RuleName],
    /// Their highest risk.
    pub risk: Risk,
    /// Where cards go.
    pub post_to: &'a [Place],
    /// Time to decide.
    pub expires: Duration,
    /// Time to redeem.
    pub redeem_within: Duration,
    /// The digest of what the call amounts to.
    pub cosmetic: [u8; 32],
    /// What bounds the agent's asking.
    pub limits: &'a Limits,
    /// The `parked` event.
    pub event: &'a Event,
    /// What of the event is erasable.
    pub erasable: &'a Erasable,
}

/// What parking came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parked {
    /// A new action, with its audit event and outbox rows, in one statement.
    New,
    /// The same call is live already: no second card.
    Standing(ActionId),
    /// The same call was denied, and that is remembered.
    Denied(ActionId),
    /// What amounts to the same call was denied, and that is remembered.
    DeniedRecently(ActionId),
    /// The agent asks too much: which limit stands against it.
    Limited(AskLimit),
}

/// A limit on asking for approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskLimit {
    /// The agent is paused until then.
    Paused(Option<OffsetDateTime>),
    /// `asks_per_minute`.
    AsksPerMinute,
    /// `pending_per_agent`.
    PendingPerAgent,
    /// `pending_per_owner`.
    PendingPerOwner,
    /// `pending_per_group`.
    PendingPerGroup,
}

enum Inserted {
    Parked,
    Refused(Option<String>),
}

impl Db {
    /// Parks a call, once for each content.
    ///
    /// # Errors
    /// The database; nothing is parked then, or the retry finds what was.
    pub async fn park(&self, new: &NewAction<'_>) -> Result<Parked> {
        // A due action that nothing has swept yet must not stand in the way.
        self.expire_content(&new.binding.tenant, new.content).await?;
        // What stands in the way can go away between the two statements; each round meets another row.
        for _ in 0..4 {
            let refusal = match self.insert(new).await? {
                Inserted::Parked => return Ok(Parked::New),
                Inserted::Refused(refusal) => refusal,
            };
            let limit = match refusal.as_deref() {
                None | Some("standing" | "denied" | "denied_recently") => None,
                Some("paused") => {
                    Some(AskLimit::Paused(self.paused_until(&new.binding.tenant, &new.binding.agent).await?))
                }
                Some("asks_per_minute") => Some(AskLimit::AsksPerMinute),
                Some("pending_per_agent") => Some(AskLimit::PendingPerAgent),
                Some("pending_per_owner") => Some(AskLimit::PendingPerOwner),
                Some("pending_per_group") => Some(AskLimit::PendingPerGroup),
                Some(_) => return Err(inconsistent("limits", "limits_admit")),
            };
            if let Some(limit) = limit {
                return Ok(Parked::Limited(limit));
            }
            if let Some(standing) = self.obstacle(new).await? {
                return Ok(standing);
            }
        }
        Err(Error::Unavailable)
    }

    /// Until when an agent may ask for nothing.
    ///
    /// # Errors
    /// The database.
    pub async fn paused_until(&self, tenant: &Tenant, agent: &AgentName) -> Result<Option<OffsetDateTime>> {
        let until = sqlx::query_scalar!(
            "SELECT until FROM limits
              WHERE tenant = $1 AND kind = 'agent' AND subject = $2 AND until > clock_timestamp()",
            tenant.as_str(),
            agent.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(until.flatten())
    }

    async fn insert(&self, new: &NewAction<'_>) -> Result<Inserted> {
        let b = new.binding;
        let limits = new.limits;
        let groups: Vec<String> = b.requirement.groups().map(|group| group.as_str().to_owned()).collect();
        let requirement = bytes(&b.requirement)?;
        let preconditions = bytes(&b.preconditions)?;
        let preview = bytes(new.preview)?;
        let barred = match (&b.owner, b.requirement.separate_proposer) {
            (Some(owner), true) => owner.as_str(),
            _ => "",
        };
        let rules: Vec<String> = new.rules.iter().map(|rule| rule.as_str().to_owned()).collect();
        let post_to: Vec<String> = new.post_to.iter().map(Place::to_string).collect();
        let inserted = sqlx::query!(
            r#"WITH admitted AS MATERIALIZED (
                 SELECT limits_admit($2, $3, $4, $27, $14, $28, $23, $29, $30, $31, $32) AS refusal
               ), a AS (
                 INSERT INTO actions (id, tenant, agent, owner, run, upstream, environment, tool, tool_version,
                   policy_version, requirement, preconditions, arguments, content_digest, action_digest, barred_person,
                   preview, facts, rules, risk, post_to, expires_at, redeem_within, asked_groups, cosmetic_digest)
                 SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, '{}'::bytea, $18, $19,
                   $20, clock_timestamp() + $21::interval, $22, $27, $28
                   FROM admitted WHERE refusal IS NULL
                 ON CONFLICT (tenant, content_digest)
                   WHERE state IN ('pending', 'approved', 'executing', 'outcome_unknown') DO NOTHING
                 RETURNING id, tenant, agent, post_to, revision
               ), o AS (
                 INSERT INTO outbox (action_id, tenant, agent, destination, kind, revision, posts)
                 SELECT a.id, a.tenant, a.agent, place, 'card', a.revision, true FROM a, unnest(a.post_to) AS place
               ), e AS (
                 INSERT INTO audit_events (tenant, action_id, kind, body) SELECT tenant, id, 'parked', $24 FROM a
                 RETURNING id, at
               ), s AS (
                 INSERT INTO audit_subjects (event_id, event_at, subject, salt) SELECT id, at, $25, $26 FROM e
               )
               SELECT (SELECT id FROM a) AS parked, refusal FROM admitted"#,
            b.action.uuid(),
            b.tenant.as_str(),
            b.agent.as_str(),
            b.owner.as_ref().map(Person::as_str),
            b.run.as_deref(),
            b.upstream.as_str(),
            b.environment.as_deref(),
            b.tool.as_str(),
            &b.tool_version.bytes()[..],
            &b.policy_version.bytes()[..],
            &requirement,
            &preconditions,
            b.arguments.canonical(),
            &new.content.bytes()[..],
            &new.digest.bytes()[..],
            barred,
            &preview,
            &rules,
            new.risk.as_str(),
            &post_to,
            interval(new.expires),
            interval(new.redeem_within),
            limits.denial_memory.duration().map(interval),
            &new.event.body(),
            &new.erasable.subject,
            &new.erasable.salt[..],
            &groups,
            &new.cosmetic[..],
            count(limits.asks_per_minute),
            count(limits.pending_per_agent),
            limits.pending_per_owner.map(count),
            limits.pending_per_group.map(count),
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(match inserted.parked {
            Some(_) => Inserted::Parked,
            None => Inserted::Refused(inserted.refusal),
        })
    }

    async fn obstacle(&self, new: &NewAction<'_>) -> Result<Option<Parked>> {
        let row = sqlx::query!(
            r#"SELECT id, state = 'denied' AS "denied!", content_digest = $2 AS "same!" FROM actions
                WHERE tenant = $1
                  AND (content_digest = $2 AND state IN ('pending', 'approved', 'executing', 'outcome_unknown')
                       OR (content_digest = $2 OR cosmetic_digest = $4) AND state = 'denied'
                          AND ($3::interval IS NULL OR decided_at > clock_timestamp() - $3::interval))
                ORDER BY state = 'denied', content_digest <> $2, id DESC LIMIT 1"#,
            new.binding.tenant.as_str(),
            &new.content.bytes()[..],
            new.limits.denial_memory.duration().map(interval),
            &new.cosmetic[..],
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| {
            let id = ActionId::from_uuid(row.id);
            match (row.denied, row.same) {
                (false, _) => Parked::Standing(id),
                (true, true) => Parked::Denied(id),
                (true, false) => Parked::DeniedRecently(id),
            }
        }))
    }

    async fn expire_content(&self, tenant: &Tenant, content: ContentDigest) -> Result<()> {
        sqlx::query!(
            r#"WITH due AS MATERIALIZED (
                 SELECT id FROM actions
                  WHERE tenant = $1 AND content_digest = $2 AND state IN ('pending', 'approved')
                    AND coalesce(redeem_by, expires_at) <= now() FOR NO KEY UPDATE
               ), x AS (
                 UPDATE actions a SET state = 'expired',
                        decided_at = coalesce(a.decided_at, clock_timestamp())
                   FROM due WHERE a.id = due.id AND a.state IN ('pending', 'approved')
                 RETURNING a.id, a.tenant
               )
               INSERT INTO audit_events (tenant, action_id, kind, body) SELECT tenant, id, 'expired', $3 FROM x"#,
            tenant.as_str(),
            &content.bytes()[..],
            &Event::Expired {}.body(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Expires what is due, for every tenant, in one batch; any replica may do it at any time.
    ///
    /// # Errors
    /// The database.
    pub async fn expire_due(&self) -> Result<Vec<ActionId>> {
        let ids = sqlx::query_scalar!(
            r#"WITH due AS MATERIALIZED (
                 SELECT id FROM actions
                  WHERE state IN ('pending', 'approved') AND coalesce(redeem_by, expires_at) <= now()
                  ORDER BY coalesce(redeem_by, expires_at) LIMIT 200 FOR NO KEY UPDATE SKIP LOCKED
               ), x AS (
                 UPDATE actions a SET state = 'expired',
                        decided_at = coalesce(a.decided_at, clock_timestamp())
                   FROM due WHERE a.id = due.id AND a.state IN ('pending', 'approved')
                 RETURNING a.id, a.tenant
               ), e AS (
                 INSERT INTO audit_events (tenant, action_id, kind, body) SELECT tenant, id, 'expired', $1 FROM x
               )
               SELECT id FROM x"#,
            &Event::Expired {}.body(),
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(ids.into_iter().map(ActionId::from_uuid).collect())
    }

    /// Withdraws an action for its agent. `false`: it was not pending or approved any more, or not that agent's.
    ///
    /// # Errors
    /// The database.
    pub async fn cancel(&self, tenant: &Tenant, agent: &AgentName, id: ActionId) -> Result<bool> {
        let event = Event::Cancelled { by: format!("agent {agent}") };
        self.close_action(tenant, Some(agent), id, StateName::Cancelled, None, &event).await
    }

    /// Withdraws an action for an operator. `false`: it was not pending or approved any more.
    ///
    /// # Errors
    /// The database.
    pub async fn cancel_by_operator(&self, tenant: &Tenant, id: ActionId, name: &str) -> Result<bool> {
        let by = format!("operator {name}");
        let event = Event::Cancelled { by: by.clone() };
        self.close_action(tenant, None, id, StateName::Cancelled, Some(&by), &event).await
    }

    /// Voids an action because something that was approved changed. `false`: it was over already.
    ///
    /// # Errors
    /// The database.
    pub async fn invalidate(&self, tenant: &Tenant, id: ActionId, reason: &str) -> Result<bool> {
        let event = Event::Invalidated { reason: reason.to_owned() };
        self.close_action(tenant, None, id, StateName::Invalidated, Some(reason), &event).await
    }

    async fn close_action(
        &self,
        tenant: &Tenant,
        agent: Option<&AgentName>,
        id: ActionId,
        state: StateName,
        reason: Option<&str>,
        event: &Event,
    ) -> Result<bool> {
        let closed = sqlx::query_scalar!(
            r#"WITH locked AS MATERIALIZED (
                 SELECT id FROM actions WHERE id = $1 AND tenant = $2 AND ($3::text IS NULL OR agent = $3)
                  FOR NO KEY UPDATE
               ), clk AS MATERIALIZED (SELECT id, clock_timestamp() AS t FROM locked), x AS (
                 UPDATE actions a SET state = $4, reason = $5, decided_at = clk.t
                   FROM clk WHERE a.id = clk.id AND a.state IN ('pending', 'approved')
                    AND coalesce(a.redeem_by, a.expires_at) > clk.t
                 RETURNING a.id, a.tenant
               ), e AS (
                 INSERT INTO audit_events (tenant, action_id, kind, body) SELECT tenant, id, $6, $7 FROM x
               )
               SELECT id FROM x"#,
            id.uuid(),
            tenant.as_str(),
            agent.map(AgentName::as_str),
            state.as_str(),
            reason,
            event.kind(),
            &event.body(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(closed.is_some())
    }

    /// An action of a tenant, with its votes.
    ///
    /// # Errors
    /// The database, or a row that no code path writes.
    pub async fn action(&self, tenant: &Tenant, id: ActionId) -> Result<Option<Action>> {
        let row = sqlx::query_as!(
            ActionRow,
            r#"SELECT a.id, a.tenant, a.agent, a.owner, a.run, a.upstream, a.environment, a.tool, a.tool_version,
                      a.policy_version, a.requirement, a.preconditions, a.arguments, a.content_digest, a.action_digest,
                      a.preview, a.rules, a.risk, a.post_to, a.state, a.reason, a.revision, a.created_at, a.expires_at,
                      a.decided_at, a.redeem_by, a.redeemed_at, t.nonce AS "nonce?", i.detail, i.result,
                      (a.state IN ('pending', 'approved')
                         AND coalesce(a.redeem_by, a.expires_at) <= clock_timestamp()) AS due,
                      ARRAY(SELECT c.permalink FROM cards c
                             WHERE c.action_id = a.id AND c.permalink IS NOT NULL
                             ORDER BY array_position(a.post_to,
                               c.platform || ':' || c.installation || '/' || c.channel), c.created_at) AS "links: Vec<String>"
                 FROM actions a
                 LEFT JOIN tokens t ON t.action_id = a.id
                 LEFT JOIN intents i ON i.action_id = a.id
                WHERE a.id = $1 AND a.tenant = $2"#,
            id.uuid(),
            tenant.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let votes = self.votes(row.id).await?;
        row.into_action(votes).map(Some)
    }

    async fn votes(&self, id: Uuid) -> Result<Vec<VoteRow>> {
        Ok(sqlx::query_as!(
            VoteRow,
            "SELECT person, verdict, groups, platform, installation, user_id, voted_at FROM votes
              WHERE action_id = $1 ORDER BY voted_at, person",
            id,
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// The tenant of an action.
    ///
    /// # Errors
    /// The database.
    pub async fn tenant_of(&self, id: ActionId) -> Result<Option<Tenant>> {
        let tenant = sqlx::query_scalar!("SELECT tenant FROM actions WHERE id = $1", id.uuid())
            .fetch_optional(&self.pool)
            .await?;
        Ok(tenant.map(Tenant::new))
    }
}

pub(super) fn bytes<T: serde::Serialize>(value: &T) -> Result<Vec<u8>> {
    canonical(value).map_err(|_| Error::Driver("canonical".to_owned()))
}

fn count(limit: u32) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX)
}
