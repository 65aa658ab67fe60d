//! Wrong tokens: whoever presents many is answered without looking, for a while.
//!
//! Kept in memory, for each replica by itself: a guess has no chance anyway (256 bits of MAC), and a wrong token must not
//! cost a write. Bounded by the number of configured agents.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Caller;
use crate::domain::ids::{AgentName, Tenant};

/// So many wrong tokens within [`WINDOW`] close the door for the rest of it.
const MOST_WRONG: u32 = 20;

/// The time in which they are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// Who presented how many since when.
#[derive(Default)]
pub(super) struct WrongTokens(Mutex<HashMap<(Tenant, AgentName), (Instant, u32)>>);

impl WrongTokens {
    /// How long this agent is not listened to; `None`: it is.
    pub(super) fn closed(&self, caller: &Caller) -> Option<Duration> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = seen.get(&key(caller)).copied()?;
        let left = WINDOW.checked_sub(since.elapsed()).filter(|left| !left.is_zero())?;
        (count >= MOST_WRONG).then_some(left)
    }

    /// Counts one more.
    pub(super) fn count(&self, caller: &Caller) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = seen.entry(key(caller)).or_insert_with(|| (Instant::now(), 0));
        if since.elapsed() >= WINDOW {
            (*since, *count) = (Instant::now(), 0);
        }
        *count += 1;
    }
}

fn key(caller: &Caller) -> (Tenant, AgentName) {
    (caller.tenant.clone(), caller.agent.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(agent: &str) -> Caller {
        Caller { tenant: "acme".into(), agent: agent.into(), owner: None }
    }

    #[tokio::test(start_paused = true)]
    async fn twenty_wrong_tokens_close_the_door_for_the_rest_of_a_minute_for_that_agent_alone() {
        let wrong = WrongTokens::default();
        for _ in 0..19 {
            wrong.count(&caller("one"));
        }
        assert_eq!(wrong.closed(&caller("one")), None);
        tokio::time::advance(Duration::from_secs(10)).await;
        wrong.count(&caller("one"));
        assert_eq!(wrong.closed(&caller("one")), Some(Duration::from_secs(50)));
        assert_eq!(wrong.closed(&caller("two")), None);
        tokio::time::advance(Duration::from_secs(50)).await;
        assert_eq!(wrong.closed(&caller("one")), None);
        wrong.count(&caller("one"));
        assert_eq!(wrong.closed(&caller("one")), None);
    }
}
