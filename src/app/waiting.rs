//! Who waits for an action: woken by a change made here, by another replica's notification, and by a slow look.
//!
//! A waiting agent costs one entry in a map and one small future: no connection, no thread, no timer but its own deadline.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::{App, Caller};
use crate::domain::ids::{ActionId, AgentName, Tenant};
use crate::storage::{self, Heard};

/// The most agents that wait at once on one replica; one more is answered at once, as if its time were over.
const MOST_WAITING: usize = 20_000;

/// The most of them that belong to one agent, so that nobody takes the places of the others.
const MOST_OF_ONE: usize = 5_000;

/// The map of those who wait.
#[derive(Default)]
pub(super) struct Waiters(Mutex<Map>);

#[derive(Default)]
struct Map {
    senders: HashMap<ActionId, watch::Sender<()>>,
    waiting: usize,
    of_agents: HashMap<(Tenant, AgentName), usize>,
}

/// A place in the map; leaving it is dropping it.
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    action: ActionId,
    agent: (Tenant, AgentName),
    changed: Option<watch::Receiver<()>>,
}

impl Waiters {
    /// Waits for a change of an action from now on. `None`: too many wait already.
    pub(super) fn join(&self, caller: &Caller, action: ActionId) -> Option<Waiter<'_>> {
        let agent = (caller.tenant.clone(), caller.agent.clone());
        let mut map = self.lock();
        if map.waiting >= MOST_WAITING || map.of_agents.get(&agent).is_some_and(|count| *count >= MOST_OF_ONE)
        {
            return None;
        }
        map.waiting += 1;
        *map.of_agents.entry(agent.clone()).or_default() += 1;
        let changed = map.senders.entry(action).or_insert_with(|| watch::channel(()).0).subscribe();
        Some(Waiter { waiters: self, action, agent, changed: Some(changed) })
    }

    pub(super) fn wake(&self, action: ActionId) {
        if let Some(sender) = self.lock().senders.get(&action) {
            sender.send_replace(());
        }
    }

    fn wake_all(&self) {
        for sender in self.lock().senders.values() {
            sender.send_replace(());
        }
    }

    fn waited_for(&self) -> Vec<ActionId> {
        self.lock().senders.keys().copied().collect()
    }

    // The map is whole between any two operations on it, so a panic elsewhere leaves nothing to mend.
    fn lock(&self) -> MutexGuard<'_, Map> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter<'_> {
    /// Ends when the action has changed since this was called last, or since the place was taken.
    pub(super) async fn changed(&mut self) {
        if let Some(changed) = &mut self.changed
            && changed.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.changed = None;
        let mut map = self.waiters.lock();
        map.waiting -= 1;
        if let Some(count) = map.of_agents.get_mut(&self.agent) {
            *count -= 1;
            if *count == 0 {
                map.of_agents.remove(&self.agent);
            }
        }
        if map.senders.get(&self.action).is_some_and(|sender| sender.receiver_count() == 0) {
            map.senders.remove(&self.action);
        }
    }
}

impl App {
    /// An action was changed by this replica: those who wait for it here are woken at once, the other replicas are told
    /// beside. The change is committed; a notification that is lost costs its waiters the time to the next slow look.
    pub(super) fn changed(&self, actions: &[ActionId]) {
        if actions.is_empty() {
            return;
        }
        for action in actions {
            self.0.waiters.wake(*action);
        }
        let (app, actions) = (self.clone(), actions.to_vec());
        self.tasks.spawn(async move {
            if let Err(error) = app.db.notify(&actions).await {
                tracing::debug!(%error, "other replicas were not notified");
            }
        });
    }

    /// Hears what other replicas change, until the connection is lost and can't be had again.
    ///
    /// # Errors
    /// Why it ended.
    pub async fn hear_changes(&self) -> storage::Result<Infallible> {
        let mut listener = self.db.listen().await?;
        // Whatever was said before is missed.
        self.0.waiters.wake_all();
        loop {
            match listener.next().await? {
                Heard::Changed(action) => self.0.waiters.wake(action),
                Heard::Gap => self.0.waiters.wake_all(),
            }
        }
    }

    /// The slow look: wakes those whose action is decided though nothing said so. Their number.
    ///
    /// # Errors
    /// The database.
    pub async fn look_for_waiters(&self) -> storage::Result<usize> {
        let waited_for = self.0.waiters.waited_for();
        if waited_for.is_empty() {
            return Ok(0);
        }
        for action in self.db.decided_among(&waited_for).await? {
            self.0.waiters.wake(action);
        }
        // Whoever is woken leaves the map or waits on; either way there is nothing more to do until the next beat.
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;

    fn id(n: u128) -> ActionId {
        ActionId::from_uuid(Uuid::from_u128(n))
    }

    fn bot() -> Caller {
        Caller { tenant: "acme".into(), agent: "bot".into(), owner: None }
    }

    async fn is_woken(waiter: &mut Waiter<'_>) -> bool {
        tokio::select! {
            biased;
            () = waiter.changed() => true,
            () = tokio::task::yield_now() => false,
        }
    }

    #[tokio::test]
    async fn a_wake_reaches_everybody_who_waits_for_that_action_and_nobody_else() {
        let waiters = Waiters::default();
        let (mut one, mut two) = (waiters.join(&bot(), id(1)).unwrap(), waiters.join(&bot(), id(1)).unwrap());
        let mut other = waiters.join(&bot(), id(2)).unwrap();
        waiters.wake(id(1));
        assert!(is_woken(&mut one).await && is_woken(&mut two).await);
        assert!(!is_woken(&mut other).await && !is_woken(&mut one).await);
        waiters.wake_all();
        assert!(is_woken(&mut one).await && is_woken(&mut other).await);
    }

    #[tokio::test]
    async fn a_change_between_joining_and_waiting_is_not_missed() {
        let waiters = Waiters::default();
        let mut waiter = waiters.join(&bot(), id(1)).unwrap();
        waiters.wake(id(1));
        tokio::time::timeout(Duration::from_secs(10), waiter.changed()).await.unwrap();
    }

    #[tokio::test]
    async fn nothing_stays_behind() {
        let waiters = Waiters::default();
        let (one, two) = (waiters.join(&bot(), id(1)).unwrap(), waiters.join(&bot(), id(1)).unwrap());
        drop(one);
        assert_eq!(waiters.waited_for(), [id(1)]);
        drop(two);
        assert!(waiters.waited_for().is_empty());
        assert_eq!(waiters.lock().waiting, 0);
        assert!(waiters.lock().of_agents.is_empty());
    }

    #[tokio::test]
    async fn one_agent_does_not_take_the_places_of_the_others() {
        let waiters = Waiters::default();
        let all: Vec<_> = (0..MOST_OF_ONE).map(|_| waiters.join(&bot(), id(1)).unwrap()).collect();
        assert!(waiters.join(&bot(), id(2)).is_none());
        let other = Caller { agent: "other".into(), ..bot() };
        assert!(waiters.join(&other, id(2)).is_some());
        drop(all);
        assert!(waiters.join(&bot(), id(2)).is_some());
    }
}
