//! The database's own rights: the service's role can't change the audit trail, and can't go on without it.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use axum::http::StatusCode;
use harness::{BEN, BOT_KEY, World, refund};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _};
use undersign::storage::Db;

const ROLES: &str = include_str!("../deploy/postgres/roles.sql");

/// A world whose program logs in as the service's role, in a database that the owner's role has.
async fn with_roles() -> World {
    let mut world = World::prepare(harness::RULES).await;
    Db::migrate(&world.environment()[0].1).await.unwrap();
    // Again is no fault: it is run after each upgrade.
    for _ in 0..2 {
        world.db.execute(sqlx::raw_sql(ROLES)).await.unwrap();
    }
    world.log_in_as("undersign_app");
    world.add_replica().await;
    world
}

async fn log_in(world: &World, role: &str) -> PgPool {
    let options: PgConnectOptions = world.environment()[0].1.parse().unwrap();
    PgPoolOptions::new().max_connections(1).connect_with(options.username(role)).await.unwrap()
}

/// The SQLSTATE of a refusal.
async fn refused(pool: &PgPool, sql: &str) -> String {
    match pool.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await {
        Err(sqlx::Error::Database(error)) => error.code().unwrap_or_default().into_owned(),
        other => panic!("{sql} is not refused: {other:?}"),
    }
}

#[tokio::test]
async fn o07_the_services_role_serves_and_cannot_change_the_trail() {
    let mut world = with_roles().await;
    // The whole path under that role: park, approve, redeem, withdraw, expire.
    let (action, token) = world.approved().await;
    let agent = world.agent(BOT_KEY);
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "upstream");
    let card = world.card_showing("succeeded").await;
    assert!(card.as_text().contains("succeeded"));
    let other = agent.call("delete_customer", json!({ "customer_id": "C-1" })).await.action_id();
    agent.cancel(&other).await;
    let late = agent.call("delete_customer", json!({ "customer_id": "C-2" })).await.action_id();
    world
        .rewrite(&format!(
            "UPDATE actions SET created_at = created_at - interval '1 day', expires_at = clock_timestamp() WHERE id = '{late}'"
        ))
        .await;
    world.wait_audit("expired", 1).await;
    let denied = agent.call("delete_customer", json!({ "customer_id": "C-3" })).await.action_id();
    let card = world.card_where(|card| card.text.contains(&denied)).await;
    assert_eq!(world.press(BEN, &card, "undersign_deny").await, StatusCode::OK);
    world.wait_audit("denied", 1).await;
    // The sequencer and the signatures too.
    for _ in 0..600 {
        let pending: i64 =
            sqlx::query_scalar("SELECT count(*) FROM audit_pending").fetch_one(&world.db).await.unwrap();
        if pending == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    world.stop().await;
    let (code, report) = world.verify(&[]);
    assert_eq!((code, report["tenants"][0]["signed_to"].is_i64()), (0, true), "{report}");

    let app = log_in(&world, "undersign_app").await;
    for table in
        ["audit_events", "audit_events_2026_12", "audit_subjects", "audit_chain", "audit_checkpoints"]
    {
        for sql in [
            format!(
                "UPDATE {table} SET {} = DEFAULT",
                if table.starts_with("audit_events") { "kind" } else { "at" }
            ),
            format!("DELETE FROM {table}"),
            format!("TRUNCATE {table}"),
        ] {
            let sql = match table {
                "audit_subjects" => sql.replace("SET at", "SET salt"),
                "audit_chain" => sql.replace("SET at", "SET hash"),
                _ => sql,
            };
            assert_eq!(refused(&app, &sql).await, "42501", "{sql}");
        }
    }
    for sql in [
        "DELETE FROM audit_head",
        "TRUNCATE audit_pending",
        "DELETE FROM actions",
        "UPDATE actions SET arguments = 'x'",
        "UPDATE votes SET person = 'x'",
        "UPDATE tokens SET nonce = sha256('x')",
        "UPDATE intents SET idempotency_key = 'x'",
        "ALTER TABLE audit_events DISABLE TRIGGER ALL",
        "ALTER TABLE audit_events OWNER TO undersign_app",
        "CREATE TABLE mine (x int)",
        "SET session_replication_role = replica",
        "CREATE OR REPLACE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE sql AS 'SELECT 1'",
    ] {
        assert_eq!(refused(&app, sql).await, "42501", "{sql}");
    }
    // Erasing is retention's: not the service's, nor the auditor's, who can verify and export.
    let erase = |world: &World| world.run(&["audit", "erase", &action, "--config"]);
    assert_eq!(erase(&world).status.code(), Some(1));
    world.log_in_as("undersign_audit");
    assert_eq!(erase(&world).status.code(), Some(1));
    assert_eq!(world.verify(&[]).0, 0);
    assert!(!world.export(&[]).is_empty());
    let audit = log_in(&world, "undersign_audit").await;
    for sql in
        ["INSERT INTO audit_pending VALUES (1, now())", "DELETE FROM audit_pending", "SELECT * FROM tokens"]
    {
        assert_eq!(refused(&audit, sql).await, "42501", "{sql}");
    }
    world.log_in_as("undersign_retention");
    let erased = erase(&world);
    assert!(erased.status.success(), "{}", String::from_utf8_lossy(&erased.stderr));
    world.log_in_as("undersign_owner");
    Db::migrate(&world.environment()[0].1).await.unwrap();
    let (code, report) = world.verify(&[]);
    assert_eq!((code, &report["tenants"][0]["erased"]), (0, &json!(1)), "{report}");
}

