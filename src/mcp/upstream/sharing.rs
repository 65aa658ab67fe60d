//! Lets callers share one answer: whoever asks gets the answer of a question that was put after they asked.
//!
//! A hundred calls at once so cost an upstream two lists and not a hundred, and each list is as fresh as if it had been
//! asked for alone.

use tokio::sync::Mutex;

/// Shares the answers of one question.
pub(super) struct Sharing<T> {
    /// Numbers the questions as they begin.
    begun: std::sync::atomic::AtomicU64,
    /// The last answer and its question's number; locked while a question is under way.
    last: Mutex<(u64, Option<T>)>,
}

impl<T: Clone> Sharing<T> {
    pub(super) fn new() -> Self {
        Self { begun: 0.into(), last: Mutex::new((0, None)) }
    }

    /// Asks, or waits for a question that somebody else puts after this call.
    pub(super) async fn ask(&self, question: impl Future<Output = Option<T>>) -> Option<T> {
        use std::sync::atomic::Ordering::SeqCst;
        let begun_before = self.begun.load(SeqCst);
        let mut last = self.last.lock().await;
        if last.0 > begun_before {
            return last.1.clone();
        }
        let number = self.begun.fetch_add(1, SeqCst) + 1;
        // If this caller gives up here, the next one in line asks anew.
        let answer = question.await;
        *last = (number, answer.clone());
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[tokio::test]
    async fn many_at_once_share_and_nobody_gets_an_answer_from_before_they_asked() {
        let (sharing, asked) = (Arc::new(Sharing::new()), Arc::new(AtomicU64::new(0)));
        let question = |asked: Arc<AtomicU64>| async move {
            let number = asked.fetch_add(1, Ordering::SeqCst) + 1;
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            Some(number)
        };
        let callers: Vec<_> = (0..100)
            .map(|_| {
                let (sharing, asked) = (sharing.clone(), asked.clone());
                tokio::spawn(async move { sharing.ask(question(asked)).await.unwrap() })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
        let shared = asked.load(Ordering::SeqCst);
        assert!(shared < 50, "{shared} questions for 100 callers");
        assert_eq!(
            sharing.ask(question(asked.clone())).await,
            Some(shared + 1),
            "a later caller gets a later answer"
        );
    }
}
