//! The real clock and the real randomness: the one place that reaches for them.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::domain::source::{Clock, Entropy};

/// The system's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn unix_millis(&self) -> i64 {
        #[expect(
            clippy::disallowed_methods,
            reason = "the composition root hands this clock to everyone else"
        )]
        let now = SystemTime::now();
        // A clock before 1970 is read as 1970: every signature is stale then, and nothing is accepted.
        now.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// The operating system's randomness.
#[derive(Debug, Clone, Copy)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        // Without randomness there is no safe way to go on: the task, and with it the request, ends here.
        #[expect(
            clippy::disallowed_methods,
            reason = "the composition root hands this source to everyone else"
        )]
        #[expect(clippy::expect_used, reason = "without randomness there is no safe way to go on")]
        getrandom::fill(buffer).expect("the operating system gives randomness");
    }
}
