//! Actions as operators look for them: pages of the table, newest first.

use time::OffsetDateTime;
use uuid::Uuid;

use super::{Db, Result};
use crate::domain::action::StateName;
use crate::domain::ids::{ActionId, Tenant};

/// What to list.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Of one tenant.
    pub tenant: Option<Tenant>,
    /// In one state.
    pub state: Option<StateName>,
    /// Of one agent.
    pub agent: Option<String>,
    /// Only those before this one.
    pub before: Option<ActionId>,
}

/// A line of the list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The action.
    pub action: ActionId,
    /// Its tenant.
    pub tenant: String,
    /// The agent that proposed it.
    pub agent: String,
    /// The upstream.
    pub upstream: String,
    /// The tool.
    pub tool: String,
    /// Its state; `expired` when its time is over though nothing has swept it yet.
    pub state: String,
    /// When it was parked.
    pub created_at: OffsetDateTime,
    /// The deadline that counts now.
    pub deadline: OffsetDateTime,
}

impl Db {
    /// Up to `most` actions, newest first.
    ///
    /// # Errors
    /// The database.
    pub async fn list_actions(&self, wanted: &Wanted, most: u32) -> Result<Vec<Listed>> {
        let rows = sqlx::query!(
            r#"SELECT id, tenant, agent, upstream, tool, created_at, coalesce(redeem_by, expires_at) AS "deadline!",
                      CASE WHEN state IN ('pending', 'approved') AND coalesce(redeem_by, expires_at) <= clock_timestamp()
                           THEN 'expired' ELSE state END AS "state!"
                 FROM actions
                WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR state = $2)
                  AND ($3::text IS NULL OR agent = $3) AND ($4::uuid IS NULL OR id < $4)
                ORDER BY id DESC LIMIT $5"#,
            wanted.tenant.as_ref().map(Tenant::as_str),
            wanted.state.map(StateName::as_str),
            wanted.agent.as_deref(),
            wanted.before.map(ActionId::uuid) as Option<Uuid>,
            i64::from(most),
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| Listed {
                action: ActionId::from_uuid(row.id),
                tenant: row.tenant,
                agent: row.agent,
                upstream: row.upstream,
                tool: row.tool,
                state: row.state,
                created_at: row.created_at,
                deadline: row.deadline,
            })
            .collect())
    }
}
