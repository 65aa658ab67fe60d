//! What is to be done outside: leased with a fencing number, at least once, one writer a destination.

use std::time::Duration;

use sqlx::types::Uuid;
use sqlx::{PgConnection, PgPool};

use super::error::inconsistent;
use super::{Db, Result, detached, interval};
use crate::domain::audit::Event;
use crate::domain::ids::{ActionId, Tenant};
use crate::domain::place::Place;

/// A leased row.
#[derive(Debug, Clone)]
pub struct Job {
    id: i64,
    owner: String,
    attempt: i32,
    revision: i32,
    /// The action.
    pub action: ActionId,
    /// Its tenant.
    pub tenant: Tenant,
    /// Where to.
    pub place: Place,
    /// What.
    pub kind: JobKind,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobKind {
    /// Make the place's card show the action as it is.
    Card,
    /// Tell one person something; the detail as it was queued.
    Note(String),
    /// Tell a channel something that is no card; the text.
    Alert(String),
}

struct JobRow {
    id: i64,
    action_id: Uuid,
    tenant: String,
    destination: String,
    kind: String,
    detail: String,
    revision: i32,
    attempts: i32,
}

/// A row that can't be read, a newer version's perhaps, is nobody's here and holds up no other.
fn jobs(rows: Vec<JobRow>, owner: &str) -> Vec<Job> {
    let read = |row: JobRow| {
        let id = row.id;
        row.into_job(owner)
            .inspect_err(|error| tracing::error!(id, %error, "an outbox row can't be read"))
            .ok()
    };
    rows.into_iter().filter_map(read).collect()
}

impl JobRow {
    fn into_job(self, owner: &str) -> Result<Job> {
        Ok(Job {
            id: self.id,
            owner: owner.to_owned(),
            attempt: self.attempts,
            revision: self.revision,
            action: ActionId::from_uuid(self.action_id),
            tenant: Tenant::new(self.tenant),
            place: Place::parse(&self.destination).ok_or(inconsistent("outbox", "destination"))?,
            kind: match self.kind.as_str() {
                "card" => JobKind::Card,
                "note" => JobKind::Note(self.detail),
                "alert" => JobKind::Alert(self.detail),
                _ => return Err(inconsistent("outbox", "kind")),
            },
        })
    }
}

impl Job {
    /// How often it has been tried, this time included.
    pub fn attempt(&self) -> u32 {
        u32::try_from(self.attempt).unwrap_or(u32::MAX)
    }
}

impl Db {
    /// Leases new messages for 30 s: one for each channel that has had none for a second, over all replicas, from the
    /// agent whose last one there is longest ago. `most` of them at the most.
    ///
    /// # Errors
    /// The database.
    pub async fn lease_posts(&self, owner: &str, most: i64) -> Result<Vec<Job>> {
        let rows = sqlx::query_as!(
            JobRow,
            r#"WITH free AS MATERIALIZED (
                 SELECT DISTINCT o.destination FROM outbox o
                  WHERE o.posts AND o.not_before <= now()
                    AND NOT EXISTS (SELECT FROM limits l WHERE l.tenant = '' AND l.kind = 'channel'
                                       AND l.subject = o.destination AND l.until > clock_timestamp())
                  LIMIT $2
               ), pick AS MATERIALIZED (
                 SELECT p.id, p.tenant, p.agent, f.destination FROM free f CROSS JOIN LATERAL (
                   SELECT o.id, o.tenant, o.agent FROM outbox o
                     LEFT JOIN limits t ON t.tenant = o.tenant AND t.kind = 'turn'
                          AND t.subject = o.destination || ' ' || o.agent
                    WHERE o.posts AND o.destination = f.destination AND o.not_before <= now()
                    ORDER BY t.until NULLS FIRST, o.id LIMIT 1
                 ) AS p
               ), slot AS (
                 INSERT INTO limits (tenant, kind, subject, until)
                 SELECT '', 'channel', destination, clock_timestamp() + interval '1 second' FROM pick ORDER BY destination
                 ON CONFLICT (tenant, kind, subject) DO UPDATE SET until = excluded.until
                  WHERE limits.until <= clock_timestamp()
                 RETURNING subject
               ), turn AS (
                 INSERT INTO limits (tenant, kind, subject, until)
                 SELECT p.tenant, 'turn', p.destination || ' ' || p.agent, clock_timestamp()
                   FROM pick p JOIN slot s ON s.subject = p.destination ORDER BY p.tenant, p.destination
                 ON CONFLICT (tenant, kind, subject) DO UPDATE SET until = excluded.until
               )
               UPDATE outbox o SET attempts = attempts + 1, lease_owner = $1,
                      not_before = clock_timestamp() + interval '30 seconds'
                 FROM pick p JOIN slot s ON s.subject = p.destination
                WHERE o.id = p.id AND o.not_before <= now()
               RETURNING o.id, o.action_id, o.tenant, o.destination, o.kind, o.detail, o.revision, o.attempts"#,
            owner,
            most,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(jobs(rows, owner))
    }

