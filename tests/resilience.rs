//! What goes wrong around the path: platforms that refuse or stay silent, clients that hang up, a database that is away.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use std::time::Duration;

use axum::http::StatusCode;
use harness::{BEN, BOT_KEY, CHANNEL, CYD, World, refund};
use serde_json::json;
use undersign::demo::slack::Fault;

#[tokio::test]
async fn a_busy_platform_gets_the_card_later_and_once() {
    let world = World::start().await;
    world.slack.fail("chat.postMessage", 2, &Fault::RateLimited(1));
    let parked = world.agent(BOT_KEY).call("refund_order", refund()).await;
    assert_eq!(parked.code(), "approval_pending");
    world.card().await;
    world.wait_audit("posted", 1).await;
    assert_eq!(world.slack.messages(CHANNEL).len(), 1);
    world.finish().await;
}

/// While a platform asks for time, it is left alone: not one card after the other finds that out.
#[tokio::test]
async fn a_channel_that_asks_for_time_is_left_alone_for_so_long() {
    let world = World::start().await;
    world.slack.fail("chat.postMessage", 1, &Fault::RateLimited(4));
    for cents in [10_000, 11_000, 12_000] {
        let arguments = json!({"order_id": "A-17", "amount_cents": cents});
        assert_eq!(world.agent(BOT_KEY).call("refund_order", arguments).await.code(), "approval_pending");
    }
    world.wait_audit("posted", 3).await;
    let posts = world.slack.requests().iter().filter(|request| request.method == "chat.postMessage").count();
    assert_eq!(posts, 4, "one refused, three accepted");
    let closed: bool = sqlx::query_scalar(
        "SELECT min(c.created_at) > min(a.created_at) + interval '3 seconds' FROM cards c, actions a
          WHERE c.message_id IS NOT NULL",
    )
    .fetch_one(&world.db)
    .await
    .unwrap();
    assert!(closed, "a card went out before the channel's time");
    world.finish().await;
}

/// The answer to a post is lost. Another card goes out; both name one action, and both tell how it ended.
#[tokio::test]
async fn a_post_whose_answer_is_lost_may_show_twice_and_decides_once() {
    for fault in [Fault::DropAfter, Fault::GarbageAfter, Fault::ErrorAfter("fatal_error".to_owned())] {
        let world = World::start().await;
        world.slack.fail("chat.postMessage", 1, &fault);
        let parked = world.agent(BOT_KEY).call("refund_order", refund()).await;
        let id = parked.action_id();
        world.wait_audit("posted", 1).await;
        let cards = world.slack.messages(CHANNEL);
        assert_eq!(cards.len(), 2, "{fault:?}");
        // The first card, whose message nobody told us of, works as well.
        assert_eq!(world.press(BEN, &cards[0], "undersign_approve").await, StatusCode::OK);
        let granted = world.agent(BOT_KEY).approval(&id, 30).await;
        assert_eq!(granted.code(), "approval_granted", "{fault:?}");
        for card in &cards {
            world
                .card_where(|shown| shown.ts == card.ts && shown.as_text().contains("Waiting for the agent"))
                .await;
        }
        assert_eq!(world.press_stale(CYD, &cards[1], "undersign_approve").await, StatusCode::OK);
        assert!(world.note_to(CYD).await.contains("approved already"));
        assert_eq!(world.audit("voted").await.len(), 1);
        world.finish().await;
    }
}

#[tokio::test]
async fn a_card_that_no_platform_takes_is_undeliverable_at_once() {
    for error in ["channel_not_found", "is_archived", "token_revoked", "invalid_blocks"] {
        let world = World::start().await;
        world.slack.fail("chat.postMessage", 10, &Fault::Error(error.to_owned()));
        let parked = world.agent(BOT_KEY).call("refund_order", refund()).await;
        let told = world.agent(BOT_KEY).approval(&parked.action_id(), 30).await;
        assert_eq!(told.code(), "undeliverable", "{error}");
        assert!(told.text().contains("tell the user"), "{}", told.text());
        assert_eq!(world.audit("post_failed").await[0]["error"], error);
        assert!(world.slack.messages(CHANNEL).is_empty());
        world.finish().await;
    }
}

