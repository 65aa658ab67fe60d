//! The audit trail: appending what has no statement of its own.

use super::{Db, Result};
use crate::domain::audit::Event;
use crate::domain::ids::{ActionId, Tenant};

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
}