    /// Whether a lease will last for so long yet: what is done under it must not outlive it.
    ///
    /// # Errors
    /// The database.
    pub async fn holds(&self, job: &Job, time: Duration) -> Result<bool> {
        Ok(sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM outbox WHERE id = $1 AND lease_owner = $2 AND attempts = $3
                               AND not_before > clock_timestamp() + $4::interval) AS "holds!""#,
            job.id,
            job.owner,
            job.attempt,
            interval(time),
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// Sends no new message to a channel for so long: its platform has asked for that.
    ///
    /// # Errors
    /// The database.
    pub async fn close_channel(&self, place: &Place, time: Duration) -> Result<()> {
        sqlx::query!(
            "INSERT INTO limits (tenant, kind, subject, until) VALUES ('', 'channel', $1, clock_timestamp() + $2::interval)
             ON CONFLICT (tenant, kind, subject) DO UPDATE SET until = greatest(limits.until, excluded.until)",
            place.to_string(),
            interval(time),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Leases due edits and notes for 30 s, `most` of them at the most.
    ///
    /// # Errors
    /// The database.
    pub async fn lease_jobs(&self, owner: &str, most: i64) -> Result<Vec<Job>> {
        let rows = sqlx::query_as!(
            JobRow,
            "WITH c AS MATERIALIZED (
               SELECT id FROM outbox WHERE not_before <= now() AND NOT posts ORDER BY not_before, id LIMIT $2
                FOR UPDATE SKIP LOCKED
             )
             UPDATE outbox o SET attempts = attempts + 1, lease_owner = $1,
                    not_before = clock_timestamp() + interval '30 seconds'
               FROM c WHERE o.id = c.id
             RETURNING o.id, o.action_id, o.tenant, o.destination, o.kind, o.detail, o.revision, o.attempts",
            owner,
            most,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(jobs(rows, owner))
    }

    /// Queues a message about an action to every one of these places.
    ///
    /// # Errors
    /// The database.
    pub async fn queue_alert(
        &self,
        action: ActionId,
        tenant: &Tenant,
        places: &[Place],
        text: &str,
    ) -> Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        queue_alert(&mut *self.pool.acquire().await?, action, tenant, places, text).await
    }

    /// Takes a finished row off, unless a newer revision was queued meanwhile: that one is then due at once.
    ///
    /// # Errors
    /// The database; the row comes back after its lease.
    pub async fn finish_job(&self, job: &Job, shown: i32) -> Result<()> {
        let shown = shown.max(job.revision);
        let done = sqlx::query!(
            "DELETE FROM outbox WHERE id = $1 AND lease_owner = $2 AND attempts = $3 AND revision <= $4",
            job.id,
            job.owner,
            job.attempt,
            shown,
        )
        .execute(&self.pool)
        .await?;
        if done.rows_affected() == 0 {
            // A statement of its own, with eyes of its own: what was queued while the first one waited for the row would
            // be invisible to a second half of it.
            sqlx::query!(
                "UPDATE outbox SET not_before = clock_timestamp(), attempts = 0, posts = false
                  WHERE id = $1 AND lease_owner = $2 AND attempts = $3 AND revision > $4",
                job.id,
                job.owner,
                job.attempt,
                shown,
            )
            .execute(&self.pool)
            .await?;
        }
        Ok(())
    }

    /// Puts a row off.
    ///
    /// # Errors
    /// The database; the row comes back after its lease.
    pub async fn defer_job(&self, job: &Job, delay: Duration) -> Result<()> {
        sqlx::query!(
            "UPDATE outbox SET not_before = clock_timestamp() + $4::interval
              WHERE id = $1 AND lease_owner = $2 AND attempts = $3",
            job.id,
            job.owner,
            job.attempt,
            interval(delay),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Gives a place up for good. When it was the last one and nothing was ever posted, the pending action is
    /// `undeliverable`; `true` then.
    ///
    /// # Errors
    /// The database; the row comes back after its lease.
    pub async fn give_up_job(&self, job: Job, error: String) -> Result<bool> {
        let pool = self.pool.clone();
        detached(give_up(pool, job, error)).await
    }
}

/// Queues a message about an action, in a transaction of the caller's.
pub(super) async fn queue_alert(
    connection: &mut PgConnection,
    action: ActionId,
    tenant: &Tenant,
    places: &[Place],
    text: &str,
) -> Result<()> {
    let places: Vec<String> = places.iter().map(Place::to_string).collect();
    sqlx::query!(
        "INSERT INTO outbox (action_id, tenant, agent, destination, kind, detail, posts)
         SELECT a.id, a.tenant, a.agent, place, 'alert', $4, true FROM actions a, unnest($3::text[]) AS place
          WHERE a.id = $1 AND a.tenant = $2
         ON CONFLICT (action_id, destination, kind, detail) DO NOTHING",
        action.uuid(),
        tenant.as_str(),
        &places,
        text,
    )
    .execute(connection)
    .await?;
    Ok(())
}

async fn give_up(pool: PgPool, job: Job, error: String) -> Result<bool> {
    #[expect(clippy::disallowed_methods, reason = "inside a detached task: nothing can cancel this begin")]
    let mut tx = pool.begin().await?;
    sqlx::query!("SELECT id FROM actions WHERE id = $1 FOR NO KEY UPDATE", job.action.uuid())
        .fetch_optional(&mut *tx)
        .await?;
    let gone = sqlx::query!(
        "DELETE FROM outbox WHERE id = $1 AND lease_owner = $2 AND attempts = $3",
        job.id,
        job.owner,
        job.attempt,
    )
    .execute(&mut *tx)
    .await?;
    if gone.rows_affected() == 0 {
        return Ok(false);
    }
    let failed = Event::PostFailed { place: job.place.to_string(), error };
    let closed = sqlx::query_scalar!(
        "WITH x AS (
           UPDATE actions a SET state = 'undeliverable', decided_at = clock_timestamp()
            WHERE a.id = $1 AND a.state = 'pending'
              AND NOT EXISTS (SELECT FROM outbox o WHERE o.action_id = a.id AND o.kind = 'card')
              AND NOT EXISTS (SELECT FROM cards c WHERE c.action_id = a.id AND c.message_id IS NOT NULL)
           RETURNING a.id, a.tenant
         ), f AS (
           INSERT INTO audit_events (tenant, action_id, kind, body) VALUES ($2, $1, 'post_failed', $3)
         ), e AS (
           INSERT INTO audit_events (tenant, action_id, kind, body) SELECT tenant, id, 'undeliverable', $4 FROM x
         )
         SELECT id FROM x",
        job.action.uuid(),
        job.tenant.as_str(),
        &failed.body(),
        &Event::Undeliverable {}.body(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(closed.is_some())
}
