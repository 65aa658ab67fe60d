//! Erasing one action's arguments for good, while the trail keeps telling that it was.

use sqlx::PgPool;

use super::{Db, Result, detached};
use crate::domain::audit::Event;
use crate::domain::ids::ActionId;

/// What erasing came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Erased {
    /// Nothing holds the arguments any more.
    Done,
    /// There was nothing left to erase.
    Already,
    /// The action is not over: its state.
    NotOver(String),
    /// The trail knows no such action.
    Unknown,
}

impl Db {
    /// Empties what is erasable of the action's events, deletes its row (with votes, intent, result and cards) and appends
    /// `erased`, in one transaction. An action whose outcome is not known is not over.
    ///
    /// # Errors
    /// The database, or a role that may not; nothing has changed then.
    pub async fn erase(&self, action: ActionId) -> Result<Erased> {
        detached(erase(self.pool.clone(), action)).await
    }
}

async fn erase(pool: PgPool, action: ActionId) -> Result<Erased> {
    #[expect(clippy::disallowed_methods, reason = "inside a detached task: nothing can cancel this begin")]
    let mut tx = pool.begin().await?;
    let deleted = sqlx::query_scalar!(
        "DELETE FROM actions WHERE id = $1 AND state IN
           ('succeeded', 'failed', 'denied', 'expired', 'cancelled', 'invalidated', 'undeliverable', 'returned')
         RETURNING tenant",
        action.uuid(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    let state = sqlx::query_scalar!("SELECT state FROM actions WHERE id = $1", action.uuid())
        .fetch_optional(&mut *tx)
        .await?;
    if let Some(state) = state {
        return Ok(Erased::NotOver(state));
    }
    // Its row may be gone already; what the trail holds may still be there.
    let tenant = match &deleted {
        Some(tenant) => Some(tenant.clone()),
        None => {
            sqlx::query_scalar!(
                "SELECT tenant FROM audit_events WHERE action_id = $1 AND kind = 'parked' LIMIT 1",
                action.uuid(),
            )
            .fetch_optional(&mut *tx)
            .await?
        }
    };
    let Some(tenant) = tenant else { return Ok(Erased::Unknown) };
    let emptied = sqlx::query!(
        "UPDATE audit_subjects s SET subject = NULL, salt = NULL FROM audit_events e
          WHERE e.action_id = $1 AND s.event_id = e.id AND s.event_at = e.at AND s.subject IS NOT NULL",
        action.uuid(),
    )
    .execute(&mut *tx)
    .await?
    .rows_affected();
    if emptied == 0 && deleted.is_none() {
        return Ok(Erased::Already);
    }
    sqlx::query!(
        "INSERT INTO audit_events (tenant, action_id, kind, body) VALUES ($1, $2, 'erased', $3)",
        tenant,
        action.uuid(),
        &Event::Erased {}.body(),
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(Erased::Done)
}
