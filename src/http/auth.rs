//! Which agent a request is from: a bearer key, known by its hash alone.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::app::Caller;
use crate::domain::digest::sha256;

/// The keys of every agent, by hash. The look-up compares hashes, so its timing tells nothing about a key.
pub struct AgentKeys(ArcSwap<HashMap<[u8; 32], Caller>>);

impl AgentKeys {
    /// Takes each key's SHA-256 and whose it is.
    pub fn new(keys: Vec<([u8; 32], Caller)>) -> Self {
        Self(ArcSwap::from_pointee(keys.into_iter().collect()))
    }

    /// Puts others in their place.
    pub fn put(&self, keys: Vec<([u8; 32], Caller)>) {
        self.0.store(Arc::new(keys.into_iter().collect()));
    }

    /// The agent behind a request: exactly one `Authorization: Bearer KEY` with a key that is known.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let value = values.next()?.to_str().ok()?;
        if values.next().is_some() {
            return None;
        }
        let (scheme, key) = value.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        self.0.load().get(&sha256(key.as_bytes())).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn keys() -> AgentKeys {
        let caller = Caller { tenant: "acme".into(), agent: "bot".into(), owner: None };
        AgentKeys::new(vec![(sha256(b"usk_right"), caller)])
    }

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn one_known_bearer_key_opens_and_nothing_else_does() {
        for right in ["Bearer usk_right", "bearer usk_right", "BEARER usk_right"] {
            assert!(keys().caller(&headers(&[right])).is_some(), "{right}");
        }
        for wrong in [
            &[][..],
            &["Bearer usk_wrong"],
            &["Bearer "],
            &["Bearer"],
            &["Basic usk_right"],
            &["usk_right"],
            &["Bearer  usk_right"],
            &["Bearer usk_right "],
            &["Bearer usk_right", "Bearer usk_right"],
        ] {
            assert!(keys().caller(&headers(wrong)).is_none(), "{wrong:?}");
        }
    }
}
