//! The check of Slack's request signature, over the raw bytes and before any parsing (SLACK.md 2.2, 2.3).
//!
//! Keeps true: the signature that would have been right never leaves this module, not even in an error; every secret in
//! force is tried, in time that does not depend on the one that fits. Not a protection against replay: the same request
//! passes again within the window, and whoever acts on it must be idempotent.

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq as _};

use super::Rejection;
use crate::chat::Verified;

/// The largest callback that is looked at.
pub(super) const LARGEST_BODY: usize = 256 * 1024;

/// How far the request's time may be from ours, in either direction.
const WINDOW_SECONDS: u64 = 300;

/// The body as text, if it is signed with one of the secrets, at a time close to `now` (Unix seconds).
pub(super) fn verify<'a>(
    secrets: &[SecretString],
    headers: &HeaderMap,
    body: &'a [u8],
    now: i64,
) -> Result<Verified<&'a str>, Rejection> {
    if body.len() > LARGEST_BODY {
        return Err(Rejection::TooLarge);
    }
    let signature = once(headers, "x-slack-signature")?.as_bytes();
    let timestamp = once(headers, "x-slack-request-timestamp")?;
    let time = unix_seconds(timestamp)?;
    let text = std::str::from_utf8(body).map_err(|_| Rejection::Unauthenticated)?;

    let mut fits = Choice::from(0);
    for secret in secrets {
        fits |= signed(secret, timestamp.as_bytes(), body).as_bytes().ct_eq(signature);
    }
    if !bool::from(fits) || now.abs_diff(time) > WINDOW_SECONDS {
        return Err(Rejection::Unauthenticated);
    }
    Ok(Verified::new(text))
}

/// The value of a header that is there exactly once.
fn once<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a HeaderValue, Rejection> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        _ => Err(Rejection::Unauthenticated),
    }
}

/// Decimal digits and nothing else: `i64::from_str` alone would take a sign.
fn unix_seconds(timestamp: &HeaderValue) -> Result<i64, Rejection> {
    let digits = timestamp.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or(Rejection::Unauthenticated)
}

