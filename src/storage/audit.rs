//! The audit trail: appending what has no statement of its own.

use super::{Db, Result};
use crate::domain::audit::Event;
use crate::domain::ids::{ActionId, Tenant};

impl Db {
    /// Appends events of several tenants, all of them or none.
    ///
    /// # Errors
    /// The database.
    pub async fn append_audit_of_each(&self, events: &[(Tenant, Event)]) -> Result<()> {
        let tenants: Vec<String> = events.iter().map(|(tenant, _)| tenant.to_string()).collect();
        let kinds: Vec<String> = events.iter().map(|(_, event)| event.kind()).collect();
        let bodies: Vec<Vec<u8>> = events.iter().map(|(_, event)| event.body()).collect();
        sqlx::query!(
            "INSERT INTO audit_events (tenant, kind, body)
             SELECT tenant, kind, body FROM unnest($1::text[], $2::text[], $3::bytea[]) AS e (tenant, kind, body)",
            &tenants,
            &kinds,
            &bodies,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Appends a refusal of a token, unless the same was appended within a minute: whoever repeats it must not fill the
    /// trail.
    ///
    /// # Errors
    /// The database.
    pub async fn append_refusal(&self, tenant: &Tenant, action: ActionId, event: &Event) -> Result<()> {
        sqlx::query!(
            "INSERT INTO audit_events (tenant, action_id, kind, body)
             SELECT $1, $2, $3, $4
              WHERE NOT EXISTS (SELECT FROM audit_events WHERE action_id = $2 AND kind = $3 AND body = $4
                                   AND at > clock_timestamp() - interval '1 minute')",
            tenant.as_str(),
            action.uuid(),
            event.kind(),
            &event.body(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

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