#[tokio::test]
async fn a_card_parked_before_a_restart_is_posted_after_it() {
    let mut world = World::start().await;
    world.slack.fail("chat.postMessage", 1000, &Fault::Http(503));
    let parked = world.agent(BOT_KEY).call("refund_order", refund()).await;
    assert_eq!(parked.code(), "approval_pending");
    world.slack.recover("chat.postMessage");
    world.restart().await;
    let card = world.card().await;
    assert!(card.text.contains(&parked.action_id()));
    world.finish().await;
}

#[tokio::test]
async fn a_press_that_was_stored_and_not_decided_is_decided_by_a_worker() {
    let mut world = World::start().await;
    let (parked, card) = world.park().await;
    world.wait_audit("posted", 1).await;
    let payload = world.slack.click_payload(BEN, CHANNEL, &card.ts, "undersign_approve").unwrap();
    // As a replica leaves it that dies between storing and deciding.
    for replica in world.replicas.drain(..) {
        replica.stop().await;
    }
    let press = json!({
        "callback_id": "left-over", "handle": payload["actions"][0]["value"], "verdict": "approve",
        "account": {"platform": "slack", "installation": "main", "user": BEN}, "home": harness::TEAM,
        "channel": CHANNEL, "message": card.ts,
    });
    sqlx::query(
        "INSERT INTO callbacks (platform, installation, callback_id, press, received_at)
         VALUES ('slack', 'main', 'left-over', $1, clock_timestamp() - interval '5 seconds')",
    )
    .bind(press.to_string().into_bytes())
    .execute(&world.db)
    .await
    .unwrap();
    world.add_replica().await;
    let granted = world.agent(BOT_KEY).approval(&parked.action_id(), 30).await;
    assert_eq!(granted.code(), "approval_granted");
    world.finish().await;
}

#[tokio::test]
async fn a_press_that_cannot_be_stored_is_not_acknowledged() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    sqlx::raw_sql("ALTER TABLE callbacks RENAME TO elsewhere").execute(&world.db).await.unwrap();
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, StatusCode::SERVICE_UNAVAILABLE);
    sqlx::raw_sql("ALTER TABLE elsewhere RENAME TO callbacks").execute(&world.db).await.unwrap();
    assert_eq!(world.state(&parked.action_id()).await, "pending");
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, StatusCode::OK);
    assert_eq!(world.agent(BOT_KEY).approval(&parked.action_id(), 30).await.code(), "approval_granted");
    world.finish().await;
}

/// A change whose audit row can't be written is not made.
#[tokio::test]
async fn without_an_audit_row_nothing_is_decided_or_executed() {
    let world = World::start().await;
    let (action, token) = world.approved().await;
    sqlx::raw_sql("ALTER TABLE audit_events RENAME TO elsewhere").execute(&world.db).await.unwrap();
    let agent = world.agent(BOT_KEY);
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "unavailable");
    let other = json!({"order_id": "A-17", "amount_cents": 9_000});
    assert_eq!(agent.call("refund_order", other).await.code(), "unavailable");
    sqlx::raw_sql("ALTER TABLE elsewhere RENAME TO audit_events").execute(&world.db).await.unwrap();
    assert_eq!(world.state(&action).await, "approved");
    assert!(world.shop.ledger().is_empty());
    let parked: i64 = sqlx::query_scalar("SELECT count(*) FROM actions").fetch_one(&world.db).await.unwrap();
    assert_eq!(parked, 1);
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "upstream");
    world.finish().await;
}