/// The header value that this secret asks for. Never to be shown to anyone; outside this module for tests alone.
pub(super) fn signed(secret: &SecretString, timestamp: &[u8], body: &[u8]) -> String {
    // HMAC takes keys of every length; an empty one never gets here, as `config` refuses it.
    #[expect(clippy::expect_used, reason = "HMAC-SHA256 has no wrong key length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()).expect("any key length");
    mac.update(b"v0:");
    mac.update(timestamp);
    mac.update(b":");
    mac.update(body);
    format!("v0={}", hex::encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const NOW: i64 = 1_531_420_618;

    struct Vector {
        secret: SecretString,
        timestamp: String,
        body: String,
        signature: String,
    }

    /// Slack's own, of its page "Verifying requests from Slack".
    fn vector() -> Vector {
        let vector: Value =
            serde_json::from_str(include_str!("../../../tests/data/slack/signing_vector.json")).unwrap();
        let text = |name: &str| vector[name].as_str().unwrap().to_owned();
        Vector {
            secret: text("signing_secret").into(),
            timestamp: text("timestamp"),
            body: text("body"),
            signature: text("signature"),
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn check(signature: &str, timestamp: &str, body: &[u8], now: i64) -> Result<(), Rejection> {
        let headers = headers(&[("x-slack-signature", signature), ("x-slack-request-timestamp", timestamp)]);
        verify(&[vector().secret], &headers, body, now).map(drop)
    }

    #[test]
    fn the_published_vector_passes_with_either_of_two_secrets() {
        let v = vector();
        let headers =
            headers(&[("x-slack-signature", &v.signature), ("x-slack-request-timestamp", &v.timestamp)]);
        let other = SecretString::from("another secret".to_owned());
        for secrets in [
            vec![v.secret.clone()],
            vec![other.clone(), v.secret.clone()],
            vec![v.secret.clone(), other.clone()],
        ] {
            assert_eq!(*verify(&secrets, &headers, v.body.as_bytes(), NOW).unwrap().get(), v.body);
        }
        for secrets in [vec![], vec![other]] {
            let refused = verify(&secrets, &headers, v.body.as_bytes(), NOW).unwrap_err();
            assert_eq!(refused, Rejection::Unauthenticated);
        }
    }

    #[test]
    fn the_window_is_300_seconds_in_both_directions() {
        let v = vector();
        for now in [NOW, NOW + 300, NOW - 300] {
            assert_eq!(check(&v.signature, &v.timestamp, v.body.as_bytes(), now), Ok(()));
        }
        for now in [NOW + 301, NOW - 301, i64::MIN, i64::MAX] {
            let refused = check(&v.signature, &v.timestamp, v.body.as_bytes(), now);
            assert_eq!(refused, Err(Rejection::Unauthenticated), "{now}");
        }
    }

    #[test]
    fn only_the_whole_signature_in_lower_case_passes() {
        let v = vector();
        let hex = v.signature.strip_prefix("v0=").unwrap();
        for signature in [
            "",
            "v0=",
            hex,
            &format!("v1={hex}"),
            &format!("V0={hex}"),
            &format!("v0={}", hex.to_uppercase()),
            &v.signature[..v.signature.len() - 1],
            &format!("{}0", v.signature),
            &format!("v0={}", "0".repeat(64)),
        ] {
            let refused = check(signature, &v.timestamp, v.body.as_bytes(), NOW);
            assert_eq!(refused, Err(Rejection::Unauthenticated), "{signature}");
        }
    }

    /// Whatever the timestamp is, the signature here is right for it.
    #[test]
    fn a_timestamp_that_is_no_number_is_refused_though_signed() {
        let v = vector();
        for timestamp in [
            "",
            "abc",
            "+1531420618",
            "-9223372036854775808",
            "1e300",
            "1531420618.0",
            "99999999999999999999",
            "１",
        ] {
            let headers = HeaderMap::from_iter([
                (
                    http::HeaderName::from_static("x-slack-signature"),
                    signed(&v.secret, timestamp.as_bytes(), b"x=1").parse().unwrap(),
                ),
                (
                    http::HeaderName::from_static("x-slack-request-timestamp"),
                    HeaderValue::from_bytes(timestamp.as_bytes()).unwrap(),
                ),
            ]);
            let refused = verify(std::slice::from_ref(&v.secret), &headers, b"x=1", NOW).unwrap_err();
            assert_eq!(refused, Rejection::Unauthenticated, "{timestamp}");
        }
    }

    #[test]
    fn each_header_is_there_exactly_once() {
        let v = vector();
        let signature = ("x-slack-signature", v.signature.as_str());
        let timestamp = ("x-slack-request-timestamp", v.timestamp.as_str());
        for pairs in [
            vec![],
            vec![signature],
            vec![timestamp],
            vec![signature, signature, timestamp],
            vec![signature, timestamp, timestamp],
            vec![signature, timestamp, ("x-slack-request-timestamp", "0")],
        ] {
            let secrets = [v.secret.clone()];
            let refused = verify(&secrets, &headers(&pairs), v.body.as_bytes(), NOW).unwrap_err();
            assert_eq!(refused, Rejection::Unauthenticated);
        }
    }

    #[test]
    fn the_bytes_are_checked_as_they_came() {
        let v = vector();
        for body in [
            format!("{}&", v.body),
            v.body.replace("%2F", "%2f"),
            v.body.replacen("token", "tokeN", 1),
            String::new(),
        ] {
            let refused = check(&v.signature, &v.timestamp, body.as_bytes(), NOW);
            assert_eq!(refused, Err(Rejection::Unauthenticated));
        }
        let not_utf8 = b"payload=\xff";
        let signature = signed(&v.secret, v.timestamp.as_bytes(), not_utf8);
        assert_eq!(check(&signature, &v.timestamp, not_utf8, NOW), Err(Rejection::Unauthenticated));
    }

    #[test]
    fn the_largest_body_is_still_checked() {
        let v = vector();
        let mut body = vec![b'a'; LARGEST_BODY];
        let signature = signed(&v.secret, v.timestamp.as_bytes(), &body);
        assert_eq!(check(&signature, &v.timestamp, &body, NOW), Ok(()));
        body.push(b'a');
        assert_eq!(check(&signature, &v.timestamp, &body, NOW), Err(Rejection::TooLarge));
    }

    #[test]
    fn no_error_says_what_would_have_been_right() {
        let v = vector();
        let refused = check("v0=0", &v.timestamp, v.body.as_bytes(), NOW).unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("a2114d57"));
    }
}
