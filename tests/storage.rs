//! What the schema shuts out, tried with plain SQL: no code path of ours, present or future, can do it.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use harness::{BEN, BOT_KEY, GLOBEX_KEY, World, begin, refund};
use undersign::domain::ids::{ActionId, Tenant};
use undersign::domain::place::Place;
use undersign::storage::{Db, Wanted};

/// The constraint that refuses a statement.
async fn refused_by(world: &World, sql: &str) -> String {
    let sql = sqlx::AssertSqlSafe(sql.to_owned());
    match sqlx::raw_sql(sql).execute(&world.db).await {
        Err(sqlx::Error::Database(error)) => error.constraint().unwrap_or_default().to_owned(),
        other => panic!("not refused by a constraint: {other:?}"),
    }
}

async fn rows(world: &World, sql: &str) -> u64 {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(&world.db).await.unwrap().rows_affected()
}

#[tokio::test]
async fn what_was_approved_cannot_be_changed() {
    let world = World::start().await;
    let (action, _) = world.approved().await;
    for change in [
        "arguments = convert_to('{}', 'UTF8')",
        "tenant = 'globex'",
        "agent = 'other-bot'",
        "tool = 'x'",
        "owner = NULL",
        "requirement = convert_to('{}', 'UTF8')",
        "action_digest = sha256('x')",
        "content_digest = sha256('x')",
        "policy_version = sha256('x')",
        "tool_version = sha256('x')",
        "preview = 'x'",
        "risk = 'medium'",
        "post_to = '{x}'",
        "expires_at = expires_at + interval '1 hour'",
        "redeem_within = '1 day'",
        "redeem_by = redeem_by + interval '1 hour'",
        "redeem_by = NULL",
        "barred_person = ''",
        "rules = '{}'",
    ] {
        let sql = format!("UPDATE actions SET {change} WHERE id = '{action}'");
        assert_eq!(refused_by(&world, &sql).await, "actions_guard_immutable", "{change}");
    }
    world.finish().await;
}

#[tokio::test]
async fn no_state_is_skipped_and_none_that_is_over_is_left() {
    let world = World::start().await;
    let (parked, _) = world.park().await;
    let id = parked.action_id();
    for state in ["executing", "succeeded", "failed", "outcome_unknown"] {
        let sql = format!(
            "UPDATE actions SET state = '{state}', decided_at = now(), redeemed_at = now() WHERE id = '{id}'"
        );
        assert_eq!(refused_by(&world, &sql).await, "actions_guard_transition", "pending to {state}");
    }
    world.agent(BOT_KEY).cancel(&id).await;
    for state in ["pending", "approved", "denied", "executing", "expired", "invalidated"] {
        let sql = format!("UPDATE actions SET state = '{state}', reason = 'x' WHERE id = '{id}'");
        assert_eq!(refused_by(&world, &sql).await, "actions_guard_transition", "cancelled to {state}");
    }
    world.finish().await;
}

#[tokio::test]
async fn one_call_has_one_live_action_and_one_action_one_execution() {
    let world = World::start().await;
    let (action, token) = world.approved().await;
    let copy = format!(
        "INSERT INTO actions (id, tenant, agent, upstream, tool, tool_version, policy_version, requirement, preconditions,
           arguments, content_digest, action_digest, preview, facts, rules, risk, post_to, expires_at, redeem_within)
         SELECT gen_random_uuid(), tenant, agent, upstream, tool, tool_version, policy_version, requirement, preconditions,
           arguments, content_digest, action_digest, preview, facts, rules, risk, post_to, now() + interval '1 hour',
           redeem_within FROM actions WHERE id = '{action}'"
    );
    assert_eq!(refused_by(&world, &copy).await, "actions_live_content");
    let answer = world.agent(BOT_KEY).call_with_token("refund_order", refund(), &token).await;
    assert_eq!(answer.code(), "upstream");
    let second = format!(
        "INSERT INTO intents (action_id, tenant, agent, idempotency_key, claimed_by, deadline)
         VALUES ('{action}', 'acme', 'support-bot', 'another', 'x', now())"
    );
    assert_eq!(refused_by(&world, &second).await, "intents_pkey");
    assert_eq!(
        rows(&world, &copy.replace("now() + interval '1 hour'", "now() + interval '2 hours'")).await,
        1
    );
    world.finish().await;
}

