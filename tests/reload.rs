//! A configuration that changes under a running service: wholly in force, or not at all and said so.

#![expect(clippy::unwrap_used, reason = "a test's helper that can't go on fails the test")]

mod harness;

use std::time::Duration;

use harness::{BOT_KEY, OTHER_KEY, RULES, World, refund};
use serde_json::{Value, json};

async fn ready(address: std::net::SocketAddr) -> Value {
    let response = reqwest::get(format!("http://{address}/readyz")).await.unwrap();
    assert_eq!(response.status(), 200);
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_changed_policy_is_in_force_at_once_and_what_was_approved_under_the_old_is_void() {
    let world = World::start().await;
    let (_, token) = world.approved().await;
    world.write_policy(&RULES.replace("refund_auto = 5000", "refund_auto = 4000"));
    world.reload().await;
    let agent = world.agent(BOT_KEY);
    let small = json!({"order_id": "A-17", "amount_cents": 4500});
    assert_eq!(agent.call("refund_order", small).await.code(), "approval_pending");
    assert_eq!(agent.call_with_token("refund_order", refund(), &token).await.code(), "policy_changed");
    assert_eq!(world.audit("policy_loaded").await.len(), 4, "two tenants, at the start and at the reload");
    assert_eq!(ready(world.replicas[0].admin()).await, json!({"status": "ok"}));
    world.finish().await;
}

#[tokio::test]
async fn g09_a_bad_file_leaves_the_old_policy_in_force_and_shows_on_readyz() {
    let world = World::start().await;
    let before = world.read("policy/acme/team.toml");
    world.write("policy/acme/team.toml", &before.replace("group = \"payments\"", "group = \"paymnets\""));
    // What is good in the same reload is not taken either.
    world.write("policy/globex/team.toml", &before.replace("shop/get_*", "shop/none"));
    world.reload().await;
    let agent = world.agent(BOT_KEY);
    assert_eq!(agent.call("get_order", json!({"order_id": "A-17"})).await.code(), "upstream");
    assert_eq!(agent.call("no_such_rule", json!({})).await.0["error"]["code"], -32602);
    let other = world.agent(harness::GLOBEX_KEY);
    assert_eq!(other.call("get_order", json!({"order_id": "A-17"})).await.code(), "upstream");
    let told = ready(world.replicas[0].admin()).await;
    assert_eq!(told["status"], "degraded");
    let fault = told["fault"].as_str().unwrap();
    assert!(
        fault.contains("rules.large-refunds.approvers") && fault.contains("there is no group 'paymnets'"),
        "{fault}"
    );
    world.write_policy(RULES);
    world.reload().await;
    assert_eq!(ready(world.replicas[0].admin()).await, json!({"status": "ok"}));
    world.finish().await;
}

/// Keys and secrets are rotated without a restart: first both are good, then the new one alone.
#[tokio::test]
async fn agent_keys_signing_secrets_and_token_keys_rotate_under_load() {
    let world = World::start().await;
    let (_, token) = world.approved().await;
    let config = world.read("undersign.toml");
    let new_key = "usk_the-new-key-of-support-bot-0123456789abcd";
    let hash = |key: &str| hex::encode(<sha2::Sha256 as sha2::Digest>::digest(key.as_bytes()));
    let both = config
        .replace(
            &format!("[\"{}\"]", hash(BOT_KEY)),
            &format!("[\"{}\", \"{}\"]", hash(BOT_KEY), hash(new_key)),
        )
        .replace(
            "signing_secret = { env = \"SLACK_SIGNING_SECRET\" }",
            "signing_secret = [{ file = \"secrets/new-signing\" }, { env = \"SLACK_SIGNING_SECRET\" }]",
        )
        .replace(
            "[[token_keys]]",
            "[[token_keys]]\nid = \"k2\"\nsecret = { file = \"secrets/k2\" }\n[[token_keys]]",
        );
    world.write("secrets/new-signing", "0a1b2c3d4e5f60718293a4b5c6d7e8f9");
    world.write("secrets/k2", "fedcba9876543210fedcba9876543210fedcba98");
    world.write("undersign.toml", &both);
    world.reload().await;
    assert_eq!(ready(world.replicas[0].admin()).await, json!({"status": "ok"}));
    // The old key, the old signature and the old token are still good; what is new is made with the new key.
    assert_eq!(
        world.agent(BOT_KEY).call_with_token("refund_order", refund(), &token).await.code(),
        "upstream"
    );
    let (_, token) = world.approved_other().await;
    assert!(token.starts_with("ust1.k2."), "the first key signs");
    let other = json!({"order_id": "A-17", "amount_cents": 9_500});
    assert_eq!(world.agent(new_key).call_with_token("refund_order", other, &token).await.code(), "upstream");
    // Then the old agent key goes.
    world.write("undersign.toml", &both.replace(&format!("\"{}\", ", hash(BOT_KEY)), ""));
    world.reload().await;
    let (status, _) = world.agent(BOT_KEY).request("tools/list", None, b"{}".to_vec()).await;
    assert_eq!(status, 401);
    assert_eq!(
        world.agent(OTHER_KEY).call("get_order", json!({"order_id": "A-17"})).await.code(),
        "upstream"
    );
    world.finish().await;
}

/// A rule that denies comes into force while a redemption reads afresh what lies outside: it counts.
#[tokio::test]
async fn a_policy_that_changes_during_a_redemption_stops_it() {
    let world = World::start().await;
    let (action, token) = world.approved().await;
    let gate = undersign::demo::gate::Gate::new();
    world.slack.fail("users.info", 1, &undersign::demo::slack::Fault::Hang(gate.clone()));
    // The caches of who is who are over after half a minute; a reload begins with empty ones.
    world.reload().await;
    let agent = world.agent(BOT_KEY);
    let redemption =
        tokio::spawn(async move { agent.call_with_token("refund_order", refund(), &token).await });
    gate.arrived().await;
    world.write_policy(&format!(
        "{RULES}[[rules]]\nname = \"stop\"\ntools = [\"shop/*\"]\ndecision = \"deny\"\n"
    ));
    world.reload().await;
    gate.open();
    assert_eq!(redemption.await.unwrap().code(), "policy_changed");
    assert_eq!(world.state(&action).await, "invalidated");
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

/// A database that does not answer keeps a tightened policy out of force for as long as that lasts, and no longer.
#[tokio::test]
async fn a_reload_that_the_database_stops_is_to_be_tried_again() {
    let world = World::start().await;
    sqlx::raw_sql("ALTER TABLE audit_events RENAME TO elsewhere").execute(&world.db).await.unwrap();
    world.write_policy(&RULES.replace("refund_auto = 5000", "refund_auto = 4000"));
    let config = world.load().map_err(|error| error.to_string());
    let again = world.replicas[0].reload(config).await;
    assert_eq!(again, undersign::cli::serve::Reloaded::Again);
    assert!(ready(world.replicas[0].admin()).await["fault"].as_str().unwrap().contains("the database"));
    sqlx::raw_sql("ALTER TABLE elsewhere RENAME TO audit_events").execute(&world.db).await.unwrap();
    world.reload().await;
    let small = json!({"order_id": "A-17", "amount_cents": 4500});
    assert_eq!(world.agent(BOT_KEY).call("refund_order", small).await.code(), "approval_pending");
    assert_eq!(ready(world.replicas[0].admin()).await, json!({"status": "ok"}));
    world.finish().await;
}

/// Which workspace it is waits for a restart; until then clicks of the old one count, and only those.
#[tokio::test]
async fn another_workspace_waits_for_a_restart() {
    let world = World::start().await;
    let (parked, card) = world.park().await;
    let config = world.read("undersign.toml").replace(harness::TEAM, "T0ELSEWHERE");
    world.write("undersign.toml", &config);
    world.reload().await;
    let told = ready(world.replicas[0].admin()).await;
    assert_eq!(told["fault"], "restart to put in force what has changed in: slack.main");
    assert_eq!(world.press(harness::BEN, &card, "undersign_approve").await, 200);
    assert_eq!(world.agent(BOT_KEY).approval(&parked.action_id(), 30).await.code(), "approval_granted");
    world.finish().await;
}

#[tokio::test]
async fn what_only_a_start_can_change_is_said() {
    let world = World::start().await;
    let config =
        world.read("undersign.toml").replace("environment = \"production\"", "environment = \"staging\"");
    world.write("undersign.toml", &config);
    world.reload().await;
    let told = ready(world.replicas[0].admin()).await;
    assert_eq!(
        told,
        json!({"status": "degraded", "fault": "restart to put in force what has changed in: tenants.acme.upstreams.shop, tenants.globex.upstreams.shop"})
    );
    world.finish().await;
}

/// The real process: a policy file that changes is noticed, and SIGHUP reads everything.
#[tokio::test]
async fn a_running_process_notices_a_changed_file_and_sighup() {
    let world = World::prepare(RULES).await;
    let process = harness::process::Process::start(&world, &[]);
    let agent = harness::Agent::new(format!("http://{}/mcp/shop", process.agents), BOT_KEY);
    let small = |n: u64| json!({"order_id": "A-17", "amount_cents": n});
    assert_eq!(agent.call("refund_order", small(4500)).await.code(), "upstream");
    world.write_policy(&RULES.replace("refund_auto = 5000", "refund_auto = 4000"));
    let mut noticed = false;
    for n in 0..100 {
        if agent.call("refund_order", small(4501 + n)).await.code() == "approval_pending" {
            noticed = true;
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(noticed, "a changed policy file is not noticed");
    let config = world.read("undersign.toml");
    world.write(
        "undersign.toml",
        &config.replace("[tenants.acme.agents.other-bot]", "[tenants.acme.agents.renamed]"),
    );
    process.signal("HUP");
    let renamed = harness::Agent::new(format!("http://{}/mcp/shop", process.agents), OTHER_KEY);
    let mut by = String::new();
    for n in 0..100 {
        let id = renamed.call("refund_order", small(20_000 + n)).await.action_id();
        by = sqlx::query_scalar("SELECT agent FROM actions WHERE id = $1::uuid")
            .bind(&id)
            .fetch_one(&world.db)
            .await
            .unwrap();
        if by == "renamed" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(by, "renamed");
    world.finish().await;
}
