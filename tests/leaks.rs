//! What must be nowhere but where it belongs: secrets and arguments.

mod harness;

use harness::process::Process;
use harness::{Agent, BEN, BOT_KEY, CHANNEL, OTHER_KEY, World};
use serde_json::json;

/// The whole story, told by a real process that logs all it can, with a canary in everything secret and everything asked.
#[tokio::test]
async fn l01_no_secret_and_no_argument_is_in_logs_errors_or_answers() {
    let world = World::prepare(harness::RULES).await;
    let mut config = world.read("undersign.toml");
    config = config.replace("url = { env = \"DATABASE_URL\" }", "url = { file = \"secrets/database\" }");
    world.write("undersign.toml", &config);
    let url = world.database_url().replacen("undersign@", "undersign:canary-database-password@", 1);
    assert!(url.contains("canary-database-password"), "{url}");
    world.write("secrets/database", &url);
    let process = Process::start_logging(&world, "trace");
    let agent = Agent::new(format!("http://{}/mcp/shop", process.agents), BOT_KEY);
    let other = Agent::new(format!("http://{}/mcp/shop", process.agents), OTHER_KEY);
    let callbacks = format!("http://{}/callbacks/slack/main", process.callbacks);
    let mut told = String::new();
    let noted = |cents: u64| json!({"order_id": "A-17", "amount_cents": cents, "note": "canary-argument"});

    // Approved and executed; the replay; the same token for another call and in other hands.
    let parked = agent.call("refund_order", noted(12_000)).await;
    let id = parked.action_id();
    let card = world.slack.wait_message(CHANNEL, |card| card.text.contains(&id)).await.unwrap();
    let payload = world.slack.click_payload(BEN, CHANNEL, &card.ts, "undersign_approve").unwrap();
    let request = world.slack.sign(&payload, harness::now());
    world.slack.send(&callbacks, request).await.unwrap();
    let token = agent.approval(&id, 30).await.token().unwrap();
    for answer in [
        other.call_with_token("refund_order", noted(12_000), &token).await,
        agent.call_with_token("refund_order", noted(12_001), &token).await,
        agent.call_with_token("refund_order", noted(12_000), &token).await,
        agent.call_with_token("refund_order", noted(12_000), &token).await,
    ] {
        if answer.code() != "upstream" {
            told += &answer.0.to_string();
        }
    }
    // What is refused on the way in: envelopes, values, schema, keys, signatures, another app's payload.
    for arguments in [
        r#"{"order_id":"A-17","amount_cents":99999999999999999999,"note":"canary-argument"}"#,
        r#"{"order_id":"canary-argument","amount_cents":12000}"#,
        r#"{"note":"canary-argument","note":"canary-argument"}"#,
        r#"{"canary-argument":[[[]]]}"#,
    ] {
        told += &agent.call_raw("refund_order", arguments).await.1.0.to_string();
    }
    for body in ["canary-argument", "{\"canary-argument\":", "[\"canary-argument\"]"] {
        told += &agent.request("tools/call", Some("refund_order"), body.into()).await.1.to_string();
    }
    let stranger = Agent::new(agent.url.clone(), "canary-agent-key-that-nobody-knows-0123456789");
    told += &stranger.request("tools/list", None, b"{}".to_vec()).await.1.to_string();
    let mut forged = world.slack.sign(&payload, harness::now() - 1000);
    told += &world.slack.send(&callbacks, forged.clone()).await.unwrap().to_string();
    forged.body = b"payload=canary-argument".to_vec().into();
    told += &world.slack.send(&callbacks, forged).await.unwrap().to_string();
    // Far ends that fail, and say so with everything they know.
    world.slack.fail("chat.postMessage", 1, &undersign::demo::slack::Fault::Error("canary_error".to_owned()));
    told += &agent.call("refund_order", noted(13_000)).await.0.to_string();
    world.shop.script("refund_order", undersign::demo::shop::Behaviour::DropAfter);
    told += &agent.call("refund_order", noted(100)).await.0.to_string();
    for path in ["healthz", "readyz"] {
        let response = reqwest::get(format!("http://{}/{path}", process.admin)).await.unwrap();
        told += &response.text().await.unwrap();
    }
    process.signal("TERM");
    let mut process = process;
    assert_eq!(process.ended().await, Some(0));
    let logged = world.read("stderr") + &process.printed();
    for told in ["press decided", "token refused", "executed", "a Slack callback was rejected"] {
        assert!(logged.contains(told), "the log lacks: {told}");
    }

    let exported = world.run(&["audit", "export", "--config"]);
    let mut audit = String::new();
    for line in String::from_utf8(exported.stdout).unwrap().lines() {
        let mut event: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(event) = event.as_object_mut() {
            for erasable in ["action_subject", "preview", "facts", "salt"] {
                event.remove(erasable);
            }
        }
        audit += &event.to_string();
    }
    let mac = token.rsplit('.').next().unwrap();
    for (what, canary) in [
        ("the signing secret", harness::SIGNING_SECRET),
        ("the bot token", "xoxb-harness-0123456789"),
        ("the database password", "canary-database-password"),
        ("the upstream's credential", "upstream-credential-0123456789"),
        ("the token key", "0123456789abcdef0123456789abcdef0123456789"),
        ("an agent key", BOT_KEY),
        ("an unknown agent key", "canary-agent-key"),
        ("an approval token", mac),
        ("an argument", "canary-argument"),
    ] {
        assert!(!logged.contains(canary), "{what} is in the log: {}", context(&logged, canary));
        assert!(!told.contains(canary), "{what} is in an answer: {}", context(&told, canary));
        assert!(!audit.contains(canary), "{what} is in the audit trail: {}", context(&audit, canary));
    }
    world.finish().await;
}

fn context(text: &str, word: &str) -> String {
    let at = text.find(word).unwrap_or(0);
    text[..at].chars().rev().take(300).collect::<Vec<_>>().into_iter().rev().collect()
}
