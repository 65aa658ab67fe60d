//! The audit chain: giving events their place, and reading the chain back.
//!
//! The sequencer takes no lock that a request takes. It sees committed events only, so an event that commits late gets
//! its place then, and `seq` has no gaps. One replica does it at a time; the keys of `audit_chain` hold if two tried.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};
use sqlx::PgPool;

use super::error::inconsistent;
use super::{Db, Result, detached};
use crate::domain::chain::{self, GENESIS, Hash, StoredEvent};
use crate::domain::ids::{ActionId, Tenant};

/// How many events get their place in one transaction.
const BATCH: i64 = 500;

/// How many rows of the chain are read at once.
const PAGE: i64 = 500;

/// The advisory lock of the sequencer. Nothing else takes it.
const SEQUENCER: i64 = 0x756e_6465_7273_0001;

/// A place in a chain, with what is there.
#[derive(Debug, Clone)]
pub struct ChainRow {
    /// The place.
    pub seq: i64,
    /// The hash before it.
    pub prev: Hash,
    /// Its hash.
    pub hash: Hash,
    /// The number of its event over all tenants.
    pub event_id: i64,
    /// The event, unless it is gone.
    pub event: Option<StoredEvent>,
    /// Canonical bytes of what is erasable, while it is there.
    pub subject: Option<Vec<u8>>,
    /// Its salt.
    pub salt: Option<Vec<u8>>,
}

impl ChainRow {
    /// The exported line. `None`: the event is gone.
    pub fn line(&self) -> Option<Map<String, Value>> {
        let object = chain::placed(self.event.as_ref()?, self.seq, &self.prev);
        Some(chain::line(object, &self.hash, self.subject.as_deref(), self.salt.as_deref()))
    }
}

impl Db {
    /// Gives the oldest events that await one their place. How many; 0 also when another replica is at it.
    ///
    /// # Errors
    /// The database; nothing has changed then.
    pub async fn sequence(&self) -> Result<usize> {
        detached(sequence(self.pool.clone())).await
    }