/// Five hundred clients hang up at random moments of a call, a click or a wait: no pooled connection is poisoned, and
/// what was acknowledged is there for everyone.
#[tokio::test]
async fn five_hundred_clients_that_hang_up_lose_no_acknowledged_write() {
    let mut world = World::start().await;
    world.add_replica().await;
    let (parked, card) = world.park().await;
    let payload = world.slack.click_payload(BEN, CHANNEL, &card.ts, "undersign_approve").unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut acknowledged = (Vec::new(), Vec::new());
    for wave in 0..10_u64 {
        let clients: Vec<_> = (0..50_u64)
            .map(|client| {
                let index = wave * 50 + client;
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let patience = Duration::from_micros(random >> 44);
                let replica = usize::from(random & 1 == 1);
                let agent = world.agent_at(replica, BOT_KEY);
                let mut press = payload.clone();
                press["actions"][0]["action_ts"] = json!(format!("1.{index:06}"));
                // A person who may not decide, so that the action stays for the others.
                press["user"]["id"] = json!(harness::MAL);
                let request = world.slack.sign(&press, harness::now());
                let (slack, url, id) = (world.slack.clone(), world.callback_url(replica), parked.action_id());
                tokio::spawn(async move {
                    let work = async {
                        match index % 3 {
                            0 => {
                                let arguments = json!({"order_id": "A-17", "amount_cents": 10_000 + index});
                                let answer = agent.call("refund_order", arguments).await;
                                Some((index, answer.code()))
                            }
                            1 => Some((index, slack.send(&url, request).await.unwrap().to_string())),
                            _ => {
                                agent.approval(&id, 1).await;
                                None
                            }
                        }
                    };
                    tokio::time::timeout(patience, work).await.ok().flatten()
                })
            })
            .collect();
        for client in clients {
            match client.await.unwrap() {
                Some((index, code)) if index % 3 == 0 => {
                    assert_eq!(code, "approval_pending");
                    acknowledged.0.push(i64::try_from(10_000 + index).unwrap());
                }
                Some((index, code)) => {
                    assert_eq!(code, "200 OK");
                    acknowledged.1.push(index);
                }
                None => {}
            }
        }
    }
    let (calls, clicks) = acknowledged;
    assert!(!calls.is_empty() && !clicks.is_empty(), "everybody hung up too soon to tell anything");
    for cents in calls {
        let stored: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM actions WHERE convert_from(arguments, 'UTF8')::json->>'amount_cents' = $1::text",
        )
        .bind(cents.to_string())
        .fetch_one(&world.db)
        .await
        .unwrap();
        assert_eq!(stored, 1, "{cents} was acknowledged");
    }
    let stored: i64 =
        sqlx::query_scalar("SELECT count(*) FROM callbacks").fetch_one(&world.db).await.unwrap();
    assert!(stored >= i64::try_from(clicks.len()).unwrap());
    no_transaction_is_left_open(&world).await;
    // Every connection of the pools is as good as new.
    for index in 0..40_u64 {
        let arguments = json!({"order_id": "A-17", "amount_cents": 80_000 + index});
        let parked =
            world.agent_at(usize::from(index % 2 == 1), BOT_KEY).call("refund_order", arguments).await;
        assert_eq!(parked.code(), "approval_pending");
        assert_eq!(world.state(&parked.action_id()).await, "pending");
    }
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, StatusCode::OK);
    assert_eq!(world.agent(BOT_KEY).approval(&parked.action_id(), 30).await.code(), "approval_granted");
    world.finish().await;
}

async fn no_transaction_is_left_open(world: &World) {
    let mut open = -1_i64;
    for _ in 0..100 {
        open = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                AND state LIKE 'idle in transaction%'",
        )
        .fetch_one(&world.db)
        .await
        .unwrap();
        if open == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{open} backends were left inside a transaction");
}

