//! Whether the time of a refusal tells where the fault is, or whose the thing is that was asked for.
//!
//! Prints Welch's t of interleaved samples, whose absolute value should stay below 4.5, and medians of answers over HTTP,
//! whose differences should stay below half a millisecond. Not a test: a busy machine gives any figure.
//! `cargo bench --bench timing`; the second part needs DATABASE_URL.

#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a measurement that can't go on stops")]

#[path = "../tests/harness/mod.rs"]
mod harness;

use std::hint::black_box;
use std::time::Instant;

use axum::http::{HeaderMap, HeaderValue};
use harness::{BOT_KEY, OTHER_KEY, World, refund};
use serde_json::json;
use undersign::chat::slack::{Rejection, SlackApp, receive};
use undersign::domain::digest::ActionDigest;
use undersign::domain::ids::{ActionId, AgentName, Tenant};
use undersign::domain::token::{Bound, Nonce, TokenKey, TokenKeys};

/// Samples of each kind.
const SAMPLES: usize = 1_000_000;

/// Asks of each kind over HTTP.
const ASKS: usize = 1_000;

/// Between two asks: a token of somebody else's is looked into aside, which is nobody's answer.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

fn main() {
    verifier();
    token();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(answers());
}

/// A signature that is wrong in its first digit, and one that is wrong in its last.
fn verifier() {
    let secret = "8f742231b10e8888abcd99yyyzzz85a5";
    let app = SlackApp {
        name: undersign::domain::ids::Installation::new("main"),
        team_id: "T1".to_owned(),
        app_id: "A1".to_owned(),
        enterprise_id: None,
        signing_secrets: vec![secret.to_owned().into()],
        bot_token: "x".to_owned().into(),
        api_url: "https://slack.example".to_owned(),
    };
    let (now, body) = (1_531_420_618_i64, b"payload=%7B%7D");
    let mut mac = <hmac::Hmac<sha2::Sha256> as hmac::KeyInit>::new_from_slice(secret.as_bytes()).unwrap();
    hmac::Mac::update(&mut mac, format!("v0:{now}:").as_bytes());
    hmac::Mac::update(&mut mac, body);
    let right = hex::encode(hmac::Mac::finalize(mac).into_bytes());
    // Always from the same bytes: where in memory a value comes from is not what is measured.
    let right = format!("v0={right}").into_bytes();
    let wrong_at = |at: usize| {
        let mut signature = right.clone();
        signature[at] ^= 1;
        let mut headers = HeaderMap::new();
        headers.insert("x-slack-request-timestamp", now.into());
        headers.insert("x-slack-signature", HeaderValue::from_bytes(&signature).unwrap());
        headers
    };
    let (first, last) = (black_box(3), black_box(right.len() - 1));
    let look = |headers: &HeaderMap| {
        receive(&app, headers, body, now).is_err_and(|why| why == Rejection::Unauthenticated)
    };
    assert!(look(&wrong_at(first)) && look(&wrong_at(last)));
    let t = welch(|kind| wrong_at(if kind { last } else { first }), look);
    println!("signature, fault in the first or the last digit: t = {t:+.2}");
    let twin = black_box(3);
    let t = welch(|kind| wrong_at(if kind { twin } else { first }), look);
    println!("signature, the same fault twice: t = {t:+.2}");
}