#[tokio::test]
async fn votes_are_one_a_person_never_the_barred_persons_and_never_misattributed() {
    let world = World::start().await;
    let (action, _) = world.approved().await;
    let vote = |person: &str, verdict: &str, barred: &str, callback: &str| {
        format!(
            "INSERT INTO votes (action_id, tenant, barred_person, person, verdict, groups, platform, installation, user_id,
               callback_id) VALUES ('{action}', 'acme', '{barred}', '{person}', '{verdict}', '{{payments}}', 'slack',
               'main', 'U1', '{callback}')"
        )
    };
    assert_eq!(
        refused_by(&world, &vote("ana", "approve", "ana", "c1")).await,
        "votes_not_by_the_barred_person"
    );
    assert_eq!(refused_by(&world, &vote("ben", "approve", "ana", "c2")).await, "votes_pkey");
    let false_bar = refused_by(&world, &vote("ana", "approve", "somebody", "c3")).await;
    assert_eq!(false_bar, "votes_action_id_tenant_barred_person_fkey");
    let counted: String =
        sqlx::query_scalar("SELECT callback_id FROM votes").fetch_one(&world.db).await.unwrap();
    let replay = refused_by(&world, &vote("cyd", "approve", "ana", &counted)).await;
    assert_eq!(replay, "votes_platform_installation_callback_id_key");
    let press = format!(
        "INSERT INTO callbacks (platform, installation, callback_id, press) VALUES ('slack', 'main', '{counted}', 'x')"
    );
    assert_eq!(refused_by(&world, &press).await, "callbacks_pkey");
    world.finish().await;
}

#[tokio::test]
async fn states_have_the_data_of_that_state() {
    let world = World::start().await;
    let (parked, _) = world.park().await;
    let id = parked.action_id();
    let set = |change: &str| format!("UPDATE actions SET {change} WHERE id = '{id}'");
    for (change, constraint) in [
        ("decided_at = now()", "actions_decided_unless_pending"),
        ("state = 'denied'", "actions_decided_unless_pending"),
        ("state = 'invalidated', decided_at = now()", "actions_voided_has_reason"),
        ("redeemed_at = now()", "actions_redeemed_when_executed"),
    ] {
        assert_eq!(refused_by(&world, &set(change)).await, constraint, "{change}");
    }
    world.finish().await;
}

#[tokio::test]
async fn audit_rows_are_never_changed() {
    let mut world = World::start().await;
    world.park().await;
    // A service that stops has chained and signed everything.
    world.stop().await;
    for sql in [
        "UPDATE audit_events SET kind = 'x'",
        "DELETE FROM audit_events",
        "TRUNCATE audit_events",
        "TRUNCATE audit_events_2026_12",
        "TRUNCATE audit_events_beyond",
        "DELETE FROM audit_subjects",
        "TRUNCATE audit_subjects",
        "UPDATE audit_subjects SET subject = 'x'",
        "UPDATE audit_subjects SET event_id = 7, subject = NULL, salt = NULL",
        "UPDATE audit_chain SET hash = sha256('x')",
        "DELETE FROM audit_chain",
        "TRUNCATE audit_chain",
        "UPDATE audit_head SET hash = sha256('x')",
        "UPDATE audit_head SET seq = seq - 1",
        "DELETE FROM audit_head",
        "TRUNCATE audit_head",
        "UPDATE audit_checkpoints SET signed = 'x'",
        "DELETE FROM audit_checkpoints",
        "TRUNCATE audit_checkpoints",
    ] {
        assert_eq!(refused_by(&world, sql).await, "audit_is_append_only", "{sql}");
    }
    assert_eq!(
        rows(&world, "UPDATE audit_subjects SET subject = NULL, salt = NULL").await,
        1,
        "emptying is allowed"
    );
    let again = refused_by(&world, "UPDATE audit_subjects SET subject = NULL, salt = NULL").await;
    assert_eq!(again, "audit_is_append_only", "and once");
    world.finish_with_another_trail().await;
}