/// A client that hangs up while a transaction begins must not poison a pooled connection.
#[tokio::test]
async fn clients_that_hang_up_leave_no_transaction_open_and_lose_no_write() {
    let world = World::start().await;
    let (_, card) = world.park().await;
    let payload = world.slack.click_payload(BEN, CHANNEL, &card.ts, "undersign_approve").unwrap();
    for index in 0..200_u64 {
        let agent = world.agent(BOT_KEY);
        let arguments = json!({"order_id": "A-17", "amount_cents": 10_000 + index});
        let mut press = payload.clone();
        press["actions"][0]["action_ts"] = json!(format!("1.{index:06}"));
        let request = world.slack.sign(&press, harness::now());
        let (slack, url) = (world.slack.clone(), world.callback_url(0));
        let work = tokio::spawn(async move {
            if index % 2 == 0 {
                agent.call("refund_order", arguments).await;
            } else {
                slack.send(&url, request).await.unwrap();
            }
        });
        // Hang up at a moment that wanders over the whole call.
        tokio::time::sleep(Duration::from_micros(index * 137 % 12_000)).await;
        work.abort();
    }
    no_transaction_is_left_open(&world).await;
    let last = json!({"order_id": "A-17", "amount_cents": 99_999});
    let parked = world.agent(BOT_KEY).call("refund_order", last).await;
    assert_eq!(parked.code(), "approval_pending");
    assert_eq!(
        world.state(&parked.action_id()).await,
        "pending",
        "an acknowledged write is visible to everyone"
    );
    world.finish().await;
}

/// A press that a defect keeps from being decided must not be tried for ever: nothing is decided, and the person is told.
#[tokio::test]
async fn a_press_that_cannot_be_decided_is_closed_and_the_person_is_told() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    world.wait_audit("posted", 1).await;
    let before: String = sqlx::query_scalar("SELECT risk FROM actions").fetch_one(&world.db).await.unwrap();
    world
        .rewrite("ALTER TABLE actions DROP CONSTRAINT actions_risk_check; UPDATE actions SET risk = 'mild'")
        .await;
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, StatusCode::OK);
    assert!(world.note_to(BEN).await.contains("a fault in undersign"));
    let result: String =
        sqlx::query_scalar("SELECT result FROM callbacks").fetch_one(&world.db).await.unwrap();
    assert_eq!(result, "fault");
    world.rewrite(&format!("UPDATE actions SET risk = '{before}'")).await;
    assert_eq!(world.state(&parked.action_id()).await, "pending");
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, StatusCode::OK);
    assert_eq!(world.agent(BOT_KEY).approval(&parked.action_id(), 30).await.code(), "approval_granted");
    world.finish().await;
}

/// A change that falls into the very moment in which the card before it is finished must not wait for a lease to end.
#[tokio::test]
async fn a_change_while_the_card_is_being_finished_shows_at_once() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    for round in 0..40_u64 {
        let parked =
            agent.call("refund_order", json!({"order_id": "A-17", "amount_cents": 30_000 + round})).await;
        let id = parked.action_id();
        world.card_where(|card| card.text.contains(&id)).await;
        tokio::time::sleep(Duration::from_micros(round * 400)).await;
        assert_eq!(agent.cancel(&id).await.code(), "cancelled");
    }
    for _ in 0..100 {
        let left: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM outbox WHERE attempts > 0 AND not_before > clock_timestamp() + interval '5 seconds'",
        )
        .fetch_one(&world.db)
        .await
        .unwrap();
        let shown = world
            .slack
            .messages(CHANNEL)
            .iter()
            .filter(|card| card.as_text().contains("Withdrawn by the agent"))
            .count();
        if shown == 40 {
            world.finish().await;
            return;
        }
        assert!(left < 30, "rows wait for their leases to end");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("a withdrawn action still has buttons");
}

/// A card whose post was answered by nobody is learnt from a late click, and then shows how things stand.
#[tokio::test]
async fn a_card_that_was_left_behind_loses_its_buttons_when_it_is_found() {
    let world = World::start().await;
    world.slack.fail("chat.postMessage", 1, &Fault::DropAfter);
    let parked = world.agent(BOT_KEY).call("refund_order", refund()).await;
    world.wait_audit("posted", 1).await;
    let cards = world.slack.messages(CHANNEL);
    assert_eq!(cards.len(), 2);
    assert_eq!(world.press(BEN, &cards[1], "undersign_deny").await, StatusCode::OK);
    assert_eq!(world.agent(BOT_KEY).approval(&parked.action_id(), 30).await.code(), "denied");
    assert_eq!(world.press(CYD, &cards[0], "undersign_approve").await, StatusCode::OK);
    assert!(world.note_to(CYD).await.contains("it was denied"));
    world.card_where(|card| card.ts == cards[0].ts && card.buttons().is_empty()).await;
    world.finish().await;
}
