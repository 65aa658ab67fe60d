//! Rates that nobody may exceed, kept in memory: a few bytes for each key that was busy just now, and never more keys
//! than a fixed number.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::app::Caller;
use crate::domain::ids::{AgentName, Tenant};

/// One request per interval, after a burst at once.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// From one request to the next.
    pub interval: Duration,
    /// How many may come together.
    pub burst: u32,
}

/// How much anyone may send.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Of a client's network, of requests without a valid key or signature. 600 a minute: a site full of clients with an
    /// old key is below it, and a guess at a key gains nothing by it.
    pub unproven: Rate,
    /// Of an agent. A thousand a second is more than one that reads its answers asks, and a fraction of what one replica
    /// answers: a loop run wild leaves room for the others.
    pub agent: Rate,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            unproven: Rate { interval: Duration::from_millis(100), burst: 600 },
            agent: Rate { interval: Duration::from_millis(1), burst: 2_000 },
        }
    }
}

/// What has been sent of late, on all listeners together.
pub struct Limits {
    /// A request whose key or signature is right is never counted here, and never refused for those that are not.
    unproven: Limiter<IpAddr>,
    agents: Limiter<(Tenant, AgentName)>,
}

impl Limits {
    /// With these rates.
    pub fn new(rates: Rates) -> Self {
        Self { unproven: Limiter::new(rates.unproven), agents: Limiter::new(rates.agent) }
    }

    /// Counts a request of an agent; how long it should wait, if it sends too many.
    pub(super) fn of(&self, caller: &Caller) -> Result<(), Duration> {
        self.agents.take((caller.tenant.clone(), caller.agent.clone()))
    }

    /// Counts a request that proved nothing; how long its client should wait, if it sends too many.
    pub(super) fn unproven(&self, client: IpAddr) -> Result<(), Duration> {
        self.unproven.take(network(client))
    }
}

/// What one customer of a provider has: a whole /64 in IPv6, so that nobody has 2^64 budgets.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// How many keys are remembered at once.
const MOST_KEYS: usize = 16_384;

/// A rate for each key.
pub(super) struct Limiter<K> {
    interval: Duration,
    burst: Duration,
    keys: Mutex<Keys<K>>,
}

struct Keys<K> {
    /// When each key's bucket is full again; one that is full is as good as forgotten.
    full_at: HashMap<K, Instant>,
    /// When full buckets were last looked for: never twice within an interval of the clean-up, as it reads them all.
    swept: Option<Instant>,
}

/// How often full buckets are forgotten, when room is needed.
const SWEEP: Duration = Duration::from_secs(1);

impl<K: Eq + Hash> Limiter<K> {
    pub(super) fn new(Rate { interval, burst }: Rate) -> Self {
        let keys = Mutex::new(Keys { full_at: HashMap::new(), swept: None });
        Self { interval, burst: interval * burst, keys }
    }

    /// Takes one from the key's bucket.
    ///
    /// # Errors
    /// It is empty, or there is no room to remember another key: how long to wait.
    pub(super) fn take(&self, key: K) -> Result<(), Duration> {
        self.take_at(key, Instant::now())
    }

    fn take_at(&self, key: K, now: Instant) -> Result<(), Duration> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let known = keys.full_at.contains_key(&key);
        if !known && keys.full_at.len() >= MOST_KEYS {
            if keys.swept.is_none_or(|swept| now >= swept + SWEEP) {
                keys.swept = Some(now);
                keys.full_at.retain(|_, full_at| *full_at > now);
            }
            if keys.full_at.len() >= MOST_KEYS {
                return Err(SWEEP);
            }
        }
        let full_at = keys.full_at.entry(key).or_insert(now);
        let next = (*full_at).max(now) + self.interval;
        let wait = next.duration_since(now).saturating_sub(self.burst);
        if !wait.is_zero() {
            return Err(wait);
        }
        *full_at = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_per_interval() {
        let limiter = Limiter::new(Rate { interval: Duration::from_secs(1), burst: 3 });
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for _ in 0..3 {
            assert_eq!(limiter.take_at("a", at(0)), Ok(()));
        }
        assert_eq!(limiter.take_at("a", at(0)), Err(Duration::from_secs(1)));
        assert_eq!(limiter.take_at("b", at(0)), Ok(()), "another key has its own");
        assert_eq!(limiter.take_at("a", at(1)), Ok(()));
        assert!(limiter.take_at("a", at(1)).is_err());
        for _ in 0..3 {
            assert_eq!(limiter.take_at("a", at(100)), Ok(()), "never more than a burst is saved up");
        }
        assert!(limiter.take_at("a", at(100)).is_err());
    }

    #[test]
    fn memory_is_bounded_and_room_comes_back() {
        let limiter = Limiter::new(Rates::default().unproven);
        let start = Instant::now();
        for key in 0..MOST_KEYS {
            assert_eq!(limiter.take_at(key, start), Ok(()));
        }
        assert_eq!(limiter.take_at(MOST_KEYS, start), Err(SWEEP));
        assert_eq!(limiter.take_at(0, start), Ok(()), "a key that is known keeps its bucket");
        assert_eq!(limiter.keys.lock().unwrap().full_at.len(), MOST_KEYS);
        let later = start + Duration::from_secs(2);
        assert_eq!(limiter.take_at(MOST_KEYS, later), Ok(()));
        assert_eq!(limiter.keys.lock().unwrap().full_at.len(), 1);
    }

    #[test]
    fn an_ipv6_customer_has_one_bucket() {
        let network = |text: &str| network(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1:2:3"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }
}
