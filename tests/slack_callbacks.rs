//! Slack's callbacks (THREATS.md group S): only fresh, authentic, first-seen presses change anything.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use axum::http::{HeaderValue, StatusCode};
use harness::{ANA, BEN, BOT_KEY, CHANNEL, CYD, MAL, World, at_once, now, refund};
use serde_json::{Value, json};
use undersign::demo::gate::Gate;
use undersign::demo::slack::{Fault, SignedRequest};

const SIGNATURE: &str = "x-slack-signature";
const TIMESTAMP: &str = "x-slack-request-timestamp";

/// A card of a pending action, and the request of Ben's approval of it.
async fn ready(world: &World) -> (String, Value) {
    let (parked, card) = world.park().await;
    let payload = world.slack.click_payload(BEN, CHANNEL, &card.ts, "undersign_approve").unwrap();
    (parked.action_id(), payload)
}

async fn send(world: &World, request: SignedRequest) -> StatusCode {
    world.slack.send(&world.callback_url(0), request).await.unwrap()
}

async fn untouched(world: &World, action: &str) {
    assert_eq!(world.state(action).await, "pending");
    let stored: i64 =
        sqlx::query_scalar("SELECT count(*) FROM callbacks").fetch_one(&world.db).await.unwrap();
    assert_eq!(stored, 0, "something unauthentic was stored");
}

fn header(request: &mut SignedRequest, name: &'static str, value: &str) {
    request.headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
}