/// An UPDATE that waits behind a lock past the deadline: its own WHERE was true before the wait.
#[tokio::test]
async fn a_late_approval_or_claim_updates_nothing() {
    let world = World::start().await;
    let (parked, _) = world.park().await;
    let (action, _) = world.approved_other().await;
    for (id, deadline, approve) in [
        (parked.action_id(), "expires_at", "state = 'approved', decided_at = clock_timestamp()"),
        (action, "redeem_by", "state = 'executing', redeemed_at = clock_timestamp()"),
    ] {
        world
            .rewrite(&format!(
                "UPDATE actions SET created_at = clock_timestamp() - interval '1 hour',
                   {deadline} = clock_timestamp() + interval '600 milliseconds' WHERE id = '{id}'"
            ))
            .await;
        let mut lock = begin(&world.db).await;
        let sql = format!("SELECT id FROM actions WHERE id = '{id}' FOR UPDATE");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *lock).await.unwrap();
        let (db, sql) = (
            world.db.clone(),
            format!("UPDATE actions SET {approve} WHERE id = '{id}' AND {deadline} > clock_timestamp()"),
        );
        let waiting = tokio::spawn(async move {
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&db).await.unwrap().rows_affected()
        });
        tokio::time::sleep(std::time::Duration::from_millis(1000)).await;
        lock.rollback().await.unwrap();
        assert_eq!(waiting.await.unwrap(), 0, "{deadline}");
    }
    world.finish().await;
}

#[tokio::test]
async fn a_schema_that_is_not_this_programs_is_refused() {
    let mut world = World::start().await;
    assert!(!BEN.is_empty());
    for replica in world.replicas.drain(..) {
        replica.stop().await;
    }
    sqlx::raw_sql(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                   VALUES (9999, 'from the future', true, 'x', 0)",
    )
    .execute(&world.db)
    .await
    .unwrap();
    let output = world.run(&["serve", "--config"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("9999"), "{said}");
    sqlx::raw_sql("DELETE FROM _sqlx_migrations WHERE version IN (5, 9999)")
        .execute(&world.db)
        .await
        .unwrap();
    world.write(
        "undersign.toml",
        &world.read("undersign.toml").replace("max_connections = 12", "migrate = false"),
    );
    let output = world.run(&["serve", "--config"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("undersign migrate"), "{said}");
    world.finish().await;
}

/// Every way to ask for an action names the tenant. With another tenant's, nothing is found and nothing changes.
#[tokio::test]
async fn o08_whatever_is_asked_with_another_tenants_ids_is_nothing() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    let (action, token) = world.approved_other().await;
    let before: Vec<String> = snapshot(&world).await;
    let foreign = world.agent(GLOBEX_KEY);
    for id in [&parked.action_id(), &action] {
        assert_eq!(foreign.approval(id, 0).await.code(), "not_found");
        assert_eq!(foreign.cancel(id).await.code(), "not_found");
    }
    let arguments = serde_json::json!({"order_id": "A-17", "amount_cents": 9_500});
    assert_eq!(foreign.call_with_token("refund_order", arguments, &token).await.code(), "invalid_token");
    // And below the application: the statements themselves.
    let db = Db::connect(&world.database_url(), 2).await.unwrap();
    let globex = Tenant::new("globex");
    for id in [parked.action_id(), action] {
        let id = ActionId::parse(&id).unwrap();
        assert!(db.action(&globex, id).await.unwrap().is_none());
        assert!(!db.cancel(&globex, &"support-bot".into(), id).await.unwrap());
        assert!(!db.cancel_by_operator(&globex, id, "dana").await.unwrap());
        assert!(!db.invalidate(&globex, id, "policy_changed").await.unwrap());
        let place = Place::parse("slack:main/C0PAY00001").unwrap();
        db.queue_alert(id, &globex, &[place], "not for you").await.unwrap();
    }
    let wanted = Wanted { tenant: Some(globex), ..Wanted::default() };
    assert!(db.list_actions(&wanted, 10).await.unwrap().is_empty());
    assert_eq!(snapshot(&world).await, before);
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, 200);
    world.finish().await;
}

async fn snapshot(world: &World) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT a.id || a.state || a.revision FROM actions a UNION ALL SELECT o.action_id || o.kind FROM outbox o
          WHERE o.kind = 'alert' ORDER BY 1",
    )
    .fetch_all(&world.db)
    .await
    .unwrap()
}
