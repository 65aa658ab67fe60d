//! Turns at the database: one agent's flood must not keep every connection of the pool, so that clicks, workers and other
//! agents find none within their time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{App, Caller};
use crate::domain::ids::{AgentName, Tenant};

/// How many reads or parks of one agent are at the database at once.
const AT_ONCE: usize = 4;

/// The turns of every agent that was seen; bounded by the number of configured agents.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<(Tenant, AgentName), Arc<Semaphore>>>);

impl App {
    /// Waits for this agent's turn, which ends when the value is dropped.
    pub(super) async fn turn(&self, caller: &Caller) -> Option<OwnedSemaphorePermit> {
        let key = (caller.tenant.clone(), caller.agent.clone());
        let turns = {
            let mut all = self.0.turns.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(key).or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))).clone()
        };
        // Nobody closes it; without a turn the work goes on all the same.
        turns.acquire_owned().await.ok()
    }
}