/// The same of a token's MAC.
fn token() {
    let secret = vec![7_u8; 32];
    let keys = TokenKeys::new(vec![TokenKey { id: "k1".to_owned(), secret: secret.into() }]).unwrap();
    let digest = ActionDigest::from_stored(&[1; 32]).unwrap();
    let (tenant, agent, nonce) = (Tenant::from("acme"), AgentName::from("bot"), Nonce::new([9; 32]));
    let action = ActionId::from_uuid(uuid::Uuid::from_bytes([7; 16]));
    let bound = Bound { action, digest: &digest, tenant: &tenant, agent: &agent, nonce: &nonce };
    let token = keys.mint(&bound).reveal().to_owned();
    let tag = token.rfind('.').unwrap() + 1;
    let changed = |at: usize| {
        let mut bytes = token.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'E' } else { b'A' };
        String::from_utf8(bytes).unwrap()
    };
    // The very last character has bits that must be zero: another one there is no token at all.
    let (first, last) = (changed(tag), changed(token.len() - 2));
    let look = |token: &str| keys.read(token).is_some_and(|presented| presented.proves(&bound));
    assert!(look(&token) && !look(&first) && !look(&last));
    let t = welch(|kind| if kind { last.clone() } else { first.clone() }, |token| look(token));
    println!("token, fault in the first or the last character: t = {t:+.2}");
}

/// Welch's t of the work on two kinds of input, drawn in a random order, without the slowest twentieth of all samples:
/// those are the machine's.
fn welch<T>(input: impl Fn(bool) -> T, work: impl Fn(&T) -> bool) -> f64 {
    let mut state = 1_u64;
    let mut times = [Vec::with_capacity(SAMPLES), Vec::with_capacity(SAMPLES)];
    while times.iter().any(|kind| kind.len() < SAMPLES) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let kind = state & 1 == 1;
        let input = black_box(input(kind));
        let begun = Instant::now();
        black_box(work(&input));
        let nanoseconds = begun.elapsed().as_nanos();
        let times = &mut times[usize::from(kind)];
        if times.len() < SAMPLES {
            times.push(nanoseconds as f64);
        }
    }
    let mut all = times.concat();
    all.sort_by(f64::total_cmp);
    let slowest = all[all.len() * 19 / 20];
    let [one, two] = times.map(|kind| {
        let kept: Vec<f64> = kind.into_iter().filter(|time| *time <= slowest).collect();
        let count = kept.len() as f64;
        let mean = kept.iter().sum::<f64>() / count;
        let variance = kept.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    });
    (one.0 - two.0) / (one.1 + two.1).sqrt()
}

/// How long an agent waits to be told that an id or a token is not its own.
async fn answers() {
    let world = World::start().await;
    let (foreign, foreign_token) = world.approved().await;
    let (expired, expired_token) = world.approved_other().await;
    let past = format!(
        "UPDATE actions SET redeem_by = clock_timestamp() - interval '1 minute' WHERE id = '{expired}'"
    );
    world.rewrite(&past).await;
    let unknown = "01890a5d-ac96-774b-bcce-b302099a8057".to_owned();
    let unknown_token =
        foreign_token.replace(foreign_token.split('.').nth(2).unwrap(), "AYkKXayWd0u8zrMCCZqAVw");
    assert_ne!(unknown_token, foreign_token);
    let other = world.agent(OTHER_KEY);
    let mut ids = [("unknown", unknown, vec![]), ("foreign", foreign, vec![]), ("expired", expired, vec![])];
    let mut tokens = [
        ("unknown", unknown_token, vec![]),
        ("foreign", foreign_token, vec![]),
        ("expired", expired_token, vec![]),
    ];
    for _ in 0..ASKS {
        for (_, id, times) in &mut ids {
            tokio::time::sleep(PAUSE).await;
            let begun = Instant::now();
            let answer = other.approval(id, 0).await;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            assert_eq!(answer.code(), "not_found");
        }
        for (_, token, times) in &mut tokens {
            tokio::time::sleep(PAUSE).await;
            let begun = Instant::now();
            let answer = other.call_with_token("refund_order", refund(), token).await;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            assert_eq!(answer.code(), "invalid_token", "{}", answer.0);
        }
    }
    for (what, asked) in [("approval id", ids), ("token", tokens)] {
        for (kind, _, mut times) in asked {
            times.sort_by(f64::total_cmp);
            println!("{what}, {kind}: median {:.3} ms", times[times.len() / 2]);
        }
    }
    assert_eq!(world.agent(BOT_KEY).call("list_orders", json!({})).await.code(), "upstream");
    world.finish().await;
}
