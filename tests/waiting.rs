//! Calls that are held while people decide: how they end, and what does not depend on them.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use std::time::Duration;

use futures_util::StreamExt as _;
use harness::{Agent, BEN, BOT_KEY, OTHER_KEY, World, at_once, refund};
use serde_json::{Value, json};

/// A world whose calls are held for so long.
async fn holding(hold: &str, replicas: usize) -> World {
    let mut world = World::prepare(harness::RULES).await;
    let config = world.read("undersign.toml").replace("hold = \"0s\"", &format!("hold = \"{hold}\""));
    world.write("undersign.toml", &config);
    for _ in 0..replicas {
        world.add_replica().await;
    }
    world
}

/// The call as a task, and the card that it caused.
async fn held(
    world: &World,
    agent: Agent,
) -> (tokio::task::JoinHandle<harness::Answer>, undersign::demo::slack::Message, String) {
    let call = tokio::spawn(async move { agent.call("refund_order", refund()).await });
    let card = world.card().await;
    let id: String = sqlx::query_scalar("SELECT id::text FROM actions").fetch_one(&world.db).await.unwrap();
    (call, card, id)
}

#[tokio::test]
async fn a_held_call_ends_with_the_token_and_never_executes() {
    for legacy in [false, true] {
        let world = holding("50s", 1).await;
        let agent = if legacy { world.agent(BOT_KEY).legacy() } else { world.agent(BOT_KEY) };
        let (call, card, _) = held(&world, agent.clone()).await;
        world.press(BEN, &card, "undersign_approve").await;
        let granted = call.await.unwrap();
        assert_eq!(granted.code(), "approval_granted");
        assert!(world.shop.ledger().is_empty());
        let token = granted.token().unwrap();
        assert!(granted.text().contains(&token));
        assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "upstream");
        world.finish().await;
    }
}

#[tokio::test]
async fn a_held_call_is_told_of_a_denial_a_cancellation_and_a_deadline() {
    let world = holding("50s", 1).await;
    let (call, card, _) = held(&world, world.agent(BOT_KEY)).await;
    world.press(BEN, &card, "undersign_deny").await;
    assert_eq!(call.await.unwrap().code(), "denied");
    world.finish().await;

    let world = holding("50s", 1).await;
    let (call, _, id) = held(&world, world.agent(BOT_KEY)).await;
    assert_eq!(world.agent(BOT_KEY).cancel(&id).await.code(), "cancelled");
    assert_eq!(call.await.unwrap().code(), "cancelled");
    world.finish().await;

    let world = holding("50s", 1).await;
    let (call, _, _) = held(&world, world.agent(BOT_KEY)).await;
    world.rewrite("UPDATE actions SET expires_at = clock_timestamp()").await;
    assert_eq!(call.await.unwrap().code(), "expired");
    world.finish().await;
}

#[tokio::test]
async fn t11_a_hold_ends_as_pending_and_chat_decides_all_the_same() {
    let world = holding("1s", 1).await;
    let parked = world.agent(BOT_KEY).call("refund_order", refund()).await;
    assert_eq!(parked.code(), "approval_pending");
    assert!(world.shop.ledger().is_empty());
    let card = world.card().await;
    world.press(BEN, &card, "undersign_approve").await;
    assert_eq!(world.agent(BOT_KEY).approval(&parked.action_id(), 30).await.code(), "approval_granted");
    world.finish().await;
}

/// The click comes by one replica, the call is held by another: NOTIFY tells of it, and where that is lost a slow look.
#[tokio::test]
async fn a_decision_by_another_replica_ends_the_hold_with_and_without_notify() {
    for notified in [true, false] {
        let world = holding("50s", 2).await;
        if !notified {
            // As through a pooler, or while the listener's connection is being made anew.
            sqlx::raw_sql("CREATE SCHEMA deaf; CREATE FUNCTION deaf.pg_notify(text, text) RETURNS void LANGUAGE sql AS ''")
                .execute(&world.db)
                .await
                .unwrap();
            let name: String =
                sqlx::query_scalar("SELECT current_database()").fetch_one(&world.db).await.unwrap();
            let sql = format!(
                "ALTER DATABASE {name} SET search_path = deaf, pg_catalog, public;
                 SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                  WHERE datname = current_database() AND application_name = 'undersign'"
            );
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&world.db).await.unwrap();
        }
        let mut agent = world.agent_at(1, BOT_KEY);
        let mut call = None;
        // Connections that were cut are found out by their next use.
        for _ in 0..20 {
            let asking = agent.clone();
            let asked = tokio::spawn(async move { asking.call("refund_order", refund()).await });
            tokio::time::sleep(Duration::from_millis(300)).await;
            if !asked.is_finished() {
                call = Some(asked);
                break;
            }
            agent = world.agent_at(1, BOT_KEY);
        }
        let card = world.card().await;
        world.press_at(0, BEN, &card, "undersign_approve").await;
        let granted = call.unwrap().await.unwrap();
        assert_eq!(granted.code(), "approval_granted", "notified: {notified}");
        world.finish().await;
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_or_cancels_leaves_the_action_alone() {
    let world = holding("50s", 1).await;
    let (call, card, id) = held(&world, world.agent(BOT_KEY)).await;
    call.abort();
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let told = world.agent(BOT_KEY).legacy();
    let (status, _) = told.request("notifications/cancelled", None, cancelled.to_string().into()).await;
    assert_eq!(status, 202);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.state(&id).await, "pending");
    world.press(BEN, &card, "undersign_approve").await;
    world.wait_audit("approved", 1).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(
        world.audit("token_issued").await.is_empty(),
        "nobody waits any more, so nobody was given the token"
    );
    // The same call again finds the approval.
    assert_eq!(world.agent(BOT_KEY).call("refund_order", refund()).await.code(), "approval_granted");
    assert_eq!(world.audit("parked").await.len(), 1);
    world.finish().await;
}

