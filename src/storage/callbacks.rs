//! The durable inbox of presses: committed before the platform is answered, decided at once or by a worker.

use super::votes::stored;
use super::{Db, Result};
use crate::domain::audit::Event;
use crate::domain::ids::{ActionId, Tenant};
use crate::domain::press::Press;

/// Whether a press was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredPress {
    /// It is durable now.
    New,
    /// It was seen before: nothing more is to be done.
    Seen,
}

impl Db {
    /// Makes a press durable.
    ///
    /// # Errors
    /// The database: the platform must not be told that the press was taken.
    pub async fn store_press(&self, press: &Press) -> Result<StoredPress> {
        let inserted = sqlx::query!(
            "INSERT INTO callbacks (platform, installation, callback_id, press) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING",
            press.account.platform.as_str(),
            press.account.installation.as_str(),
            press.callback_id,
            &stored(press)?,
        )
        .execute(&self.pool)
        .await?;
        Ok(if inserted.rows_affected() == 1 { StoredPress::New } else { StoredPress::Seen })
    }

    /// Presses that nothing has decided yet, older than the moment in which the request itself decides them.
    ///
    /// # Errors
    /// The database.
    pub async fn undecided_presses(&self) -> Result<Vec<Press>> {
        let rows = sqlx::query_scalar!(
            "SELECT press FROM callbacks
              WHERE decided_at IS NULL AND received_at < now() - interval '2 seconds'
              ORDER BY received_at LIMIT 50",
        )
        .fetch_all(&self.pool)
        .await?;
        // A press that can't be read back was not written by this code; it stays for a person to look at.
        Ok(rows.into_iter().filter_map(|row| serde_json::from_slice(&row).ok()).collect())
    }

    /// Closes a press that changes nothing: audits why, and queues a private note for the person.
    /// `false`: another worker had closed it.
    ///
    /// # Errors
    /// The database.
    pub async fn refuse_press(
        &self,
        press: &Press,
        result: &str,
        about: Option<(&Tenant, ActionId)>,
        event: &Event,
        note: &str,
    ) -> Result<bool> {
        let (tenant, action) = about.map_or((None, None), |(t, a)| (Some(t.as_str()), Some(a.uuid())));
        let refused = sqlx::query_scalar!(
            r#"WITH c AS (
                 UPDATE callbacks SET decided_at = clock_timestamp(), result = $4
                  WHERE platform = $1 AND installation = $2 AND callback_id = $3 AND decided_at IS NULL
                 RETURNING callback_id
               ), e AS (
                 INSERT INTO audit_events (tenant, action_id, kind, body)
                 SELECT $5, $6, $7, $8 FROM c WHERE $5::text IS NOT NULL
               ), o AS (
                 INSERT INTO outbox (action_id, tenant, destination, kind, detail)
                 SELECT $6, $5, $9, 'note', $10 FROM c WHERE $5::text IS NOT NULL
                 ON CONFLICT DO NOTHING
               )
               SELECT callback_id FROM c"#,
            press.account.platform.as_str(),
            press.account.installation.as_str(),
            press.callback_id,
            result,
            tenant,
            action,
            event.kind(),
            &event.body(),
            press.place().to_string(),
            note,
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(refused.is_some())
    }

    /// Queues a private note about a press that was decided.
    ///
    /// # Errors
    /// The database.
    pub async fn queue_note(
        &self,
        press: &Press,
        tenant: &Tenant,
        action: ActionId,
        note: &str,
    ) -> Result<()> {
        sqlx::query!(
            "INSERT INTO outbox (action_id, tenant, destination, kind, detail) VALUES ($1, $2, $3, 'note', $4)
             ON CONFLICT DO NOTHING",
            action.uuid(),
            tenant.as_str(),
            press.place().to_string(),
            note,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Forgets decided presses after a day: a signature stays fresh for 300 s only.
    ///
    /// # Errors
    /// The database.
    pub async fn forget_presses(&self) -> Result<u64> {
        let gone = sqlx::query!(
            "DELETE FROM callbacks WHERE (platform, installation, callback_id) IN (
               SELECT platform, installation, callback_id FROM callbacks
                WHERE decided_at < now() - interval '24 hours' LIMIT 1000)",
        )
        .execute(&self.pool)
        .await?;
        Ok(gone.rows_affected())
    }
}