    /// Gives every event that awaits one its place, or waits until another replica has.
    ///
    /// # Errors
    /// The database.
    pub async fn sequence_to_end(&self) -> Result<()> {
        // New ones may come faster than this ends; those of the beginning have their place long before.
        for _ in 0..200 {
            while self.sequence().await? > 0 {}
            if !self.awaits_place().await? {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        Ok(())
    }

    async fn awaits_place(&self) -> Result<bool> {
        Ok(sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT FROM audit_pending p CROSS JOIN LATERAL (
                 SELECT FROM audit_events WHERE id = p.event_id AND at = p.event_at OFFSET 0) e) AS "some!""#
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// The tenants that have a chain, by the chain itself.
    ///
    /// # Errors
    /// The database.
    pub async fn chained_tenants(&self) -> Result<Vec<Tenant>> {
        // One step into the index for each tenant.
        let names = sqlx::query_scalar!(
            r#"WITH RECURSIVE t AS (
                 (SELECT tenant FROM audit_chain ORDER BY tenant LIMIT 1)
                 UNION ALL
                 SELECT (SELECT c.tenant FROM audit_chain c WHERE c.tenant > t.tenant ORDER BY c.tenant LIMIT 1)
                   FROM t WHERE t.tenant IS NOT NULL
               )
               SELECT tenant AS "tenant!" FROM t WHERE tenant IS NOT NULL"#,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(names.into_iter().map(Tenant::new).collect())
    }

    /// The next page of a tenant's chain; empty at its end.
    ///
    /// # Errors
    /// The database.
    pub async fn chain_page(&self, tenant: &Tenant, after: i64) -> Result<Vec<ChainRow>> {
        page(&self.pool, tenant.as_str(), after).await
    }

    /// The rows of one action in its tenant's chain.
    ///
    /// # Errors
    /// The database.
    pub async fn chain_of(&self, action: ActionId) -> Result<Vec<(Tenant, ChainRow)>> {
        let places = sqlx::query!(
            "SELECT c.tenant, c.seq FROM audit_events e
               JOIN audit_chain c ON c.event_id = e.id AND c.event_at = e.at
              WHERE e.action_id = $1 ORDER BY c.tenant, c.seq",
            action.uuid(),
        )
        .fetch_all(&self.pool)
        .await?;
        let mut rows = Vec::new();
        for place in places {
            let tenant = Tenant::new(place.tenant);
            let row = self.chain_page(&tenant, place.seq - 1).await?.into_iter().next();
            rows.extend(row.map(|row| (tenant, row)));
        }
        Ok(rows)
    }

    /// Whether this role could change audit rows, were it not for the triggers.
    ///
    /// # Errors
    /// The database.
    pub async fn may_change_audit_rows(&self) -> Result<bool> {
        Ok(sqlx::query_scalar!(
            r#"SELECT has_table_privilege('audit_events', 'UPDATE, DELETE, TRUNCATE')
                   OR has_table_privilege('audit_chain', 'UPDATE, DELETE, TRUNCATE') AS "may!""#
        )
        .fetch_one(&self.pool)
        .await?)
    }
}

/// A page of a tenant's chain, on whatever connection.
pub(super) async fn page<'c>(
    executor: impl sqlx::PgExecutor<'c>,
    tenant: &str,
    after: i64,
) -> Result<Vec<ChainRow>> {
    let rows = sqlx::query!(
        r#"SELECT c.seq, c.prev, c.hash, c.event_id, e.at AS "at?", e.tenant AS "event_tenant?", e.action_id AS "action_id?",
                  e.kind AS "kind?", e.body AS "body?", s.subject AS "subject?", s.salt AS "salt?"
             FROM audit_chain c
             LEFT JOIN audit_events e ON e.id = c.event_id AND e.at = c.event_at
             LEFT JOIN audit_subjects s ON s.event_id = c.event_id AND s.event_at = c.event_at
            WHERE c.tenant = $1 AND c.seq > $2 ORDER BY c.seq LIMIT $3"#,
        tenant,
        after,
        PAGE,
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter()
        .map(|row| {
            let event = match (row.at, row.event_tenant, row.kind, row.body) {
                (Some(at), Some(tenant), Some(kind), Some(body)) => Some(StoredEvent {
                    at,
                    tenant,
                    action: row.action_id.map(ActionId::from_uuid),
                    kind,
                    body,
                }),
                _ => None,
            };
            Ok(ChainRow {
                seq: row.seq,
                prev: hash(&row.prev, "audit_chain")?,
                hash: hash(&row.hash, "audit_chain")?,
                event_id: row.event_id,
                event,
                subject: row.subject,
                salt: row.salt,
            })
        })
        .collect()
}

pub(super) fn hash(stored: &[u8], table: &'static str) -> Result<Hash> {
    stored.try_into().map_err(|_| inconsistent(table, "hash"))
}

async fn sequence(pool: PgPool) -> Result<usize> {
    #[expect(clippy::disallowed_methods, reason = "inside a detached task: nothing can cancel this begin")]
    let mut tx = pool.begin().await?;
    // A statement of its own: what follows must see all that the last holder committed.
    let ours = sqlx::query_scalar!(r#"SELECT pg_try_advisory_xact_lock($1) AS "ours!""#, SEQUENCER)
        .fetch_one(&mut *tx)
        .await?;
    if !ours {
        return Ok(0);
    }
    // An event that went away meanwhile stays queued: verification tells of it.
    let events = sqlx::query!(
        r#"WITH due AS MATERIALIZED (
             SELECT p.event_id, p.event_at, e.tenant, e.action_id, e.kind, e.body
               FROM audit_pending p
               -- OFFSET 0 keeps this a look-up for each row, whatever the planner knows about the queue.
               CROSS JOIN LATERAL (
                 SELECT tenant, action_id, kind, body FROM audit_events
                  WHERE id = p.event_id AND at = p.event_at OFFSET 0
               ) e
              ORDER BY p.event_id LIMIT $1
           ), taken AS (
             DELETE FROM audit_pending p USING due
              WHERE p.event_id = due.event_id AND p.event_at = due.event_at
           )
           SELECT event_id AS "id!", event_at AS "at!", tenant AS "tenant!", action_id, kind AS "kind!", body AS "body!"
             FROM due ORDER BY event_id"#,
        BATCH,
    )
    .fetch_all(&mut *tx)
    .await?;
    if events.is_empty() {
        return Ok(0);
    }
    let tenants: Vec<String> = events.iter().map(|event| event.tenant.clone()).collect();
    let heads = sqlx::query!("SELECT tenant, seq, hash FROM audit_head WHERE tenant = ANY($1)", &tenants)
        .fetch_all(&mut *tx)
        .await?;
    let mut ends = BTreeMap::new();
    for head in heads {
        ends.insert(head.tenant, (head.seq, hash(&head.hash, "audit_head")?));
    }
    let (mut seqs, mut ids, mut times) = (Vec::new(), Vec::new(), Vec::new());
    let (mut prevs, mut hashes) = (Vec::new(), Vec::new());
    for event in events {
        let end = ends.entry(event.tenant.clone()).or_insert((0, GENESIS));
        let stored = StoredEvent {
            at: event.at,
            tenant: event.tenant,
            action: event.action_id.map(ActionId::from_uuid),
            kind: event.kind,
            body: event.body,
        };
        let (seq, prev) = (end.0 + 1, end.1);
        // Every placed object has a canonical form; the column's name is what a defect would be found by.
        let hash =
            chain::hash(&chain::placed(&stored, seq, &prev)).ok_or(inconsistent("audit_events", "body"))?;
        *end = (seq, hash);
        seqs.push(seq);
        ids.push(event.id);
        times.push(event.at);
        prevs.push(prev.to_vec());
        hashes.push(hash.to_vec());
    }
    let placed = ids.len();
    sqlx::query!(
        "INSERT INTO audit_chain (tenant, seq, event_id, event_at, prev, hash)
         SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::timestamptz[], $5::bytea[], $6::bytea[])",
        &tenants,
        &seqs,
        &ids,
        &times,
        &prevs,
        &hashes,
    )
    .execute(&mut *tx)
    .await?;
    for (tenant, (seq, hash)) in ends {
        sqlx::query!(
            "INSERT INTO audit_head (tenant, seq, hash) VALUES ($1, $2, $3)
             ON CONFLICT (tenant) DO UPDATE SET seq = excluded.seq, hash = excluded.hash",
            tenant,
            seq,
            &hash[..],
        )
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    Ok(placed)
}
