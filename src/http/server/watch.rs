//! What one connection is doing, and when it has taken too long over it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};

use tokio::time::{Instant, sleep_until};

use super::Timeouts;

/// Told by the socket of bytes, and by the service of requests; asked by the connection's task.
pub(super) struct Watch {
    timeouts: Timeouts,
    doing: Mutex<Doing>,
}

struct Doing {
    /// Requests whose answer has not ended.
    under_way: usize,
    /// What goes on between requests.
    between: Between,
    /// Since when.
    since: Instant,
    /// Whether frames come and go between requests, as in HTTP/2: a byte is no beginning of headers then.
    framed: bool,
    /// Since when the peer has taken nothing of what we write.
    blocked: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq)]
enum Between {
    /// Headers are due: the connection is new, or the first byte of them has come.
    Headers,
    /// Nothing.
    Idle,
}

/// A request that is being answered.
pub(super) struct UnderWay(Arc<Watch>);

impl Watch {
    pub(super) fn new(timeouts: Timeouts) -> Self {
        let doing = Doing {
            under_way: 0,
            between: Between::Headers,
            since: Instant::now(),
            framed: false,
            blocked: None,
        };
        Self { timeouts, doing: Mutex::new(doing) }
    }

    /// A request's headers are complete.
    pub(super) fn begin(self: &Arc<Self>, framed: bool) -> UnderWay {
        let mut doing = self.doing();
        doing.under_way += 1;
        doing.framed |= framed;
        UnderWay(self.clone())
    }

    /// Bytes came.
    pub(super) fn received(&self) {
        let mut doing = self.doing();
        if doing.under_way == 0 && doing.between == Between::Idle && !doing.framed {
            doing.between = Between::Headers;
            doing.since = Instant::now();
        }
    }

    /// The peer has taken bytes, or all there are.
    pub(super) fn flows(&self) {
        self.doing().blocked = None;
    }

    /// The peer takes no more for now.
    pub(super) fn blocked(&self) {
        self.doing().blocked.get_or_insert_with(Instant::now);
    }

    /// Ends when something has taken too long. To be polled after the connection, in the same task: whatever the
    /// connection has just done moves the deadline.
    pub(super) async fn expired(&self) {
        let mut sleep = pin!(sleep_until(Instant::now()));
        poll_fn(|context| {
            loop {
                let Some(deadline) = self.deadline() else { return Poll::Pending };
                if deadline <= Instant::now() {
                    return Poll::Ready(());
                }
                if sleep.deadline() != deadline {
                    sleep.as_mut().reset(deadline);
                }
                ready!(sleep.as_mut().poll(context));
            }
        })
        .await;
    }

    fn deadline(&self) -> Option<Instant> {
        let doing = self.doing();
        let limit = match doing.between {
            Between::Headers => self.timeouts.header,
            Between::Idle => self.timeouts.idle,
        };
        let between = (doing.under_way == 0).then(|| doing.since + limit);
        let write = doing.blocked.map(|since| since + self.timeouts.write);
        between.into_iter().chain(write).min()
    }

    fn doing(&self) -> MutexGuard<'_, Doing> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut doing = self.0.doing();
        doing.under_way -= 1;
        if doing.under_way == 0 {
            doing.between = Between::Idle;
            doing.since = Instant::now();
        }
    }
}
