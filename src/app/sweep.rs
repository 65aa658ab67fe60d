//! What time does to actions: deadlines pass, claims are abandoned. Every replica may do this at any moment.

use super::App;
use crate::storage::{self, Swept};

impl App {
    /// Expires what is due and closes abandoned claims. The number of actions that changed.
    ///
    /// # Errors
    /// The database.
    pub async fn sweep(&self) -> storage::Result<usize> {
        let expired = self.db.expire_due().await?;
        let swept = self.db.sweep_intents().await?;
        self.changed(&expired);
        for Swept { action, unknown } in &swept {
            tracing::error!(%action, unknown, "a claim was abandoned by its replica");
            self.changed(&[*action]);
            if *unknown && let Some(tenant) = self.db.tenant_of(*action).await? {
                self.alert_unknown(&tenant, *action).await;
            }
        }
        Ok(expired.len() + swept.len())
    }

    /// Forgets presses that can't be replayed any more.
    ///
    /// # Errors
    /// The database.
    pub async fn forget_presses(&self) -> storage::Result<u64> {
        self.db.forget_presses().await
    }
}