#[tokio::test]
async fn s01_a_missing_or_wrong_signature_is_401() {
    let world = World::start().await;
    let (action, payload) = ready(&world).await;
    let signed = || world.slack.sign(&payload, now());
    let good = signed().headers[SIGNATURE].to_str().unwrap().to_owned();
    let mut missing = signed();
    missing.headers.remove(SIGNATURE);
    assert_eq!(send(&world, missing).await, StatusCode::UNAUTHORIZED);
    let mut twice = signed();
    twice.headers.append(SIGNATURE, HeaderValue::from_str(&good).unwrap());
    assert_eq!(send(&world, twice).await, StatusCode::UNAUTHORIZED);
    for wrong in [
        format!("v0={}", "0".repeat(64)),
        good.replacen("v0=", "v1=", 1),
        format!("v0={}", good[3..].to_uppercase()),
        good[..good.len() - 1].to_owned(),
        format!("{good}0"),
        good[3..].to_owned(),
        String::new(),
    ] {
        let mut request = signed();
        header(&mut request, SIGNATURE, &wrong);
        let expected = if wrong == good { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        assert_eq!(send(&world, request).await, expected, "{wrong}");
    }
    untouched(&world, &action).await;
    world.finish().await;
}

#[tokio::test]
async fn s02_a_body_changed_after_signing_is_401() {
    let world = World::start().await;
    let (action, payload) = ready(&world).await;
    let mut longer = world.slack.sign(&payload, now());
    longer.body = [longer.body.as_ref(), b"x"].concat().into();
    assert_eq!(send(&world, longer).await, StatusCode::UNAUTHORIZED);
    let mut flipped = world.slack.sign(&payload, now());
    let mut body = flipped.body.to_vec();
    let middle = body.len() / 2;
    body[middle] ^= 1;
    flipped.body = body.into();
    assert_eq!(send(&world, flipped).await, StatusCode::UNAUTHORIZED);
    let mut respelt = world.slack.sign(&payload, now());
    respelt.body = String::from_utf8(respelt.body.to_vec()).unwrap().replace("%22", "\"").into();
    assert_eq!(send(&world, respelt).await, StatusCode::UNAUTHORIZED);
    untouched(&world, &action).await;
    world.finish().await;
}

#[tokio::test]
async fn s03_a_stale_future_or_strange_timestamp_is_401() {
    let world = World::start().await;
    let (action, payload) = ready(&world).await;
    for distance in [-301, -3600, 310, 86_400] {
        let request = world.slack.sign(&payload, now() + distance);
        assert_eq!(send(&world, request).await, StatusCode::UNAUTHORIZED, "{distance} s");
    }
    for strange in ["", "abc", "-9223372036854775808", "1e300", "99999999999999999999", "+1", "1.5", " 1"] {
        let mut request = world.slack.sign(&payload, now());
        header(&mut request, TIMESTAMP, strange);
        assert_eq!(send(&world, request).await, StatusCode::UNAUTHORIZED, "{strange:?}");
    }
    let mut missing = world.slack.sign(&payload, now());
    missing.headers.remove(TIMESTAMP);
    assert_eq!(send(&world, missing).await, StatusCode::UNAUTHORIZED);
    let mut twice = world.slack.sign(&payload, now());
    let value = twice.headers[TIMESTAMP].clone();
    twice.headers.append(TIMESTAMP, value);
    assert_eq!(send(&world, twice).await, StatusCode::UNAUTHORIZED);
    untouched(&world, &action).await;
    // The window itself is open: 290 s old is Slack's own retry after a slow network.
    assert_eq!(send(&world, world.slack.sign(&payload, now() - 290)).await, StatusCode::OK);
    world.card_showing("Waiting for the agent").await;
    world.finish().await;
}

#[tokio::test]
async fn s04_an_authentic_form_of_another_shape_is_400() {
    let world = World::start().await;
    let (action, payload) = ready(&world).await;
    let form = |payload: &str| {
        let encoded: String = url::form_urlencoded::byte_serialize(payload.as_bytes()).collect();
        format!("payload={encoded}")
    };
    let good = form(&payload.to_string());
    let mut two_actions = payload.clone();
    let action_twice = two_actions["actions"][0].clone();
    two_actions["actions"].as_array_mut().unwrap().push(action_twice);
    let mut no_action = payload.clone();
    no_action["actions"] = json!([]);
    for body in [
        format!("{good}&{good}"),
        format!("{good}&payload=%7B%7D"),
        "x=1".to_owned(),
        String::new(),
        form("{"),
        form("[]"),
        form(&two_actions.to_string()),
        form(&no_action.to_string()),
    ] {
        let request = world.slack.sign_body(body.clone().into(), now());
        let shown: String = body.chars().take(60).collect();
        assert_eq!(send(&world, request).await, StatusCode::BAD_REQUEST, "{shown}");
    }
    let huge = world.slack.sign_body(format!("payload={}", "a".repeat(300_000)).into(), now());
    assert_eq!(send(&world, huge).await, StatusCode::PAYLOAD_TOO_LARGE);
    untouched(&world, &action).await;
    world.finish().await;
}

#[tokio::test]
async fn s05_other_kinds_of_interaction_are_ignored() {
    let world = World::start().await;
    let (action, payload) = ready(&world).await;
    for kind in [
        "view_submission",
        "shortcut",
        "message_action",
        "block_suggestion",
        "view_closed",
        "from_the_future",
    ] {
        let mut other = payload.clone();
        other["type"] = json!(kind);
        assert_eq!(world.deliver(0, &other).await, StatusCode::OK, "{kind}");
    }
    let mut other_button = payload.clone();
    other_button["actions"][0]["action_id"] = json!("undersign_approve2");
    assert_eq!(world.deliver(0, &other_button).await, StatusCode::OK);
    untouched(&world, &action).await;
    world.finish().await;
}

#[tokio::test]
async fn s06_another_app_or_workspace_is_403() {
    let world = World::start().await;
    let (action, payload) = ready(&world).await;
    for (pointer, value) in [
        ("/api_app_id", json!("A0OTHER001")),
        ("/api_app_id", Value::Null),
        ("/team/id", json!("T0OTHER001")),
        ("/team", Value::Null),
        ("/enterprise", json!({"id": "E0OTHER001", "name": "x"})),
    ] {
        let mut foreign = payload.clone();
        *foreign.pointer_mut(pointer).unwrap() = value.clone();
        assert_eq!(world.deliver(0, &foreign).await, StatusCode::FORBIDDEN, "{pointer} = {value}");
    }
    untouched(&world, &action).await;
    // A person of another workspace in a shared channel is authentic, and may decide nothing.
    let mut connect = payload.clone();
    connect["user"]["team_id"] = json!("T0OTHER001");
    assert_eq!(world.deliver(0, &connect).await, StatusCode::OK);
    assert_eq!(world.state(&action).await, "pending");
    assert!(world.note_to(BEN).await.contains("full members of this workspace"));
    world.finish().await;
}

#[tokio::test]
async fn s07_the_legacy_token_proves_nothing() {
    let world = World::start().await;
    let (action, payload) = ready(&world).await;
    let mut request = world.slack.sign(&payload, now());
    assert!(payload.get("token").is_some(), "the payload carries Slack's deprecated token");
    request.headers.remove(SIGNATURE);
    request.headers.remove(TIMESTAMP);
    assert_eq!(send(&world, request).await, StatusCode::UNAUTHORIZED);
    untouched(&world, &action).await;
    world.finish().await;
}

#[tokio::test]
async fn s08_a_hundred_replays_over_two_replicas_are_one_decision() {
    let mut world = World::start().await;
    world.add_replica().await;
    let (action, payload) = ready(&world).await;
    let request = world.slack.sign(&payload, now());
    let (slack, urls) = (world.slack.clone(), [world.callback_url(0), world.callback_url(1)]);
    let answers = at_once(100, move |index| {
        let (slack, url, request) = (slack.clone(), urls[index % 2].clone(), request.clone());
        async move { slack.send(&url, request).await.unwrap() }
    })
    .await;
    assert!(answers.iter().all(|status| *status == StatusCode::OK), "{answers:?}");
    let card = world.card_showing("Waiting for the agent").await;
    assert_eq!(world.state(&action).await, "approved");
    assert_eq!(world.audit("voted").await.len(), 1);
    assert_eq!(world.audit("approved").await.len(), 1);
    assert_eq!(card.versions.len(), 2, "posted once, edited once");
    assert!(world.slack.ephemerals().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn s09_a_double_click_is_one_vote() {
    let world = World::start().await;
    let parked = world.agent(BOT_KEY).call("delete_customer", json!({"customer_id": "C-1"})).await;
    assert_eq!(parked.code(), "approval_pending", "{}", parked.0);
    let card = world.card().await;
    // Two clicks, each with an action_ts and trigger_id of its own.
    for _ in 0..2 {
        assert_eq!(world.press_stale(BEN, &card, "undersign_approve").await, StatusCode::OK);
    }
    assert!(world.note_to(BEN).await.contains("counted already"));
    assert_eq!(world.audit("voted").await.len(), 1);
    let status = world.agent(BOT_KEY).approval(&parked.action_id(), 0).await;
    assert_eq!(status.code(), "approval_pending");
    assert_eq!(status.meta()["approvals"], json!([{"group": "payments", "got": 1, "count": 2}]));
    world.finish().await;
}

#[tokio::test]
async fn s10_a_click_on_a_decided_action_changes_nothing_and_says_why() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    // Denied.
    let (denied, card) = world.park().await;
    assert_eq!(world.press(BEN, &card, "undersign_deny").await, StatusCode::OK);
    world.card_showing("The tool was not called").await;
    assert_eq!(world.press_stale(CYD, &card, "undersign_approve").await, StatusCode::OK);
    assert!(world.note_to(CYD).await.contains("it was denied"));
    assert_eq!(agent.approval(&denied.action_id(), 0).await.code(), "denied");
    // Executed.
    let other = json!({"order_id": "A-17", "amount_cents": 9_000});
    let parked = agent.call("refund_order", other.clone()).await;
    let id = parked.action_id();
    let card = world.card_where(|card| card.text.contains(&id)).await;
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, StatusCode::OK);
    let token = agent.approval(&id, 30).await.token().unwrap();
    assert_eq!(agent.call_with_token("refund_order", other, &token).await.code(), "upstream");
    assert_eq!(world.press_stale(ANA, &card, "undersign_deny").await, StatusCode::OK);
    assert!(world.note_to(ANA).await.contains("executed already"));
    assert_eq!(world.state(&id).await, "succeeded");
    assert_eq!(world.audit("late").await.len(), 2);
    assert_eq!(world.shop.ledger().len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn s13_a_handle_opens_its_own_message_and_no_other() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    let first = agent.call("refund_order", refund()).await;
    let second = agent.call("refund_order", json!({"order_id": "A-17", "amount_cents": 9_000})).await;
    let (one, two) = (first.action_id(), second.action_id());
    let card_one = world.card_where(|card| card.text.contains(&one)).await;
    let card_two = world.card_where(|card| card.text.contains(&two)).await;
    let click = |card: &undersign::demo::slack::Message| {
        world.slack.click_payload(BEN, CHANNEL, &card.ts, "undersign_approve").unwrap()
    };
    // Both cards must be known to be where they are, or the click itself would teach it.
    for id in [&one, &two] {
        world.wait_audit("posted", 2).await;
        assert_eq!(world.state(id).await, "pending");
    }
    let mut crossed = click(&card_one);
    crossed["actions"][0]["value"] = click(&card_two)["actions"][0]["value"].clone();
    let mut unknown = click(&card_one);
    unknown["actions"][0]["value"] = json!("00000000000000000000000000000000");
    let mut action_id = click(&card_one);
    action_id["actions"][0]["value"] = json!(one);
    let mut elsewhere = click(&card_one);
    elsewhere["channel"]["id"] = json!("C0OTHER001");
    elsewhere["container"]["channel_id"] = json!("C0OTHER001");
    for payload in [crossed, unknown, action_id, elsewhere] {
        assert_eq!(world.deliver(0, &payload).await, StatusCode::OK);
    }
    assert!(world.slack.wait_ephemeral(|note| note.text.contains("Nothing was decided")).await.is_some());
    for id in [&one, &two] {
        assert_eq!(world.state(id).await, "pending");
    }
    assert!(world.audit("voted").await.is_empty());
    world.finish().await;
}

#[tokio::test]
async fn s14_a_click_that_outruns_the_platforms_answer_counts() {
    let world = World::start().await;
    let gate = Gate::new();
    world.slack.fail("chat.postMessage", 1, &Fault::HangAfter(gate.clone()));
    let parked = world.agent(BOT_KEY).call("refund_order", refund()).await;
    let card = world.card().await;
    let known: Option<String> =
        sqlx::query_scalar("SELECT message_id FROM cards").fetch_one(&world.db).await.unwrap();
    assert_eq!(known, None, "the platform has not answered yet");
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, StatusCode::OK);
    let granted = world.agent(BOT_KEY).approval(&parked.action_id(), 30).await;
    assert_eq!(granted.code(), "approval_granted");
    let learnt: Option<String> =
        sqlx::query_scalar("SELECT message_id FROM cards").fetch_one(&world.db).await.unwrap();
    assert_eq!(learnt.as_deref(), Some(card.ts.as_str()));
    gate.open();
    world.card_showing("Waiting for the agent").await;
    assert_eq!(world.audit("voted").await.len(), 1);
    assert_eq!(world.slack.messages(CHANNEL).len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn s16_response_url_is_never_called_nor_kept() {
    let world = World::start().await;
    let (action, mut payload) = ready(&world).await;
    let trap = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/latest/meta-data", trap.local_addr().unwrap());
    payload["response_url"] = json!(url);
    payload["user"] = json!({"id": MAL, "username": "mal", "name": "mal", "team_id": harness::TEAM});
    // Refused and counted presses alike.
    assert_eq!(world.deliver(0, &payload).await, StatusCode::OK);
    world.note_to(MAL).await;
    payload["user"]["id"] = json!(BEN);
    assert_eq!(world.deliver(0, &payload).await, StatusCode::OK);
    world.card_showing("Waiting for the agent").await;
    assert_eq!(world.state(&action).await, "approved");
    let called = tokio::time::timeout(std::time::Duration::from_millis(300), trap.accept()).await;
    assert!(called.is_err(), "response_url was called");
    let stored: Vec<Vec<u8>> =
        sqlx::query_scalar("SELECT press FROM callbacks").fetch_all(&world.db).await.unwrap();
    assert_eq!(stored.len(), 2);
    assert!(stored.iter().all(|press| !String::from_utf8_lossy(press).contains("meta-data")));
    world.finish().await;
}
