//! Execution (THREATS.md group X and `tool_changed`): one claim, one attempt, the stored arguments, the truth afterwards.

mod harness;

use axum::http::StatusCode;
use harness::{BEN, BOT_KEY, World, at_once, refund};
use serde_json::json;
use undersign::demo::gate::Gate;
use undersign::demo::shop::Behaviour;

#[tokio::test]
async fn x01_an_approval_that_runs_out_before_the_claim_executes_nothing() {
    for late in ["1 millisecond", "1 second"] {
        let world = World::start().await;
        let (action, token) = world.approved().await;
        world
            .rewrite(&format!(
                "UPDATE actions SET redeem_by = clock_timestamp() - interval '{late}' WHERE id = '{action}'"
            ))
            .await;
        let answer = world.agent(BOT_KEY).call_with_token("refund_order", refund(), &token).await;
        assert_eq!(answer.code(), "expired", "{late}");
        assert!(world.shop.ledger().is_empty());
        world.finish().await;
    }
}

/// The row is locked by somebody else while the deadline passes: the claim must read the clock after the lock.
#[tokio::test]
async fn x01_a_claim_that_waits_past_the_deadline_is_too_late() {
    let world = World::start().await;
    let (action, token) = world.approved().await;
    world
        .rewrite(&format!(
            "UPDATE actions SET redeem_by = clock_timestamp() + interval '700 milliseconds' WHERE id = '{action}'"
        ))
        .await;
    let mut lock = harness::begin(&world.db).await;
    sqlx::query("SELECT id FROM actions WHERE id = $1::uuid FOR UPDATE")
        .bind(&action)
        .execute(&mut *lock)
        .await
        .unwrap();
    let agent = world.agent(BOT_KEY);
    let redeeming =
        tokio::spawn(async move { agent.call_with_token("refund_order", refund(), &token).await });
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    lock.rollback().await.unwrap();
    let answer = redeeming.await.unwrap();
    assert_eq!(answer.code(), "expired");
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn x03_sixty_four_redemptions_over_two_replicas_are_one_execution() {
    let mut world = World::start().await;
    world.add_replica().await;
    let (_, token) = world.approved().await;
    let agents = [world.agent_at(0, BOT_KEY), world.agent_at(1, BOT_KEY)];
    let codes = at_once(64, move |index| {
        let (agent, token) = (agents[index % 2].clone(), token.clone());
        async move { agent.call_with_token("refund_order", refund(), &token).await.code() }
    })
    .await;
    let count = |wanted: &str| codes.iter().filter(|code| *code == wanted).count();
    assert_eq!(count("upstream"), 1, "{codes:?}");
    assert_eq!(count("already_used") + count("in_progress"), 63, "{codes:?}");
    assert_eq!(world.shop.ledger().len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn x04_a_row_edited_after_the_approval_is_refused_with_an_alarm() {
    for edit in [
        "arguments = convert_to('{\"amount_cents\":999900,\"order_id\":\"A-17\"}', 'UTF8')",
        "action_digest = decode(repeat('ab', 32), 'hex')",
        "requirement = convert_to('{\"approvers\":[],\"escalate\":null,\"second_look_s\":null,\"separate_proposer\":false,\"step_up\":null}', 'UTF8')",
        "tool = 'delete_customer'",
    ] {
        let world = World::start().await;
        let (action, token) = world.approved().await;
        world.rewrite(&format!("UPDATE actions SET {edit} WHERE id = '{action}'")).await;
        let answer = world.agent(BOT_KEY).call_with_token("refund_order", refund(), &token).await;
        assert_eq!(answer.code(), "digest_mismatch", "{edit}");
        assert!(world.shop.ledger().is_empty(), "{edit}");
        assert_eq!(world.audit("row_tampered").await.len(), 1, "{edit}");
        world.finish().await;
    }
    // A vote put into the name of somebody who never pressed carries nobody's authority.
    let world = World::start().await;
    let (action, token) = world.approved().await;
    world.rewrite(&format!("UPDATE votes SET person = 'mallory' WHERE action_id = '{action}'")).await;
    let answer = world.agent(BOT_KEY).call_with_token("refund_order", refund(), &token).await;
    assert_eq!(answer.code(), "approver_revoked");
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn x09_errors_of_the_upstream_spend_the_token_and_are_not_tried_again() {
    let world = World::start().await;
    world.shop.script("refund_order", Behaviour::ToolError("no such order".to_owned()));
    let (action, token) = world.approved().await;
    let agent = world.agent(BOT_KEY);
    let answer = agent.call_with_token("refund_order", refund(), &token).await;
    assert!(answer.is_error());
    assert_eq!((answer.code().as_str(), answer.text().as_str()), ("upstream", "no such order"));
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "already_used");
    assert_eq!(agent.approval(&action, 0).await.code(), "failed");
    world.card_showing("Failed (tool_error)").await;
    assert_eq!(world.shop.ledger().len(), 1);
    world.finish().await;

    let world = World::start().await;
    world.shop.script("refund_order", Behaviour::RpcError(-32602, "bad".to_owned()));
    let (_, token) = world.approved().await;
    let agent = world.agent(BOT_KEY);
    let answer = agent.call_with_token("refund_order", refund(), &token).await;
    assert_eq!(answer.code(), "failed");
    assert!(answer.text().contains("protocol_error"), "{}", answer.text());
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "already_used");
    assert_eq!(world.shop.ledger().len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn x09_an_upstream_that_cannot_be_reached_is_asked_nothing() {
    let world = World::start().await;
    let (action, token) = world.approved().await;
    world.shop.stop().await;
    let agent = world.agent(BOT_KEY);
    // The tool can't be listed, so nothing is claimed and the token keeps.
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "unavailable");
    assert_eq!(world.state(&action).await, "approved");
    world.shop.start_again().await.unwrap();
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "upstream");
    assert_eq!(world.shop.ledger().len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn x10_an_intent_has_one_idempotency_key_and_no_two_share_one() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    for cents in [12_000, 13_000] {
        let arguments = json!({"order_id": "A-17", "amount_cents": cents});
        let parked = agent.call("refund_order", arguments.clone()).await;
        let id = parked.action_id();
        let card = world.card_where(|card| card.text.contains(&id)).await;
        world.press(BEN, &card, "undersign_approve").await;
        let token = agent.approval(&id, 30).await.token().unwrap();
        assert_eq!(agent.call_with_token("refund_order", arguments, &token).await.code(), "upstream");
    }
    let keys: Vec<_> = world.shop.ledger().iter().map(|call| call.idempotency_key.clone().unwrap()).collect();
    assert_eq!(keys.len(), 2);
    assert_ne!(keys[0], keys[1]);
    let stored: Vec<String> = sqlx::query_scalar("SELECT idempotency_key FROM intents ORDER BY claimed_at")
        .fetch_all(&world.db)
        .await
        .unwrap();
    assert_eq!(stored, keys);
    world.finish().await;
}

#[tokio::test]
async fn nothing_of_the_clients_goes_upstream() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    world.press(BEN, &card, "undersign_approve").await;
    let agent = world.agent(BOT_KEY);
    let token = agent.approval(&parked.action_id(), 30).await.token().unwrap();
    let meta =
        json!({"dev.undersign/approval-token": token, "vendor.example/secret": "canary", "progressToken": 7});
    assert_eq!(agent.call_with_meta("refund_order", refund(), meta).await.code(), "upstream");
    let call = &world.shop.ledger()[0];
    assert_eq!(call.arguments, refund());
    assert!(!format!("{:?}", call.meta).contains("canary"), "{:?}", call.meta);
    let sent = call.headers["authorization"].to_str().unwrap();
    assert_eq!(
        sent, "Bearer upstream-credential-0123456789",
        "the upstream's own credential, not the agent's"
    );
    for (name, value) in &call.headers {
        assert!(!value.to_str().unwrap_or_default().contains(BOT_KEY), "{name}");
    }
    world.finish().await;
}

#[tokio::test]
async fn a_tool_that_changed_after_the_approval_is_not_called() {
    let world = World::start().await;
    let (action, token) = world.approved().await;
    world
        .shop
        .edit_tool("refund_order", |tool| tool["description"] = json!("Refunds an order. Safe and harmless."))
        .unwrap();
    let agent = world.agent(BOT_KEY);
    let answer = agent.call_with_token("refund_order", refund(), &token).await;
    assert_eq!(answer.code(), "tool_changed");
    assert!(world.shop.ledger().is_empty());
    assert_eq!(world.state(&action).await, "invalidated");
    let later = agent.call_with_token("refund_order", refund(), &token).await;
    assert_eq!(
        (later.code().as_str(), later.meta()["reason"].as_str()),
        ("invalidated", Some("tool_changed"))
    );
    world.card_showing("Void: tool_changed").await;
    // A new proposal gets a new card and a new approval.
    let anew = agent.call("refund_order", refund()).await;
    assert_eq!(anew.code(), "approval_pending");
    assert_ne!(anew.action_id(), action);
    world.finish().await;
}

#[tokio::test]
async fn an_answer_that_never_comes_is_doubt_and_is_not_tried_again() {
    for behaviour in [Behaviour::HangAfter(Gate::new()), Behaviour::DropAfter, Behaviour::GarbageAfter] {
        let world = World::start().await;
        world.shop.script("refund_order", behaviour.clone());
        let (action, token) = world.approved().await;
        let agent = world.agent(BOT_KEY);
        let answer = agent.call_with_token("refund_order", refund(), &token).await;
        assert_eq!(answer.code(), "outcome_unknown", "{behaviour:?}");
        assert!(answer.text().contains("Do not repeat it"), "{}", answer.text());
        world.shop.script("refund_order", Behaviour::Normal);
        assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "outcome_unknown");
        // The same call is not parked anew while nobody knows.
        let again = agent.call("refund_order", refund()).await;
        assert_eq!((again.code(), again.action_id()), ("outcome_unknown".to_owned(), action.clone()));
        assert_eq!(world.shop.ledger().len(), 1, "{behaviour:?}");
        world.card_showing("Outcome unknown").await;
        world.finish().await;
    }
}

#[tokio::test]
async fn a_claim_that_its_replica_abandoned_is_closed_as_doubt() {
    let world = World::start().await;
    let gate = Gate::new();
    world.shop.script("refund_order", Behaviour::HangAfter(gate.clone()));
    let (action, token) = world.approved().await;
    let agent = world.agent(BOT_KEY);
    let redeeming =
        tokio::spawn(async move { agent.call_with_token("refund_order", refund(), &token).await });
    gate.arrived().await;
    assert_eq!(world.state(&action).await, "executing");
    let second = world.agent(BOT_KEY).call("refund_order", refund()).await;
    assert_eq!(second.code(), "in_progress");
    sqlx::query("UPDATE intents SET deadline = clock_timestamp() - interval '1 second'")
        .execute(&world.db)
        .await
        .unwrap();
    let answer = world.agent(BOT_KEY).approval(&action, 30).await;
    assert_eq!(answer.code(), "outcome_unknown");
    gate.open();
    redeeming.await.unwrap();
    assert_eq!(
        world.state(&action).await,
        "outcome_unknown",
        "a sweeper's doubt is resolved, never overwritten"
    );
    assert_eq!(world.shop.ledger().len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_aborts_nothing() {
    let world = World::start().await;
    let gate = Gate::new();
    world.shop.script("refund_order", Behaviour::HangBefore(gate.clone()));
    let (action, token) = world.approved().await;
    let agent = world.agent(BOT_KEY);
    let call = tokio::spawn(async move { agent.call_with_token("refund_order", refund(), &token).await });
    gate.arrived().await;
    call.abort();
    gate.open();
    let outcome = world.agent(BOT_KEY).approval(&action, 30).await;
    assert_eq!(outcome.code(), "succeeded");
    assert_eq!(world.shop.effects().len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn an_agent_withdraws_what_is_pending_or_approved_and_nothing_else() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    let (parked, card) = world.park().await;
    let cancelled = agent.cancel(&parked.action_id()).await;
    assert_eq!((cancelled.code().as_str(), cancelled.is_error()), ("cancelled", false));
    assert_eq!(world.press_stale(BEN, &card, "undersign_approve").await, StatusCode::OK);
    assert!(world.note_to(BEN).await.contains("it was withdrawn"));
    assert_eq!(world.state(&parked.action_id()).await, "cancelled");
    // Approved, then withdrawn: the token is void.
    let (action, token) = world.approved().await;
    assert_eq!(agent.cancel(&action).await.code(), "cancelled");
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "cancelled");
    // Executed: too late.
    let (action, token) = world.approved().await;
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "upstream");
    assert_eq!(agent.cancel(&action).await.code(), "succeeded");
    assert_eq!(world.shop.ledger().len(), 1);
    world.finish().await;
}

/// What the card said of environment and owner must still be so at the redemption.
#[tokio::test]
async fn a_changed_environment_or_owner_voids_the_approval() {
    for (from, to) in [
        ("environment = \"production\"", "environment = \"staging\""),
        ("owner = \"ana\"", "owner = \"ben\""),
    ] {
        let mut world = World::start().await;
        let (action, token) = world.approved().await;
        world.write("undersign.toml", &world.read("undersign.toml").replace(from, to));
        world.restart().await;
        let answer = world.agent(BOT_KEY).call_with_token("refund_order", refund(), &token).await;
        assert_eq!(answer.code(), "policy_changed", "{to}");
        assert_eq!(answer.meta()["state"], "invalidated");
        assert_eq!(world.state(&action).await, "invalidated");
        assert!(world.shop.ledger().is_empty());
        world.finish().await;
    }
}

/// A relayed call whose answer is lost was perhaps made: the agent must not be told that nothing was done.
#[tokio::test]
async fn an_allowed_call_without_an_answer_is_doubt() {
    let world = World::start().await;
    world.shop.script("refund_order", Behaviour::DropAfter);
    let answer =
        world.agent(BOT_KEY).call("refund_order", json!({"order_id": "A-17", "amount_cents": 100})).await;
    assert_eq!(answer.code(), "outcome_unknown");
    assert_eq!(world.shop.effects().len(), 1);
    world.shop.stop().await;
    let answer =
        world.agent(BOT_KEY).call("refund_order", json!({"order_id": "A-17", "amount_cents": 100})).await;
    assert_eq!(answer.code(), "unavailable");
    world.finish().await;
}