#[tokio::test]
async fn o07_without_its_right_to_write_audit_rows_nothing_goes_on() {
    let world = with_roles().await;
    let agent = world.agent(BOT_KEY);
    let (action, token) = world.approved().await;
    let second = agent.call("delete_customer", json!({ "customer_id": "C-1" })).await.action_id();
    let card = world.card_where(|card| card.text.contains(&second)).await;
    world.db.execute("REVOKE INSERT ON audit_events FROM undersign_app").await.unwrap();
    let parked = agent.call("delete_customer", json!({ "customer_id": "C-2" })).await;
    assert_eq!(parked.code(), "unavailable");
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "unavailable");
    world.press(BEN, &card, "undersign_deny").await;
    assert_eq!(agent.cancel(&second).await.code(), "unavailable");
    assert_eq!(world.state(&action).await, "approved");
    assert_eq!(world.state(&second).await, "pending");
    let votes: i64 = sqlx::query_scalar("SELECT count(*) FROM votes WHERE action_id = $1::uuid")
        .bind(&second)
        .fetch_one(&world.db)
        .await
        .unwrap();
    assert_eq!(votes, 0);
    assert!(world.shop.ledger().iter().all(|call| call.idempotency_key.is_none()), "nothing was executed");
    // The press is durable: it is decided once the right is back.
    world.db.execute("GRANT INSERT ON audit_events TO undersign_app").await.unwrap();
    world.wait_audit("denied", 1).await;
    assert_eq!(world.state(&second).await, "denied");
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "upstream");
    world.finish().await;
}

/// A new table needs its line in `roles.sql`, or the service fails on the first database that uses roles.
#[tokio::test]
async fn every_table_is_granted_to_the_service() {
    let world = with_roles().await;
    let forgotten: Vec<String> = sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
          WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
            AND NOT has_table_privilege('undersign_app', c.oid, 'SELECT')",
    )
    .fetch_all(&world.db)
    .await
    .unwrap();
    assert_eq!(forgotten, [""; 0]);
    world.finish().await;
}

#[tokio::test]
async fn a_role_that_may_change_the_trail_is_warned_of_once() {
    for (role, warnings) in [(None, 1), (Some("undersign_app"), 0)] {
        let mut world = World::prepare(harness::RULES).await;
        Db::migrate(&world.environment()[0].1).await.unwrap();
        if let Some(role) = role {
            world.db.execute(sqlx::raw_sql(ROLES)).await.unwrap();
            world.log_in_as(role);
        }
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_undersign"))
            .args(["serve", "--config"])
            .arg(world.config_path())
            .envs(world.environment())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
        while !said.contains("ready") {
            assert!(std::io::BufRead::read_line(&mut lines, &mut said).unwrap() > 0, "{said}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(said.matches("roles.sql").count(), warnings, "{said}");
    }
}
