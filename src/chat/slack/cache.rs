//! What was asked a moment ago, by key.
//!
//! Keeps true: nothing older than the age is ever given out, also when asking fails; a key is asked for by one task at a
//! time, and the others take its result; keys do not wait for each other. Not for what must be fresh.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// From this many keys on, those that have grown too old are dropped.
const MANY: usize = 1_000;

/// Values not older than an age.
pub(super) struct Recent<T> {
    age: Duration,
    entries: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Entry<T>>>>>,
}

struct Entry<T> {
    /// The value, and when it was asked for: it is as old as the question, not as the answer.
    known: Option<(Instant, T)>,
    /// When asking last failed.
    failed: Option<Instant>,
}

/// Asking failed, for this task or for the one it waited for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unknown;

impl<T: Clone> Recent<T> {
    /// Values are given out until they are this old.
    pub(super) fn new(age: Duration) -> Self {
        Self { age, entries: Mutex::default() }
    }

    /// The value of a key as of `now` or a little before, from memory or by asking.
    pub(super) async fn get(
        &self,
        key: &str,
        now: Instant,
        ask: impl Future<Output = Result<T, Unknown>>,
    ) -> Result<T, Unknown> {
        let entry = self.entry(key, now);
        let mut entry = entry.lock().await;
        if let Some((asked, value)) = &entry.known
            && now.saturating_duration_since(*asked) <= self.age
        {
            return Ok(value.clone());
        }
        // Those who were waiting meanwhile would all ask in turn, each as long in vain.
        if entry.failed.is_some_and(|failed| failed >= now) {
            return Err(Unknown);
        }
        let asked = Instant::now().max(now);
        entry.known = None;
        let result = ask.await;
        match &result {
            Ok(value) => entry.known = Some((asked, value.clone())),
            Err(Unknown) => entry.failed = Some(Instant::now()),
        }
        result
    }

    fn entry(&self, key: &str, now: Instant) -> Arc<tokio::sync::Mutex<Entry<T>>> {
        // Nothing panics while it is held; if something did, the map is still a map.
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MANY && !entries.contains_key(key) {
            entries.retain(|_, entry| match entry.try_lock() {
                Ok(entry) => entry
                    .known
                    .as_ref()
                    .is_some_and(|(asked, _)| now.saturating_duration_since(*asked) <= self.age),
                Err(_) => true,
            });
        }
        let entry = entries
            .entry(key.to_owned())
            .or_insert_with(|| Arc::new(tokio::sync::Mutex::new(Entry { known: None, failed: None })));
        Arc::clone(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(30);

    async fn ask(cache: &Recent<u32>, at: Instant, answer: Result<u32, Unknown>) -> Result<u32, Unknown> {
        cache.get("key", at, async { answer }).await
    }

    #[tokio::test]
    async fn a_value_is_given_out_until_it_is_too_old() {
        let cache = Recent::new(AGE);
        let start = Instant::now();
        assert_eq!(ask(&cache, start, Ok(1)).await, Ok(1));
        assert_eq!(ask(&cache, start + AGE, Ok(2)).await, Ok(1));
        assert_eq!(ask(&cache, start + AGE + AGE, Ok(3)).await, Ok(3));
        assert_eq!(cache.get("other", start, async { Ok(4) }).await, Ok(4));
    }

    #[tokio::test]
    async fn an_old_value_does_not_help_when_asking_fails() {
        let cache = Recent::new(AGE);
        let start = Instant::now();
        assert_eq!(ask(&cache, start, Ok(1)).await, Ok(1));
        let later = start + 2 * AGE;
        assert_eq!(ask(&cache, later, Err(Unknown)).await, Err(Unknown));
        assert_eq!(ask(&cache, start, Err(Unknown)).await, Err(Unknown), "what failed is forgotten");
        assert_eq!(ask(&cache, later + AGE, Ok(2)).await, Ok(2), "a failure is not kept");
    }

    #[tokio::test]
    async fn those_who_waited_take_the_result() {
        for (answer, expected) in [(Ok(1), Ok(1)), (Err(Unknown), Err(Unknown))] {
            let cache = Recent::new(AGE);
            let (go, gone) = tokio::sync::oneshot::channel::<()>();
            let now = Instant::now();
            let first = cache.get("key", now, async {
                gone.await.unwrap();
                answer
            });
            let second = cache.get("key", now, async { panic!("asked twice") });
            let (first, second, ()) = tokio::join!(first, second, async { go.send(()).unwrap() });
            assert_eq!((&first, &second), (&expected, &expected));
        }
    }

    #[tokio::test]
    async fn a_task_that_is_given_up_leaves_the_key_usable() {
        let cache = Recent::new(AGE);
        let now = Instant::now();
        {
            let mut given_up = std::pin::pin!(cache.get("key", now, std::future::pending()));
            assert!(
                std::future::poll_fn(|context| std::task::Poll::Ready(
                    given_up.as_mut().poll(context).is_pending()
                ))
                .await
            );
        }
        assert_eq!(ask(&cache, now, Ok(1)).await, Ok(1));
    }

    #[tokio::test]
    async fn keys_that_have_grown_old_are_dropped() {
        let cache = Recent::new(AGE);
        let start = Instant::now();
        for i in 0..MANY {
            cache.get(&i.to_string(), start, async { Ok(1) }).await.unwrap();
        }
        cache.get("late", start + 3 * AGE, async { Ok(1) }).await.unwrap();
        assert_eq!(cache.entries.lock().unwrap().len(), 1);
    }
}