/// Far more held calls than the pool has connections; everything else goes on, and all are released by one decision each.
#[tokio::test]
async fn a_held_call_costs_no_connection() {
    let world = holding("50s", 1).await;
    let calls: Vec<_> = (0..200_u64)
        .map(|index| {
            let agent = world.agent(if index % 2 == 0 { BOT_KEY } else { OTHER_KEY });
            let arguments = json!({"order_id": "A-17", "amount_cents": 10_000 + index % 4});
            tokio::spawn(async move { agent.call("refund_order", arguments).await })
        })
        .collect();
    let parked = || async {
        sqlx::query_scalar::<_, i64>("SELECT count(*) FROM actions").fetch_one(&world.db).await.unwrap()
    };
    for _ in 0..200 {
        if parked().await == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Workers look now and then; there are moments in which nobody is at the database.
    let mut busy = -1_i64;
    for _ in 0..200 {
        busy = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'undersign'
                AND state <> 'idle'",
        )
        .fetch_one(&world.db)
        .await
        .unwrap();
        if busy <= 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(busy <= 1, "{busy} connections are busy while everybody waits");
    assert_eq!(world.agent(BOT_KEY).call("get_order", json!({"order_id": "A-17"})).await.code(), "upstream");
    let ids: Vec<String> =
        sqlx::query_scalar("SELECT id::text FROM actions").fetch_all(&world.db).await.unwrap();
    for id in &ids {
        let card = world.card_where(|card| card.text.contains(id)).await;
        world.press(BEN, &card, "undersign_approve").await;
    }
    for call in calls {
        assert_eq!(call.await.unwrap().code(), "approval_granted");
    }
    world.finish().await;
}

/// A service that stops answers those who wait, and the action stays pending.
#[tokio::test]
async fn a_stopping_service_answers_whoever_waits() {
    let mut world = holding("50s", 1).await;
    let (call, _, id) = held(&world, world.agent(BOT_KEY)).await;
    world.replicas.remove(0).stop().await;
    assert_eq!(call.await.unwrap().code(), "approval_pending");
    assert_eq!(world.state(&id).await, "pending");
    world.add_replica().await;
    world.finish().await;
}

/// Every message of the stream that a held call is answered with, in order.
async fn stream(world: &World, legacy: bool) -> Vec<Value> {
    let mut meta = json!({"progressToken": "p1"});
    if !legacy {
        meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "t", "version": "1"});
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "refund_order", "arguments": refund(), "_meta": meta}});
    let client = reqwest::Client::builder().build().unwrap();
    let mut request = client
        .post(format!("http://{}/mcp/shop", world.replicas[0].agents()))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("authorization", format!("Bearer {BOT_KEY}"))
        .header("mcp-protocol-version", if legacy { "2025-11-25" } else { "2026-07-28" });
    if !legacy {
        request = request.header("mcp-method", "tools/call").header("mcp-name", "refund_order");
    }
    let response = request.body(body.to_string()).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
    }
    text.lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .filter_map(|data| serde_json::from_str(data.trim()).ok())
        .collect()
}

#[tokio::test]
async fn a_client_that_asks_for_progress_gets_it_at_once_and_then_every_five_seconds() {
    for legacy in [false, true] {
        let world = holding("6s", 1).await;
        let messages = stream(&world, legacy).await;
        let progress: Vec<_> = messages
            .iter()
            .filter(|message| message["method"] == "notifications/progress")
            .map(|message| message["params"].clone())
            .collect();
        let sign = |n: f64| json!({"progressToken": "p1", "progress": n, "message": "Waiting for 1 of payments, in slack:main/C0PAY00001"});
        assert_eq!(progress, [sign(1.0), sign(2.0)]);
        let last = messages.last().unwrap();
        assert_eq!(last["result"]["_meta"]["dev.undersign/approval"]["code"], "approval_pending");
        world.finish().await;
    }
}

/// A hundred clients with one call: all are held, one card goes out, and one click answers them all.
#[tokio::test]
async fn everybody_who_makes_the_same_call_is_held_by_one_action() {
    let world = holding("50s", 1).await;
    let agent = world.agent(BOT_KEY);
    let calls = tokio::spawn(at_once(100, move |_| {
        let agent = agent.clone();
        async move { agent.call("refund_order", refund()).await }
    }));
    let card = world.card().await;
    world.press(BEN, &card, "undersign_approve").await;
    let answers = calls.await.unwrap();
    assert!(answers.iter().all(|answer| answer.code() == "approval_granted"));
    assert_eq!(world.audit("parked").await.len(), 1);
    world.finish().await;
}
