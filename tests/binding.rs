//! What is bound (THREATS.md group B): any change of the call makes another call, the same call is one call however it
//! is spelt, and what can't be bound without loss is refused before anybody is asked.

mod harness;

use axum::http::StatusCode;
use harness::{BEN, BOT_KEY, GLOBEX_KEY, RULES, World, refund};
use serde_json::{Value, json};

#[tokio::test]
async fn b01_a_changed_amount_is_another_call() {
    let world = World::start().await;
    let (_, token) = world.approved().await;
    let mut changed = refund();
    changed["amount_cents"] = json!(12_001);
    let answer = world.agent(BOT_KEY).call_with_token("refund_order", changed, &token).await;
    assert_eq!(answer.code(), "digest_mismatch");
    assert!(world.shop.ledger().is_empty());
    let tamper = world.audit("tamper").await;
    assert_eq!(tamper.len(), 1);
    assert_eq!(tamper[0]["agent"], "support-bot");
    // The approval itself is untouched.
    assert_eq!(
        world.agent(BOT_KEY).call_with_token("refund_order", refund(), &token).await.code(),
        "upstream"
    );
    world.finish().await;
}

#[tokio::test]
async fn b03_added_removed_null_and_reordered_values_are_other_calls() {
    let world = World::start().await;
    world.shop.edit_tool("deploy", |tool| tool["inputSchema"] = json!({"type": "object"})).unwrap();
    let agent = world.agent(BOT_KEY);
    let approved = json!({"service": "api", "hosts": ["a", "b"], "note": "x"});
    let parked = agent.call("deploy", approved.clone()).await;
    let card = world.card().await;
    assert_eq!(world.press(harness::EVE, &card, "undersign_approve").await, StatusCode::OK);
    let token = agent.approval(&parked.action_id(), 30).await.token().unwrap();
    for changed in [
        json!({"service": "api", "hosts": ["a", "b"], "note": "x", "force": true}),
        json!({"service": "api", "hosts": ["a", "b"]}),
        json!({"service": "api", "hosts": ["a", "b"], "note": null}),
        json!({"service": "api", "hosts": ["a", "b"], "note": "x", "force": null}),
        json!({"service": "api", "hosts": ["b", "a"], "note": "x"}),
    ] {
        let answer = agent.call_with_token("deploy", changed.clone(), &token).await;
        assert_eq!(answer.code(), "digest_mismatch", "{changed}");
    }
    assert!(world.shop.ledger().is_empty());
    assert_eq!(world.audit("tamper").await.len(), 5);
    world.finish().await;
}

