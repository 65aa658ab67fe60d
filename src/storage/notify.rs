//! NOTIFY: a hint to other replicas that an action changed. Sent after the commit by a statement of its own: inside the
//! transaction it would hold a database-wide lock through the flush. Nothing depends on its arrival.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};

use super::{Db, Result};
use crate::domain::ids::ActionId;

const CHANNEL: &str = "undersign";

/// A connection of its own on which changes are heard.
pub struct Listener(PgListener);

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// This action changed.
    Changed(ActionId),
    /// The connection was lost for a while: anything may have changed.
    Gap,
}

impl Db {
    /// Tells every replica that these actions changed.
    ///
    /// # Errors
    /// The database.
    pub async fn notify(&self, actions: &[ActionId]) -> Result<()> {
        let ids: Vec<String> = actions.iter().map(ActionId::to_string).collect();
        sqlx::query!("SELECT pg_notify($1, id) FROM unnest($2::text[]) AS id", CHANNEL, &ids)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Opens a connection, beside the pool's, that hears of changes.
    ///
    /// # Errors
    /// The database can't be reached.
    pub async fn listen(&self) -> Result<Listener> {
        let options = self.pool.connect_options().as_ref().clone();
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(Duration::from_secs(5))
            .connect_with(options)
            .await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen(CHANNEL).await?;
        Ok(Listener(listener))
    }

    /// Which of these actions nobody has to wait for any more: decided, executed, or past their time.
    ///
    /// # Errors
    /// The database.
    pub async fn decided_among(&self, actions: &[ActionId]) -> Result<Vec<ActionId>> {
        let ids: Vec<_> = actions.iter().map(|action| action.uuid()).collect();
        let decided = sqlx::query_scalar!(
            "SELECT id FROM actions WHERE id = ANY($1)
                AND (state NOT IN ('pending', 'executing') OR state = 'pending' AND expires_at <= clock_timestamp())",
            &ids,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(decided.into_iter().map(ActionId::from_uuid).collect())
    }
}

impl Listener {
    /// The next thing heard. A payload that is no action's id is passed over.
    ///
    /// # Errors
    /// The connection is lost and can't be made anew.
    pub async fn next(&mut self) -> Result<Heard> {
        loop {
            match self.0.try_recv().await? {
                None => return Ok(Heard::Gap),
                Some(notification) => {
                    if let Some(action) = ActionId::parse(notification.payload()) {
                        return Ok(Heard::Changed(action));
                    }
                }
            }
        }
    }
}
