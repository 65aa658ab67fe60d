//! The audit trail: appending what has no statement of its own, and reading it out.

use time::OffsetDateTime;

use super::{Db, Result};
use crate::domain::audit::Event;
use crate::domain::ids::{ActionId, Tenant};

/// Where an export stands.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExportCursor(i64);

/// One event as stored.
#[derive(Debug, Clone)]
pub struct ExportedEvent {
    /// Its number over all tenants; not without gaps.
    pub id: i64,
    /// When it was written, UTC.
    pub at: OffsetDateTime,
    /// The tenant.
    pub tenant: String,
    /// The action.
    pub action: Option<ActionId>,
    /// The kind.
    pub kind: String,
    /// Canonical bytes of the kind's own fields.
    pub body: Vec<u8>,
    /// Canonical bytes of the erasable members, while they are there.
    pub subject: Option<Vec<u8>>,
    /// The commitment's salt, while it is there.
    pub salt: Option<Vec<u8>>,
}

impl Db {
    /// Appends an event that changes no row.
    ///
    /// # Errors
    /// The database.
    pub async fn append_audit(&self, tenant: &Tenant, action: Option<ActionId>, event: &Event) -> Result<()> {
        sqlx::query!(
            "INSERT INTO audit_events (tenant, action_id, kind, body) VALUES ($1, $2, $3, $4)",
            tenant.as_str(),
            action.map(ActionId::uuid),
            event.kind(),
            &event.body(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The next page of events, oldest first; empty at the end.
    ///
    /// # Errors
    /// The database.
    pub async fn export_audit(
        &self,
        tenant: Option<&Tenant>,
        cursor: &mut ExportCursor,
    ) -> Result<Vec<ExportedEvent>> {
        let rows = sqlx::query!(
            r#"SELECT e.id, e.at, e.tenant, e.action_id, e.kind, e.body, s.subject AS "subject?", s.salt AS "salt?"
                 FROM audit_events e LEFT JOIN audit_subjects s ON s.event_id = e.id AND s.event_at = e.at
                WHERE e.id > $1 AND ($2::text IS NULL OR e.tenant = $2)
                ORDER BY e.id LIMIT 500"#,
            cursor.0,
            tenant.map(Tenant::as_str),
        )
        .fetch_all(&self.pool)
        .await?;
        if let Some(last) = rows.last() {
            cursor.0 = last.id;
        }
        Ok(rows
            .into_iter()
            .map(|row| ExportedEvent {
                id: row.id,
                at: row.at,
                tenant: row.tenant,
                action: row.action_id.map(ActionId::from_uuid),
                kind: row.kind,
                body: row.body,
                subject: row.subject,
                salt: row.salt,
            })
            .collect())
    }
}