#[tokio::test]
async fn b05_values_that_would_change_are_refused_before_anybody_is_asked() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    for value in [
        "-0",
        "-0.0",
        "9007199254740992",
        "9007199254740993",
        "18446744073709551615",
        "1e400",
        "1e20",
        "0.1000000000000000055511151231257827",
    ] {
        let arguments = format!(r#"{{"customer_id": {value}}}"#);
        let (status, answer) = agent.call_raw("delete_customer", &arguments).await;
        // What no JSON parser can carry is refused as a request; the rest by name.
        if value == "1e400" {
            assert!(
                status == StatusCode::BAD_REQUEST || answer.code() != "approval_pending",
                "{value}: {}",
                answer.0
            );
        } else {
            assert_eq!(
                (status, answer.code().as_str()),
                (StatusCode::OK, "unsupported_value"),
                "{value}: {}",
                answer.0
            );
            assert!(!answer.text().contains(value), "the value is not repeated: {}", answer.text());
        }
    }
    assert!(world.slack.messages(harness::CHANNEL).is_empty());
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn b07_the_same_call_spelt_otherwise_is_the_same_call() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    let parked = agent.call("refund_order", refund()).await;
    let card = world.card().await;
    for spelling in [
        r#"{"order_id":"A-17","amount_cents":12000}"#,
        r#"{ "amount_cents" : 12000 , "order_id" : "A-17" }"#,
        r#"{"order_id":"\u0041-17","amount_cents":12000.0}"#,
        r#"{"order_\u0069d":"A-17","amount_cents":1.2e4}"#,
        "{\n\t\"order_id\":\"A-17\",\n\t\"amount_cents\":120e2}",
    ] {
        let (_, again) = agent.call_raw("refund_order", spelling).await;
        assert_eq!(again.code(), "approval_pending", "{spelling}: {}", again.0);
        assert_eq!(again.action_id(), parked.action_id(), "{spelling}");
    }
    assert_eq!(world.slack.messages(harness::CHANNEL).len(), 1);
    assert_eq!(world.press(BEN, &card, "undersign_approve").await, StatusCode::OK);
    let token = agent.approval(&parked.action_id(), 30).await.token().unwrap();
    let spelling =
        format!(r#"{{"approval_token":"{token}", "amount_cents":12000.00, "order_id":"A\u002d17"}}"#);
    let (_, executed) = agent.call_raw("refund_order", &spelling).await;
    assert_eq!(executed.code(), "upstream", "{}", executed.0);
    assert_eq!(world.shop.ledger()[0].arguments, refund());
    world.finish().await;
}

#[tokio::test]
async fn b09_look_alikes_are_other_calls_and_the_card_says_what_is_hidden() {
    let world = World::start().await;
    world.shop.edit_tool("deploy", |tool| tool["inputSchema"] = json!({"type": "object"})).unwrap();
    let agent = world.agent(BOT_KEY);
    let originals = ["caf\u{e9}", "paypal", "plain"];
    let alikes = ["cafe\u{301}", "p\u{430}ypal", "pl\u{200b}ain"];
    for (original, alike) in originals.iter().zip(alikes) {
        let first = agent.call("deploy", json!({"service": original})).await;
        let second = agent.call("deploy", json!({"service": alike})).await;
        assert_ne!(first.action_id(), second.action_id(), "{original}");
        let id = second.action_id();
        let card = world.card_where(|card| card.text.contains(&id)).await.as_text();
        let warning = match alike {
            "cafe\u{301}" => "not in Unicode normal form",
            "p\u{430}ypal" => "mixes letters of several scripts",
            _ => "invisible",
        };
        assert!(card.contains(warning), "{card}");
        assert!(!card.contains('\u{200b}'), "an invisible character on the card");
        if alike.contains('\u{200b}') {
            assert!(card.contains("pl\\u{200b}ain"), "{card}");
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn b10_text_that_parsers_read_differently_is_refused_and_never_a_fault_of_ours() {
    let world = World::start().await;
    let agent = world.agent(BOT_KEY);
    for arguments in [
        r#"{"order_id":"\ud800","amount_cents":12000}"#,
        r#"{"order_id":"A-17","amount_cents":1,"amount_cents":12000}"#,
        r#"{"order_id":"A-17","amount_cents":12000,"amount\u005fcents":1}"#,
        r#"{"$serde_json::private::RawValue":"[1]"}"#,
        r#"{"order_id":"A-17","amount_cents":12000,}"#,
        r#"{"order_id":"A-17","amount_cents":+1}"#,
    ] {
        let (status, _) = agent.call_raw("refund_order", arguments).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{arguments}");
    }
    let (status, answer) = agent.call_raw("delete_customer", r#"{"customer_id":"a\u0000b"}"#).await;
    assert_eq!((status, answer.code().as_str()), (StatusCode::OK, "unsupported_value"));
    let good = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"refund_order"}}"#;
    let mut with_bom = vec![0xef, 0xbb, 0xbf];
    with_bom.extend_from_slice(good.as_bytes());
    let mut not_utf8 = good.as_bytes().to_vec();
    not_utf8[10] = 0xff;
    let batch = format!("[{good}]").into_bytes();
    for body in [with_bom, not_utf8, batch] {
        let (status, answer) = agent.request("tools/call", Some("refund_order"), body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    }
    assert!(world.slack.messages(harness::CHANNEL).is_empty());
    world.finish().await;
}

#[tokio::test]
async fn b12_a_gated_tool_that_owns_the_tokens_name_is_not_offered() {
    let world = World::start().await;
    world
        .shop
        .edit_tool("refund_order", |tool| {
            tool["inputSchema"]["properties"]["approval_token"] = json!({"type": "string"});
        })
        .unwrap();
    let agent = world.agent(BOT_KEY);
    let names: Vec<Value> = agent.list().await.iter().map(|tool| tool["name"].clone()).collect();
    assert!(!names.contains(&json!("refund_order")), "{names:?}");
    assert!(names.contains(&json!("delete_customer")));
    assert_eq!(agent.call("refund_order", refund()).await.code(), "not_allowed");
    assert!(world.slack.messages(harness::CHANNEL).is_empty());
    world.finish().await;
}

#[tokio::test]
async fn b13_a_token_for_one_tool_does_not_open_another() {
    let world = World::start().await;
    for tool in ["refund_order", "delete_customer"] {
        world.shop.edit_tool(tool, |tool| tool["inputSchema"] = json!({"type": "object"})).unwrap();
    }
    let (_, token) = world.approved().await;
    let answer = world.agent(BOT_KEY).call_with_token("delete_customer", refund(), &token).await;
    assert_eq!(answer.code(), "digest_mismatch");
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn b14_a_token_of_one_tenant_is_nothing_to_another() {
    let world = World::start().await;
    let (action, token) = world.approved().await;
    let foreign = world.agent(GLOBEX_KEY);
    let answer = foreign.call_with_token("refund_order", refund(), &token).await;
    assert_eq!(answer.code(), "invalid_token");
    assert_eq!(foreign.approval(&action, 0).await.code(), "not_found");
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn b15_another_version_tag_is_refused_and_not_reinterpreted() {
    let world = World::start().await;
    let (_, token) = world.approved().await;
    for tag in ["ust2.", "ust0.", "ust.", "UST1."] {
        let other = token.replacen("ust1.", tag, 1);
        let answer = world.agent(BOT_KEY).call_with_token("refund_order", refund(), &other).await;
        assert_eq!(answer.code(), "invalid_token", "{tag}");
    }
    assert!(world.shop.ledger().is_empty());
    world.finish().await;
}

#[tokio::test]
async fn b16_a_changed_requirement_voids_the_approval_and_an_edit_elsewhere_does_not() {
    let mut world = World::start().await;
    let (action, token) = world.approved().await;
    // Another rule's group and an unused threshold change: this approval does not name them.
    world.write_policy(
        &RULES.replace("count = 2", "count = 1").replace("[thresholds]", "[thresholds]\nunused = 7"),
    );
    world.restart().await;
    assert_eq!(world.agent(BOT_KEY).approval(&action, 0).await.code(), "approval_granted");
    world.write_policy(
        &RULES.replace("{ group = \"payments\", count = 1 }", "{ group = \"payments\", count = 2 }"),
    );
    world.restart().await;
    let agent = world.agent(BOT_KEY);
    let answer = agent.call_with_token("refund_order", refund(), &token).await;
    assert_eq!(answer.code(), "policy_changed");
    let later = agent.call_with_token("refund_order", refund(), &token).await;
    assert_eq!(
        (later.code().as_str(), later.meta()["reason"].as_str()),
        ("invalidated", Some("policy_changed"))
    );
    assert!(world.shop.ledger().is_empty());
    let anew = agent.call("refund_order", refund()).await;
    assert_eq!(anew.code(), "approval_pending");
    assert_ne!(anew.action_id(), action);
    assert!(anew.text().contains("2 of payments"), "{}", anew.text());
    world.finish().await;
}

/// The digest is recomputed by another program in another language, from the audit export alone.
#[tokio::test]
async fn b17_the_digest_can_be_recomputed_from_the_audit_export() {
    let world = World::start().await;
    let mut arguments = refund();
    arguments["note"] = json!("\u{20ac} \u{1f602} \u{fb33} a\"b\\c \u{7f}");
    let parked = world.agent(BOT_KEY).call("refund_order", arguments).await;
    let export = std::process::Command::new(env!("CARGO_BIN_EXE_undersign"))
        .args(["audit", "export", "--config"])
        .arg(world.config_path())
        .envs(world.environment())
        .output()
        .unwrap();
    assert!(export.status.success(), "{}", String::from_utf8_lossy(&export.stderr));
    let line = String::from_utf8(export.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|event| event["kind"] == "parked")
        .unwrap();
    assert_eq!(line["action_id"], parked.action_id());
    let script = world.config_path().with_file_name("recompute.py");
    std::fs::write(&script, include_str!("data/recompute.py")).unwrap();
    let output = std::process::Command::new("python3")
        .arg(&script)
        .arg(line.to_string())
        .output()
        .expect("python3, which tests/run.sh asks for");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let digests: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(digests["action_digest"], line["action_digest"]);
    assert_eq!(digests["content_digest"], line["content_digest"]);
    assert_eq!(digests["commitment"], line["commitment"]);
    world.finish().await;
}
