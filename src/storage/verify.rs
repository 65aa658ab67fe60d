//! Verifying what is stored: all of it, as it is at one moment.

use sqlx::PgPool;

use super::chain::{hash, page};
use super::{Db, Result, detached};
use crate::domain::chain::at_text;
use crate::domain::verify::{Checker, Report};

/// How many stray events are named; more say nothing more.
const STRAYS: i64 = 1000;

impl Db {
    /// Shows everything to a checker: chains, heads, checkpoints, and what is in one table and not in the other. What
    /// awaits its place at this moment is not part of any chain yet.
    ///
    /// # Errors
    /// The database.
    pub async fn verify_audit(&self, checker: Checker) -> Result<Report> {
        detached(verify(self.pool.clone(), checker.whole())).await
    }
}

async fn verify(pool: PgPool, mut checker: Checker) -> Result<Report> {
    #[expect(clippy::disallowed_methods, reason = "inside a detached task: nothing can cancel this begin")]
    let mut tx = pool.begin().await?;
    sqlx::query!("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY").execute(&mut *tx).await?;
    // This looks at everything once and holds no lock that anybody waits for.
    sqlx::query!("SET LOCAL statement_timeout = '15min'").execute(&mut *tx).await?;
    sqlx::query!("SET LOCAL idle_in_transaction_session_timeout = '1min'").execute(&mut *tx).await?;
    let tenants = sqlx::query_scalar!(r#"SELECT DISTINCT tenant AS "tenant!" FROM audit_chain ORDER BY 1"#)
        .fetch_all(&mut *tx)
        .await?;
    for tenant in tenants {
        let mut after = i64::MIN;
        loop {
            let rows = page(&mut *tx, &tenant, after).await?;
            let Some(last) = rows.last() else { break };
            after = last.seq;
            for row in rows {
                match row.line() {
                    // The row of another tenant's chain is looked for in that of the chain.
                    Some(line) => {
                        let own = line.get("tenant").is_some_and(|name| *name == *tenant);
                        if !own || checker.row(&line).is_none() {
                            checker.misplaced(&tenant, row.seq, row.prev, row.hash);
                        }
                    }
                    None => checker.gone(&tenant, row.seq, row.prev, row.hash, row.event_id),
                }
            }
        }
    }
    let heads = sqlx::query!("SELECT tenant, seq, hash FROM audit_head").fetch_all(&mut *tx).await?;
    for head in heads {
        checker.head(&head.tenant, head.seq, hash(&head.hash, "audit_head")?);
    }
    let signed = sqlx::query_scalar!("SELECT signed FROM audit_checkpoints ORDER BY tenant, seq")
        .fetch_all(&mut *tx)
        .await?;
    for checkpoint in signed {
        checker.checkpoint(&serde_json::from_slice(&checkpoint).unwrap_or_default());
    }
    let strays = sqlx::query!(
        "SELECT e.id, e.at, e.tenant, e.kind FROM audit_events e
          WHERE NOT EXISTS (SELECT FROM audit_chain c WHERE c.event_id = e.id AND c.event_at = e.at)
            AND NOT EXISTS (SELECT FROM audit_pending p WHERE p.event_id = e.id AND p.event_at = e.at)
          ORDER BY e.id LIMIT $1",
        STRAYS,
    )
    .fetch_all(&mut *tx)
    .await?;
    for event in strays {
        checker.unchained(&event.tenant, event.id, &event.kind, &at_text(event.at));
    }
    let vanished = sqlx::query!(
        "SELECT p.event_id, p.event_at FROM audit_pending p
          WHERE NOT EXISTS (SELECT FROM audit_events e WHERE e.id = p.event_id AND e.at = p.event_at)
          ORDER BY p.event_id LIMIT $1",
        STRAYS,
    )
    .fetch_all(&mut *tx)
    .await?;
    for event in vanished {
        checker.vanished(event.event_id, &at_text(event.event_at));
    }
    Ok(checker.finish())
}
